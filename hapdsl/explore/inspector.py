"""What the inspector says of a line, as words: the triple, each value with its makers and readers, flops, the model's line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hapdsl.explore.describe import Piece
from hapdsl.lang.amounts import in_bytes

Facts = dict[str, Any]


def triple(facts: Facts) -> list[Piece]:
    """`{h@S(0), w2@R} matmul {z@S(0)}`."""
    method = f" ({facts['method']})" if facts["method"] else ""
    return [
        ("\n{", "dim"), (_some(facts["needs"]), ""), ("} ", "dim"), (f"{facts['op']}{method}", "strong"), (" {", "dim"), (_some(facts["gives"]), ""), ("}\n", "dim"),
    ]  # fmt: skip


def inspector(facts: Facts) -> list[Piece]:
    """All that is known of the line's first instruction; nothing where no instruction stands there."""
    if not facts.get("found"):
        return []
    found = triple(facts)
    where = f"{facts['section']}"
    if facts["turns"] > 1:
        where += f", {facts['turns']} turns; the first is shown"
    if facts["times"] > 1:
        where += f", {facts['times']} microbatches"
    found.append((f"{where}\n", "dim"))
    for value in facts["values"]:
        found += _value(value, facts)
    if facts["more"]:
        found.append((f"and {facts['more']} values more\n", "dim"))
    if facts["flops"] and max(facts["flops"]) > 0:
        found += [("\nflops  ", "dim"), (f"{_grouped([in_flops(f) for f in facts['flops']], facts['devices'])}\n", "")]
    source = facts["source"]
    if source is not None:
        found += [
            ("\nmodel  ", "dim"),
            (f"{source['text']}\n", ""),
            (f"       {_short(source['file'])}:{source['line']}  f12 goes there\n", "dim"),
        ]
    return found


def _value(v: Facts, facts: Facts) -> list[Piece]:
    dims = [
        f"{n}{f' {c}' if c else ''}" for n, c in zip(v["shape"], v["classes"] or [None] * len(v["shape"]), strict=False)
    ]
    found: list[Piece] = [
        (f"\n{v['value']}  ", "strong"),
        (f"{v['dtype']}[{', '.join(dims)}], {in_bytes(v['bytes'])}\n", ""),
    ]
    if v["pieces"]:
        each = [f"{'×'.join(map(str, p))} {in_bytes(b)}" for p, b in zip(v["pieces"], v["piece_bytes"], strict=True)]
        found += [("  on   ", "dim"), (f"{_grouped(each, facts['devices'])}\n", "")]
    if v["value"] in facts["gives"]:
        pass
    elif v["made"] is not None:
        found += [("  from ", "dim"), (f"line {v['made']['line']} {v['made']['op']}\n", "")]
    readers = [f"{r['line']} {r['op']}" for r in v["readers"]]
    if readers:
        more = f" and {v['more_readers']} more" if v["more_readers"] else ""
        word = "  read " if v["value"] in facts["gives"] else "  also "
        found += [(word, "dim"), (f"{', '.join(readers)}{more}\n", "")]
    elif v["value"] in facts["gives"]:
        found += [("  read ", "dim"), ("it is what the program is for\n" if v["goal"] else "by nobody\n", "")]
    return found


def _some(words: Sequence[str], most: int = 6) -> str:
    return ", ".join(words) if len(words) <= most else f"{', '.join(words[:most])}, … {len(words) - most} more"


def _grouped(words: Sequence[str], names: Sequence[str]) -> str:
    """Equal neighbours once; all equal: said once."""
    if len(set(words)) == 1:
        return f"each {words[0]}" if len(words) > 1 else words[0]
    parts, start = [], 0
    for d in range(1, len(words) + 1):
        if d == len(words) or words[d] != words[start]:
            label = names[start] if d - start == 1 else f"{names[start]} … {names[d - 1]}"
            parts.append(f"{words[start]} {label}")
            start = d
    return _some(parts)


def in_flops(flops: float) -> str:
    """Three digits: `1.56 MFLOP`."""
    for unit, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if flops >= size:
            return f"{flops / size:.3g} {unit}FLOP"
    return f"{flops:.0f} FLOP"


def _short(file: str) -> str:
    return file.rpartition("/")[2]
