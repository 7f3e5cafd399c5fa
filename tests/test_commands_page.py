"""Each option of each verb stands on the page of commands, and whatever option the documentation shows exists for that verb."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import click
import pytest

from hapdsl.cli import VERBS, cli

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = [DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("commands_page", DOCS / "commands.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def options(verb: str) -> set[str]:
    """All options of a verb, those of what is below it too."""
    found = {"--help", "-h"}
    queue = [cli.get_command(click.Context(cli), verb)]
    while queue:
        command = queue.pop()
        assert command is not None
        found |= {name for p in command.params if isinstance(p, click.Option) for name in (*p.opts, *p.secondary_opts)}
        queue += command.commands.values() if isinstance(command, click.Group) else []
    return found


def test_the_page_is_what_help_says(script: ModuleType) -> None:
    assert (DOCS / "commands.md").read_text(encoding="utf-8") == script.page(), "`make commands` makes it anew"


def test_code_stays_code(script: ModuleType) -> None:
    said = "`hapdsl run FILE --resume DIR` goes\n on; see --every a|b, `a*b`, a*b and <c>"
    assert script.marked(said) == "`hapdsl run FILE --resume DIR` goes on; see `--every` a\\|b, `a*b`, a\\*b and \\<c>"


def test_every_verb_and_option_is_there() -> None:
    parts = re.split(r"^## ", (DOCS / "commands.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    text: dict[str, str] = {}
    for part in parts:
        text[part.split()[0]] = text.get(part.split()[0], "") + part
    assert set(text) == set(VERBS)
    for verb, said in text.items():
        for option in options(verb) - {"--help", "-h"}:
            assert re.search(rf"`[^`]*{re.escape(option)}\b[^`]*` \|", said), f"{verb} {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_options_that_are_shown_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r"^    (?:\$ )?hapdsl (\w+)([^;|#\n]*)", text, re.MULTILINE)
    shown += re.findall(r"`(?:hapdsl )?(\w+)((?: [^`\n]*)?(?<= )--?[a-z][^`\n]*)`", text)
    for verb, rest in shown:
        if verb in VERBS:
            for option in re.findall(r"(?<![\w-])--?[a-z][\w-]*", rest):
                assert option in options(verb), f"{verb} {option}"
