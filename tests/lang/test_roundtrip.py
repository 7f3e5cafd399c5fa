"""Printing and parsing are inverse, for every kind of node, and comments survive."""

from __future__ import annotations

import dataclasses
import random
import re

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from hapdsl.lang import comments, nodes
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from tests.lang import tree_strategies
from tests.lang.helpers import EXAMPLES, IDENTITY
from tests.lang.tree_strategies import file

_relaxed = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


@_relaxed
@given(file)
def test_parse_undoes_print(tree):
    text = to_text(tree)
    again = parse(text)
    assert again == tree
    # Numbers compare across types; what is printed must not.
    assert repr(again) == repr(tree)
    assert to_text(again) == text


@_relaxed
@given(file)
def test_each_comment_is_in_the_text_once(tree):
    written = [c.text for c in comments.find(to_text(tree))]
    assert sorted(written) == sorted(_comments(tree))


def _comments(node):
    found = []
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.name in ("leading", "closing"):
            found += [c for c in value if c != nodes.BLANK]
        elif field.name == "trailing":
            found += [] if value is None else [value]
        elif isinstance(value, tuple):
            found += [c for child in value if isinstance(child, nodes.Node) for c in _comments(child)]
    return found


@_relaxed
@given(file)
def test_every_kind_of_node_has_a_text_of_its_own(tree):
    """`to_text` of any part of a tree stands in the text of the whole, up to line breaks and alignment."""
    whole = _squeezed(to_text(tree))
    for node in _parts(tree):
        shown = _squeezed(to_text(node))
        assert shown in whole


def _squeezed(text):
    return re.sub(r"\s", "", text)


def _parts(node):
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        for child in value if isinstance(value, tuple) else (value,):
            if isinstance(child, nodes.Node):
                yield child
                yield from _parts(child)


@pytest.mark.parametrize("path", sorted(IDENTITY.glob("*.hap")), ids=lambda p: p.name)
def test_identity_files_print_back_unchanged(path):
    text = path.read_text(encoding="utf-8")
    assert to_text(parse(text, str(path))) == text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_examples_survive_formatting(path):
    tree = parse(path.read_text(encoding="utf-8"), str(path))
    text = to_text(tree)
    assert parse(text) == tree
    assert to_text(parse(text)) == text
    # A longer line has no bracket that it could be broken in.
    for line in text.split("\n"):
        assert len(line) <= 140 or "#" in line or not re.search(r"[(\[{][^()\[\]{}]{25,}[)\]}]", line)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: f"{p.parent.name}/{p.name}")
@pytest.mark.parametrize("seed", range(3))
def test_blanks_and_line_breaks_do_not_matter(path, seed):
    """The same text with other blanks, broken inside brackets, is the same tree."""
    text = path.read_text(encoding="utf-8")
    assert _bare(parse(_shaken(text, random.Random(seed)))) == _bare(parse(text))


_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|#[^\n]*|\n|[ \t]+|\.\.\.|\.\.|->|//|[\w.]+(?:/s)?|.')


def _shaken(text, rng):
    out, depth = [], 0
    for token in _TOKEN.findall(text):
        if token.isspace() and token != "\n":
            out.append(rng.choice([" ", "  ", "\t"]))
            continue
        depth += token in ("(", "[")
        depth -= token in (")", "]")
        out.append(token)
        if token in ("(", "[", ",") and depth:
            out.append(rng.choice(["", " ", "\n", " # note\n\n   "]))
        elif token == "\n":
            out.append(rng.choice(["", "\n", "   \n\t", " # note\n"]))
        elif token in ("=", "{", "@", ")", "]"):
            out.append(rng.choice(["", " "]))
    return "".join(out).replace("\n", rng.choice(["\n", "\r\n", "\r"]))


def _bare(node):
    """Without comments and gaps."""
    changes = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.name in ("leading", "closing"):
            changes[field.name] = ()
        elif field.name in ("trailing", "gap"):
            changes[field.name] = None
        elif isinstance(value, tuple):
            changes[field.name] = tuple(_bare(v) if isinstance(v, nodes.Node) else v for v in value)
    return dataclasses.replace(node, **changes)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63) + 1, 2**63 - 1))
def test_numbers_survive(value):
    tree = parse(f"model m {{\n    x = {to_text(nodes.Number(value))}\n}}\n")
    found = tree.items[0].body[0].value.value
    assert found == value
    assert type(found) is type(value)


def test_the_generated_trees_hold_every_kind_of_node():
    seen = set()

    def collect(tree):
        seen.update(type(part) for part in (tree, *_parts(tree)))

    strategies = (
        "item",
        "op",
        "op_statement",
        "model_statement",
        "def_statement",
        "cluster_statement",
        "program_statement",
        "operand",
    )
    abstract = {nodes.Node, nodes.Statement, nodes.Block, nodes.File}
    kinds = {k for k in vars(nodes).values() if isinstance(k, type) and issubclass(k, nodes.Node)} - abstract
    few = settings(max_examples=50, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    for turn in range(4):  # the other property tests draw 200; mostly 50 or 100 do
        for kind in strategies if kinds - seen else ():
            seed(turn)(few(given(getattr(tree_strategies, kind))(collect)))()
    assert kinds - seen == set()
