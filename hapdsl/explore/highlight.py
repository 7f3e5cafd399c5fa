"""Colours of the language, line by line, by regular expressions: fast at any length, since no line looks at another."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache

from rich.cells import cell_len

_TOKEN = re.compile(
    r"""
      (?P<comment>\#.*)
    | (?P<text>"(?:[^"\\]|\\.)*"?)
    | @\s*(?P<placed>\((?:[^()]|\([^()]*\))*\)?|S\s*\(\s*\d+\s*\)|[A-Za-z?]\w*|\?)
    | (?P<hole>\.\.\.|\?)
    | (?P<number>(?<![\w.])\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<name>\.?[A-Za-z_]\w*(?:\.[A-Za-z0-9_]+)*)
    """,
    re.VERBOSE,
)
_AXIS = re.compile(r"S\s*\(\s*(\d+)\s*\)|R|P|\?")
_CALLED = re.compile(r"\s*\(")

KEYWORDS = frozenset(
    "import def op model cluster program for on input param frozen buffer master init output metric train group clip with repeat in reverse return "
    "microbatch virtual state forward backward update shares ratio pin free fingerprint mesh over uplink device node network measured sum whole linear size "
    "flops tiled grad training evaluation without torch dtype notation at order reads attr as true false".split()
)
# Words that are names as well are keywords only at the start of a line.
_ONLY_FIRST = frozenset(
    "input param sum size at order reads update free pin mesh whole linear grad node device model".split()
)
_BETWEEN = frozenset("for on with in over uplink as master init clip reverse true false attr virtual state".split())
TYPES = frozenset("f64 f32 bf16 f16 i64 i32 i8 bool".split())


_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def harmless(words: str) -> str:
    """Words as a terminal may be given them: it would obey control characters. Each has one sign in its place (␛), tabs and line ends stay."""
    return words if words.isprintable() else _UNSEEN.sub(_sign, words)


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "�"


def widest(lines: Collection[str], tab: int) -> int:
    """Cells of the widest of some lines: asked after every key, so plain letters are only counted."""
    text = "".join(lines)
    if text.isascii() and "\t" not in text:
        return max(map(len, lines), default=0)
    return max((len(n) if n.isascii() and "\t" not in n else cell_len(n.expandtabs(tab)) for n in lines), default=0)


@lru_cache(maxsize=20_000)
def spans(line: str) -> tuple[tuple[int, int, str], ...]:
    """(start, end, kind) of what is coloured in a line; kinds are keys of the palettes."""
    return tuple(_spans(line))


def _spans(line: str) -> Iterator[tuple[int, int, str]]:
    indent = len(line) - len(line.lstrip())
    for found in _TOKEN.finditer(line):
        kind = found.lastgroup or ""
        start, end = found.span(kind)
        if kind == "placed":
            yield from ((start + m.start(), start + m.end(), _placement(m)) for m in _AXIS.finditer(found[kind]))
        elif kind != "name":
            yield start, end, kind
        else:
            word = _word(found["name"], start == indent, _CALLED.match(line, end) is not None, line[:start])
            if word:
                yield start, end, word


def _word(name: str, first: bool, called: bool, before: str) -> str:
    if name in TYPES:
        return "type"
    if name in KEYWORDS and (
        (first and not called)
        or name in _BETWEEN
        or (name not in _ONLY_FIRST and not called and before.rstrip().endswith(("{", ";")))
    ):
        return "keyword"
    if called:
        return "collective" if name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all") else "call"
    return ""


def _placement(found: re.Match[str]) -> str:
    """`S(1)` is the kind `S1`: each dim has a shade, as in drawings."""
    if found[1] is not None:
        return f"S{min(int(found[1]), 4)}"
    return "hole" if found[0] == "?" else found[0]


DARK = {
    "comment": "italic #7d8590", "text": "#a5d6ff", "number": "#d2a8ff", "keyword": "bold #ff7b72", "type": "#ffa657",
    "call": "#d2d9e3 bold", "collective": "bold #f2cc60", "hole": "bold #f778ba",
    "R": "#9aa4b2", "P": "#ffb066", "S0": "#79b8ff", "S1": "#7ee2a8", "S2": "#c3b1ff", "S3": "#76e3ea", "S4": "#ff9bd2",
}  # fmt: skip
LIGHT = {
    "comment": "italic #6e7781", "text": "#0a3069", "number": "#6639ba", "keyword": "bold #cf222e", "type": "#953800",
    "call": "bold #24292f", "collective": "bold #7d4e00", "hole": "bold #bf3989",
    "R": "#57606a", "P": "#b35900", "S0": "#0550ae", "S1": "#116329", "S2": "#6639ba", "S3": "#0b6e75", "S4": "#99286e",
}  # fmt: skip

# What words on the screen are like (`describe.Piece`), on dark and on light ground.
MANNERS = {
    True: {"error": "bold #ff7070", "warning": "bold #e5c07b", "good": "#7ee2a8", "strong": "bold", "dim": "#8b949e"},
    False: {"error": "bold #c0102a", "warning": "bold #8a5a00", "good": "#116329", "strong": "bold", "dim": "#6e7781"},
}
