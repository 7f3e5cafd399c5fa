"""Syntax errors in words: what was expected, what was found, and a way out for the usual slips."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hapdsl.lang.near import near

BLOCKS = ("import", "def", "op", "model", "device", "cluster", "program")

_OPERATORS = {"+", "-", "*", "/", "//", "%"}
_EXPRESSION = {"NUMBER", "STRING", "NAME", "true", "false", "[", "("}
_PLACEMENT = {"S", "NAME", "?", "("}
_WORDS = {
    "NAME": "a name", "TURN_NAME": "a name", "PATTERN": "a name", "NUMBER": "a number", "STRING": "a text in quotes", "UNIT": "a unit",
    "_SEP": "the end of the line", "$END": "the end of the file",
}  # fmt: skip
_MOST_WORDS = 6


@dataclass(frozen=True, slots=True)
class Fault:
    """One place where the text leaves the grammar.

    `kind` is the terminal found there ("" for a character that begins none, "$END" at the end), `found` its
    text, `accepted` what would do: keywords and signs as themselves, other terminals by name. `words` are the words and signs of the statement before it, `place`
    says which kind of block it stands in ("" for the file itself).
    """

    kind: str
    found: str
    accepted: frozenset[str]
    words: tuple[str, ...]
    place: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What is said of a fault."""

    code: str
    message: str
    help: str = ""


def explain_fault(fault: Fault, literals: Collection[str]) -> Finding:
    """The code, message and hint for a fault; `literals` are all keywords and signs of the language."""
    for rule in (_quote, _character, _sign, _not_finite, _keyword_as_name, _placement, _unknown_word):
        finding = rule(fault, literals)
        if finding is not None:
            return finding
    return Finding("HAP101", f"expected {expected(fault.accepted, fault.place)}, found {describe(fault.kind, fault.found)}", _hint(fault))  # fmt: skip


def expected(accepted: Collection[str], place: str) -> str:
    """What would do, in words: "`,`, `)` or an operator"."""
    left = set(accepted)
    words: list[str] = []
    if left >= _PLACEMENT:
        words.append("a placement (R, S(dim), P or ?)")
        left -= _PLACEMENT
    if left >= _EXPRESSION:
        words.append("an expression")
        left -= {*_EXPRESSION, "-"}
    if left >= _OPERATORS:
        words.append("an operator")
        left -= _OPERATORS
    keywords = {t for t in left if t.isalpha() and t.islower()}
    if len(keywords) > 3:
        words.append(f"a statement of {_a(place)}" if place else f"a block ({', '.join(BLOCKS)})")
        left -= {*keywords, "NAME", "TURN_NAME", "...", "_SEP", "$END"}
    words += sorted({_WORDS[t] for t in left if t in _WORDS and t != "_SEP"})
    words += sorted(f"`{t}`" for t in left if t not in _WORDS)
    if "_SEP" in left:
        words.append(_WORDS["_SEP"])
    if len(words) > _MOST_WORDS:
        words = [*words[: _MOST_WORDS - 1], "something else"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}" if words else "nothing more"


def describe(kind: str, found: str) -> str:
    """What was found, in words."""
    if kind in ("_SEP", "$END"):
        return _WORDS[kind]
    shown = found if len(found) <= 40 else found[:40] + "…"
    return shown if kind == "STRING" else f"`{shown}`"


def _hint(fault: Fault) -> str:
    before = fault.words[-1] if fault.words else ""
    if fault.found in ("//", "/") and not fault.words:
        return "a comment starts with #"
    if fault.found == "=" and "=" in fault.words:
        return "one `=` binds a name; there are no comparisons"
    if (before == "S" and "(" in fault.accepted) or (before == "s" and fault.found in ("(", "[")):
        return "a shard names its dim: S(0)"
    if fault.found == "*" and before == "*":
        return "there is no `**`: multiply, or hand the number in as a parameter"
    if "UNIT" in fault.accepted:
        return "quantities carry units: 14 TFLOP/s, 16 GiB, 10 us"
    if fault.kind == "_SEP" and "{" in fault.accepted:
        return "the `{` stands on the line of its header"
    if fault.found == "{" and "_SEP" in fault.accepted:
        return "this statement has no body"
    if {"_SEP", "}"} <= fault.accepted and "{" not in fault.words and fault.found not in (")", "]", "}", ","):
        return "one statement a line; `;` parts two"
    return ""


# -- the usual slips, each with a code of its own -----------------------------


def _quote(fault: Fault, literals: Collection[str]) -> Finding | None:
    if fault.kind == "" and fault.found == '"':
        return Finding("HAP106", "this text isn't closed", 'a text ends with `"` on the same line')
    if fault.kind == "" and fault.found == "'":
        return Finding("HAP102", "a text stands in double quotes", 'write "…"')
    return None


def _character(fault: Fault, literals: Collection[str]) -> Finding | None:
    if fault.kind:
        return None
    char = fault.found
    if char == ".":
        help = "a number has digits on both sides of its point: 0.5, 1.0"
        return Finding("HAP102", "a `.` stands alone here", help)
    if char in "<>!&|^~":
        return Finding("HAP102", f"`{char}` has no place in the language", "expressions know + - * / // % and calls")
    if char.isalpha():
        return Finding("HAP102", f"`{char}` can't stand in a name", "names are of ASCII letters, digits, _ and dots")
    shown = char if char.isprintable() and not char.isspace() else f"U+{ord(char):04X}"
    return Finding("HAP102", f"the character {shown} has no place in the language", "remove it, or put it into a text or comment")  # fmt: skip


def _sign(fault: Fault, literals: Collection[str]) -> Finding | None:
    if fault.found == "=" and ":" in fault.accepted and fault.words[0] == "without":
        return Finding("HAP107", "an attribute has `:` before what stands for an output", f"write `without {fault.words[1]} : y = x`")  # fmt: skip
    if fault.found == "=" and ":" in fault.accepted:
        kind, names = fault.words[0], " ".join(fault.words[1:]).replace(" ,", ",")
        return Finding("HAP107", "a declaration has `:` before its type", f"write `{kind} {names} : f32[…]`")
    if fault.found == ":" and "=" in fault.accepted:
        return Finding("HAP107", "a value is given with `=`, not with `:`", "write `name = value`")
    return None


def _not_finite(fault: Fault, literals: Collection[str]) -> Finding | None:
    """`nan GB/s`: read as a name, which no unit follows."""
    in_cluster = fault.place == "cluster" or fault.words[:1] == ("device",)
    for word in (fault.found, *fault.words[-1:]):
        if in_cluster and word.lower() in ("nan", "inf", "infinity"):
            return Finding(
                "HAP101", f"`{word}` is no quantity", "quantities are finite numbers with a unit: 14 TFLOP/s"
            )
    return None


def _keyword_as_name(fault: Fault, literals: Collection[str]) -> Finding | None:
    if len(fault.words) != 1 or fault.found not in ("=", "@", ",") or fault.words[0] not in literals:
        return None
    word = fault.words[0]
    if not word.isalpha():
        return None
    message = f"`{word}` is a word of the language where it begins a statement"
    return Finding("HAP109", message, f"another name for it: {word}_ or {word}1")


def _placement(fault: Fault, literals: Collection[str]) -> Finding | None:
    if "@" not in fault.accepted or not fault.words or fault.kind in ("NAME", "NUMBER", "STRING", "LBRACE"):
        return None
    name = fault.words[-1]
    help = f"say how it lies on the devices: {name}@R, {name}@S(0), {name}@P or {name}@?"
    return Finding("HAP108", f"{name} has no placement", help)


def _unknown_word(fault: Fault, literals: Collection[str]) -> Finding | None:
    """A statement that begins with no known word, or with one misspelt."""
    starters = [t for t in fault.accepted if t.isalpha() and t.islower()]
    if fault.kind == "NAME" and not fault.words and "NAME" not in fault.accepted and len(starters) > 3:
        where = _a(fault.place or "file")
        help = near(fault.found, starters, f"{where} holds: {', '.join(_in_order(starters))}")
        return Finding("HAP114", f"{where} has no statement `{fault.found}`", help)
    if len(fault.words) == 1 and fault.words[0] not in literals and fault.kind in ("NAME", "LBRACE", "NUMBER", "STRING"):  # fmt: skip
        help = near(fault.words[0], STATEMENTS.get(fault.place, ()))
        if help:
            return Finding("HAP114", f"{_a(fault.place)} has no statement `{fault.words[0]}`", help)
    return None


STATEMENTS: dict[str, tuple[str, ...]] = {
    "def": ("input", "param", "frozen", "buffer", "repeat", "return"),
    "model": ("input", "param", "frozen", "buffer", "repeat", "microbatch", "output", "metric", "train", "group"),
    "op": ("sum", "whole", "linear", "size", "flops", "tiled", "grad", "training", "evaluation", "without", "torch", "dtype", "notation", "at", "order", "reads"),
    "cluster": ("device", "node", "network", "measured"),
    "program": (
        "mesh", "shares", "ratio", "fingerprint", "pin", "forward", "backward", "update", "repeat", "microbatch", "free",
    ),
}  # fmt: skip


def _a(place: str) -> str:
    return f"an {place}" if place == "op" else f"a {place}"


def _in_order(starters: Sequence[str]) -> list[str]:
    known = [*BLOCKS, *(word for words in STATEMENTS.values() for word in words)]
    return sorted(set(starters), key=lambda word: known.index(word) if word in known else len(known))
