"""Wrong files: the code and the place each must get (see `diagnostics/README.md`)."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import hapdsl
from hapdsl.cli import main
from hapdsl.lang.codes import CODES
from hapdsl.lang.diagnostics import Diagnostic
from hapdsl.lang.explained.clusters import CLUSTERS
from hapdsl.lang.explained.models import MODELS
from hapdsl.lang.explained.programs import PROGRAMS
from hapdsl.lang.explained.text import TEXT
from hapdsl.lang.explained.theory import THEORY
from hapdsl.lang.nodes import Span
from hapdsl.lang.show import render
from hapdsl.workbench import status_of

FOLDER = Path(__file__).parent / "diagnostics"
FILES = sorted(FOLDER.glob("*.hap"))
# What no text in a file can show: no file, a folder, a file of ten megabytes, a hundred files in a row (tests/lang/test_files.py and
# tests/cli/test_bad_input.py have them), questions of the command line (tests/cli), the cost of a program on another cluster (tests/cost),
# and what nothing can be written for.
NOT_AS_TEXT = {"HAP120", "HAP121", "HAP123", "HAP133"}
NOT_BY_CHECK = {
    "HAP240", "HAP241", "HAP420", "HAP421", "HAP422", "HAP423", "HAP426", "HAP428", "HAP429", "HAP519", "HAP580", "HAP581", "HAP582", "HAP584",
}  # fmt: skip

_COMMENT = re.compile(r"# expect (HAP\d{3}.*)$", re.MULTILINE)
_ONE = re.compile(r"(HAP\d{3})(?: at (\d+):(\d+))?(?:: (.*))?$")


@dataclass(frozen=True)
class Expected:
    code: str
    line: int
    column: int | None
    words: str

    def fits(self, d: Diagnostic) -> bool:
        return (
            d.code == self.code
            and d.span.line == self.line
            and self.column in (None, d.span.column)
            and self.words in f"{d.message} {d.help}"
        )


@cache
def checked(path: Path) -> tuple[int, tuple[Diagnostic, ...]]:
    """What `hapdsl check FILE --json` answers: its exit status and all that it finds wrong."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = main(["check", str(path), "--json"])
    answer = json.loads(said.getvalue())
    return status, tuple(
        Diagnostic(
            d["code"],
            d["message"],
            Span(d["file"], d["line"], d["column"], d["line"], d["column"] + 1),
            d["help"],
            d["severity"],
        )
        for d in answer["diagnostics"]
    )


def diagnose(path: Path) -> tuple[Diagnostic, ...]:
    return checked(path)[1]


def expected(path: Path) -> list[Expected]:
    # latin-1 reads any byte, so this works for files that aren't UTF-8, too.
    text = path.read_text(encoding="latin-1")
    found = []
    for match in _COMMENT.finditer(text):
        for part in re.split(r", (?=HAP)", match[1].strip()):
            one = _ONE.match(part)
            assert one, f"{path.name}: {part!r} is no expectation"
            line = int(one[2]) if one[2] else text.count("\n", 0, match.start()) + 1
            found.append(Expected(one[1], line, int(one[3]) if one[3] else None, one[4] or ""))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_findings_are_those_the_file_announces(path):
    wanted, found = expected(path), diagnose(path)
    assert wanted, "no `# expect HAPnnn` in the file"
    assert path.name.startswith(tuple(e.code[3:] for e in wanted)) or path.name.startswith("190")
    text = path.read_text(encoding="utf-8", errors="replace")
    shown = "\n".join(render(d, text) for d in found)
    unmet = [e for e in wanted if not any(e.fits(d) for d in found)]
    extra = [f"{d.code} at {d.span.line}:{d.span.column}" for d in found if not any(e.fits(d) for e in wanted)]
    assert not unmet and not extra, f"\nnot found: {unmet}\nnot announced: {extra}\n{shown}"
    assert len(wanted) == len(found), shown


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_each_finding_can_be_shown_and_explained(path):
    text = path.read_text(encoding="utf-8", errors="replace")
    for d in diagnose(path):
        assert d.code in CODES
        assert d.span.line >= 1 and d.span.column >= 1
        assert len(d.message.split()) >= 3
        assert str(d.as_json()["file"]).endswith(".hap")
        assert "^" in render(d, text)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_exit_status_is_that_of_the_findings(path):
    status, found = checked(path)
    assert status == status_of([d for d in found if d.severity == "error"])


def test_enough_of_them_are_about_meaning():
    assert len(FILES) >= 60
    about_meaning = [(e.code, path) for path in FILES for e in expected(path) if e.code >= "HAP2"]
    assert len(about_meaning) >= 150
    assert all(e.column for path in FILES for e in expected(path) if e.code >= "HAP2"), "each has its column"


def test_every_code_of_a_text_has_a_case():
    seen = {e.code for path in FILES for e in expected(path)}
    assert {*TEXT, *MODELS, *THEORY, *CLUSTERS, *PROGRAMS} - NOT_AS_TEXT - NOT_BY_CHECK - seen == set()


def raised() -> dict[str, set[str]]:
    """Every code that stands in hapdsl's own source as a text by itself, with the files that say it."""
    found: dict[str, set[str]] = {}
    for path in _modules(Path(hapdsl.__file__).parent):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"HAP\d{3}", node.value):
                found.setdefault(node.value, set()).add(path.name)
    return found


def _modules(folder: Path) -> Iterator[Path]:
    return (p for p in sorted(folder.rglob("*.py")) if "explained" not in p.parts)


def test_codes_are_raised_and_explained_alike():
    assert {c: where for c, where in raised().items() if c not in CODES} == {}, "raised, but not explained"
    assert set(CODES) - set(raised()) == set(), "explained, but never raised"


def test_every_code_is_provoked_somewhere_in_the_tests():
    seen = {e.code for path in FILES for e in expected(path)}
    for path in Path(__file__).parent.rglob("*.py"):
        if path != Path(__file__):
            seen.update(re.findall(r"HAP\d{3}", path.read_text(encoding="utf-8")))
    assert set(CODES) - seen == set()
