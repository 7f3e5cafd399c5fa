"""Wrong files: the code and the place each must get (see `diagnostics/README.md`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from hapdsl.lang.codes import CODES
from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.lang.explained.text import TEXT
from hapdsl.lang.load import load
from hapdsl.lang.show import render

FOLDER = Path(__file__).parent / "diagnostics"
FILES = sorted(FOLDER.glob("*.hap"))
# What no text in a file can show: no file, a folder, a file of ten megabytes (tests/lang/test_files.py has them).
NOT_AS_TEXT = {"HAP120", "HAP121", "HAP123"}

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


def diagnose(path: Path) -> list[Diagnostic]:
    """Everything hapdsl finds wrong in a file."""
    try:
        load(path)
    except HapError as problem:
        return list(problem.diagnostics)
    return []


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


def test_every_code_of_texts_and_files_has_a_case():
    seen = {e.code for path in FILES for e in expected(path)}
    assert set(TEXT) - NOT_AS_TEXT - seen == set()
