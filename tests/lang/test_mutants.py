"""Broken texts: whatever is deleted, doubled, swapped or thrown in, the answer is a tree or coded diagnostics."""

from __future__ import annotations

import bisect
import functools
import itertools
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lark.lexer import PatternStr

from hapdsl.lang.codes import CODES
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.expected import BLOCKS
from hapdsl.lang.parse import MOST_ERRORS, parse, parser
from tests.lang.helpers import EXAMPLES

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|\.\.\.|\.\.|->|//|\.?\w[\w.]*|[^\s\w#]|#[^\n]*')
_SORTS = [("name", re.compile(r"\.?[A-Za-z_]")), ("number", re.compile(r"\d")), ("text", re.compile('"'))]
_BLOCK = re.compile(rf"^(?=(?:{'|'.join(BLOCKS)})\b)", re.MULTILINE)


def answer(text: str) -> list[str]:
    """The codes found in a text, after making sure that each finding can be shown to a person."""
    try:
        parse(text)
    except HapError as problem:
        assert 1 <= len(problem.diagnostics) <= MOST_ERRORS
        lines = re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))
        for d in problem.diagnostics:
            assert d.code in CODES
            assert 1 <= d.span.line <= len(lines)
            assert 1 <= d.span.column <= len(lines[d.span.line - 1]) + 1
            assert d.span.end_column > d.span.column
            assert len(d.message.split()) >= 3
            # No name of the grammar's comes up; a person's own word may be quoted back.
            assert not [
                n for n in re.findall(r"_SEP|\$END|__ANON|\b[A-Z]{3,}_|Token\(", d.message + d.help) if n not in text
            ]
        return [d.code for d in problem.diagnostics]
    return []


@functools.cache
def _blocks():
    """The blocks of all examples, small enough to be parsed often: each with the name of its file."""
    return [
        (block, path.name)
        for path in EXAMPLES
        for block in _BLOCK.split(path.read_text(encoding="utf-8"))
        if block.strip()
    ]


def _params():
    return [
        pytest.param(k, id=f"{name}:{block.split('(')[0].split('{')[0].strip()[:30]}")
        for k, (block, name) in enumerate(_blocks())
    ]


def _tokens(block):
    return [m for m in _TOKEN.finditer(block) if not m[0].startswith("#")]


def _sampled(tokens, block, budget):
    """All tokens of a short block, every n-th of a long one."""
    step = max(1, len(tokens) * len(block) // (budget * 1000))
    return tokens[::step]


@functools.cache
def _first(budget, width, every=1):
    """Of each block so many tokens side by side, where no block before had the like: the same kind of block, lines of the same form, the
    same places in them.

    Lines are of one form where only names, numbers and texts differ: what is missing from them is missing alike.
    """
    words = {t.pattern.value for t in parser()[0].terminals if isinstance(t.pattern, PatternStr)}
    seen = set()
    found = {}
    for number, (block, _) in list(enumerate(_blocks()))[::every]:
        lines = block.split("\n")
        starts = list(itertools.accumulate((len(line) + 1 for line in lines), initial=0))
        forms = [tuple(_form(m[0], words) for m in _TOKEN.finditer(line)) for line in lines]

        def place(token, block=block, starts=starts, forms=forms):
            k = bisect.bisect_right(starts, token.start()) - 1
            return forms[k], len(_TOKEN.findall(block, starts[k], token.start()))

        tokens = _sampled(_tokens(block), block, budget)
        kept = found[number] = []
        for side_by_side in zip(*(tokens[k:] for k in range(width)), strict=False):
            key = block.split(None, 1)[0], *map(place, side_by_side)
            if key not in seen:
                seen.add(key)
                kept.append(side_by_side)
    return found


def _form(text, words):
    if text in words:
        return text
    return next((sort for sort, first in _SORTS if first.match(text)), text)


@pytest.mark.parametrize("number", _params())
def test_one_token_deleted(number):
    block, _ = _blocks()[number]
    assert answer(block) == []
    for (token,) in _first(500, 1)[number]:
        answer(block[: token.start()] + " " + block[token.end() :])


@pytest.mark.parametrize("number", _params()[::3])
def test_one_token_doubled_or_swapped(number):
    block, _ = _blocks()[number]
    for first, second in _first(60, 2, every=3)[number]:
        answer(f"{block[: first.end()]} {block[first.start() :]}")
        answer(
            block[: first.start()] + second[0] + block[first.end() : second.start()] + first[0] + block[second.end() :]
        )


def test_a_file_cut_anywhere_is_told_where_it_ends():
    text = EXAMPLES[0].read_text(encoding="utf-8")
    for end in range(1, len(text), 37):
        found = answer(text[:end])
        if text.count("{", 0, end) > text.count("}", 0, end):
            assert found


_PIECES = st.sampled_from(
    ["model", "program", "p", "for", "m", "{", "}", "(", ")", "[", "]", "@", "R", "S(0)", "=", ":", ",", ";", "\n", "#", '"',
     "x", "0.5", "3", "..", "...", "->", "repeat", "in", "input", "device", "16 GiB", "op", "attr", "*", "-", "?", "sum", "'", "é", "\t"]
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_PIECES, max_size=40).map(" ".join))
def test_pieces_in_any_order(text):
    answer(text)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(max_size=60))
def test_any_text(text):
    answer(text)


def test_many_errors_are_cut_off_and_quick():
    assert len(answer("model m {\n" + "    x = = 3\n" * 5000 + "}\n")) == MOST_ERRORS
    assert answer("}" * 20000) != []
    assert answer("x\n" * 20000) != []
    assert answer('"' * 20001) != []
