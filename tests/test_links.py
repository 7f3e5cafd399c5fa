"""Links in the documentation lead to headings that are there, in the repository and in the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)


def anchors(page: Path) -> set[str]:
    """What GitHub (and the site) makes of a page's headings."""
    text = re.sub(r"^    .*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_headings(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for file, anchor in re.findall(r"\]\(((?!https?:)[^)#\s]*)#([^)\s]+)\)", text):
        target = (page.parent / file).resolve() if file else page
        assert target.exists() and anchor in anchors(target), f"{file}#{anchor}"


def test_the_site_links_pages_that_it_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import build_site

    build_site.pages(tmp_path / "pages")
    for page in (tmp_path / "pages").rglob("*.md"):
        for target in re.findall(r"\]\(((?!https?:|#)[^)#\s]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
