"""How a diagnostic looks, and what its code means."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import pytest

from hapdsl.lang import codes
from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.lang.nodes import Span
from hapdsl.lang.parse import parse
from hapdsl.lang.show import render


def shown(text, file="m.hap"):
    with pytest.raises(HapError) as caught:
        parse(text, file)
    return render(caught.value.diagnostics[0], text)


def test_line_caret_and_help():
    assert shown("model m {\n\tparam w = f32[d]\n}\n") == (
        "m.hap:2:10: error HAP107: a declaration has `:` before its type\n"
        "2 | \tparam w = f32[d]\n"
        "  | \t        ^\n"
        "  help: write `param w : f32[…]`"
    )


def test_words_are_underlined():
    assert shown("model m {\n    x = z zzzzzzz y\n}\n").split("\n")[1:3] == [
        "2 |     x = z zzzzzzz y",
        "  |           ^~~~~~~",
    ]


def test_the_end_of_the_file():
    assert shown("model m {\n    x = f(y)") == (
        "m.hap:2:13: error HAP103: the file ends inside a block: expected `}`\n"
        "2 |     x = f(y)\n"
        "  |             ^\n"
        "  help: the `{` at 1:9 isn't closed"
    )


def test_long_lines_are_clipped_around_the_caret():
    text = "model m {\n    x = [" + "1, " * 500 + "1 1" + ", 1" * 500 + "]\n}\n"
    _, source, caret, *_ = shown(text).split("\n")
    assert len(source) < 140
    assert source[caret.index("^") - 3 : caret.index("^") + 1] == ", 1 1"[1:]
    assert source.count("…") == 2


def test_control_characters_do_not_reach_the_terminal():
    assert "\x1b" not in shown("model m {\n    \x1b[31m = 3\n}\n")
    quoted = shown('model m {\n    x = f(y) "\x1b[31m"\n}\n')
    assert 'found "\ufffd[31m"' in quoted and "\x1b" not in quoted


def test_without_text_or_place():
    assert render(Diagnostic("HAP120", "there is no file x")) == "error HAP120: there is no file x"
    assert (
        render(Diagnostic("HAP416", "odd", Span("x", 3, 1, 3, 2), severity="warning")) == "x:3:1: warning HAP416: odd"
    )
    assert render(Diagnostic("HAP101", "odd", Span("x", 30, 7, 30, 8)), "short\n") == "x:30:7: error HAP101: odd"


def test_an_error_survives_the_way_between_processes():
    one = HapError(Diagnostic("HAP101", "odd", Span("x", 3, 1, 3, 2), "help"), Diagnostic("HAP416", "w"), status=1)
    again = pickle.loads(pickle.dumps(one))
    assert (again.diagnostics, again.status, str(again)) == (one.diagnostics, 1, str(one))

    class Other(HapError):
        def __init__(self, rank):
            super().__init__(Diagnostic("HAP720", f"rank {rank} failed"), status=1)
            self.rank = rank

    other = copy.copy(Other(3))
    assert isinstance(other, Other) and other.rank == 3 and other.diagnostics[0].code == "HAP720"


def test_line_ends_of_all_kinds():
    for end in ("\n", "\r\n", "\r"):
        assert "\n2 |     x = = 3\n" in shown(f"model m {{{end}    x = = 3{end}}}{end}")


def test_every_code_of_this_room_is_explained_and_used():
    source = "".join(
        p.read_text(encoding="utf-8") for p in Path(codes.__file__).parent.glob("*.py") if p.name != "codes.py"
    )
    used = set(re.findall(r'"(HAP\d{3})"', source))
    assert {c for c in codes.CODES if c < "HAP200" or "HAP490" <= c <= "HAP499"} <= used
    assert used - {"HAP890"} <= set(codes.CODES)


def test_explain():
    text = codes.explain("hap107 ")
    assert text.startswith("HAP107: `=` and `:` mixed up\n")
    assert "    param w : f32[d, 4]" in text
    with pytest.raises(HapError) as caught:
        codes.explain("HAP999")
    assert caught.value.diagnostics[0].code == "HAP890"


@pytest.mark.parametrize("code", sorted(codes.CODES))
def test_explanations_read_well(code):
    found = codes.CODES[code]
    assert re.fullmatch(r"HAP[1-8]\d\d", code)
    assert found.title and not found.title.endswith(".")
    assert found.text.endswith((".", "!", "?", ")")) and len(found.text) > 30
    assert not found.example_good or found.example_bad != found.example_good
