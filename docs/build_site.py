"""`python docs/build_site.py`: the documentation as a site in build/site, with a page for each error code; any warning fails.

The pages of this folder are the source, README.md is the front page. What is made from the package (a page per code, their list)
is written beside copies of them in build/pages, never into the repository.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from hapdsl.lang.codes import CODES
from hapdsl.lang.explained.explanation import Explanation

ROOT = Path(__file__).resolve().parents[1]
DOCS, BUILD = ROOT / "docs", ROOT / "build"
FRONT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
HOME = {"README.md": "index.md"}
PICTURES = (".svg", ".png")
SOURCE = "https://github.com/hapdsl/hapdsl/blob/main"
HUNDREDS = {
    "1": "text and files",
    "2": "names and models",
    "3": "shapes, dtypes, operators",
    "4": "clusters and units",
    "5": "programs",
    "6": "plans and shares",
    "7": "running",
    "8": "explorer, drawings, the rest",
}


def code_page(code: str, known: Explanation) -> str:
    """The page of one error code, in Markdown."""
    title = known.title[:1].upper() + known.title[1:]
    parts = [f"# {code}: {title}", "", known.text]
    for label, example in (("Wrong", known.example_bad), ("Right", known.example_good)):
        if example:
            parts += ["", f"{label}:", "", *("    " + line for line in example.split("\n"))]
    return "\n".join([*parts, "", f"At the terminal: `hapdsl explain {code}`.", ""])


def code_list() -> str:
    """The page that lists all codes by their hundreds."""
    parts = ["# Error codes", "", "Every diagnostic has a code that never changes its meaning."]
    for first, what in HUNDREDS.items():
        rows = [f"| [{code}]({code}.md) | {known.title} |" for code, known in sorted(CODES.items()) if code[3] == first]
        parts += ["", f"## {first}xx: {what}", "", "| | |", "|---|---|", *rows]
    return "\n".join(parts) + "\n"


def front(text: str) -> str:
    """A page of the repository's top folder as one of the site: links to pages lead there, those to files to the repository."""
    text = re.sub(r"\]\(docs/", "](", text)
    text = re.sub(r'(src|srcset)="docs/', r'\1="', text)
    return re.sub(r"\]\(((?!https?:|#)[\w./-]+)(?<!\.md)(?<!\.svg)(?<!\.png)\)", rf"]({SOURCE}/\1)", text)


def beside(text: str) -> str:
    """A page of docs/ as one of the site, where the pages of the repository's top folder stand beside it."""
    return re.sub(
        rf"\]\(\.\./({'|'.join(map(re.escape, FRONT))})", lambda found: f"]({HOME.get(found[1], found[1])}", text
    )


def pages(to: Path) -> None:
    """Write all pages of the site into an empty folder."""
    shutil.rmtree(to, ignore_errors=True)
    (to / "codes").mkdir(parents=True)
    for page in sorted(p for p in DOCS.rglob("*") if p.suffix in (".md", *PICTURES)):
        copy = to / page.relative_to(DOCS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md" and page.parent == DOCS:
            copy.write_text(beside(page.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(page, copy)
    for name in FRONT:
        (to / HOME.get(name, name)).write_text(front((ROOT / name).read_text(encoding="utf-8")), encoding="utf-8")
    for code, known in CODES.items():
        (to / "codes" / f"{code}.md").write_text(code_page(code, known), encoding="utf-8")
    (to / "codes" / "index.md").write_text(code_list(), encoding="utf-8")


def main() -> int:
    """Build the site; the status of zensical, which a warning makes 1, or 2 where it isn't installed."""
    if find_spec("zensical") is None:
        print(
            "the site is built by zensical, not installed here: pip install -e '.[docs]' (make test does)",
            file=sys.stderr,
        )
        return 2
    pages(BUILD / "pages")
    settings = BUILD / "mkdocs.yml"  # beside the pages that it names
    shutil.copyfile(DOCS / "mkdocs.yml", settings)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", str(settings)]
    return subprocess.run(command, cwd=BUILD, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
