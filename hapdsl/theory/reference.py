"""The reference of the theory: for each operator its notation, rules, costs and gradient, made from the declarations.

    python -m hapdsl.theory.reference docs/theory.md     # writes the page
    hapdsl explain matmul                                # one entry, at the terminal

`rows` derives the rules of an operator from its indices alone, before there are shapes; `theory.rules` derives those of a call.
A test holds the two against each other.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import Report
from hapdsl.lang.files import write_file
from hapdsl.lang.inline import inline
from hapdsl.lang.print import to_text
from hapdsl.theory.library import blocks, standard
from hapdsl.theory.ops import NO_GRADIENT, OpDecl, declare, index_names

GROUPS = {
    "linear": "Products",
    "pointwise": "Element by element",
    "reduce": "Reductions, normalisation and losses",
    "normalize": "Normalisation over batches and groups",
    "attention": "Attention, masks, rotary positions",
    "convolution": "Convolution, pooling, upsampling",
    "choose": "Comparisons, choices, sums along a dim",
    "layout": "Moving elements about",
    "moe": "Mixtures of experts",
    "optimize": "Updates",
    "imported": "What modules of PyTorch bring along",
}
_NOTATION = "an index of the output", "an index that the output lacks"


@dataclass(frozen=True)
class Row:
    """One rule: a placement for each operand and output, `S(k)` where the dim that holds index k is cut. `cut` is that index,
    empty where none is; `where` is a condition on the shapes."""

    cut: str
    operands: tuple[str, ...]
    outputs: tuple[str, ...]
    where: str = ""

    @property
    def says(self) -> str:
        what = f"cut {self.cut}" if self.cut else "partial sums" if any("P" in o for o in self.operands) else "whole"
        return f"{what}, where {self.where}" if self.where else what


@dataclass(frozen=True)
class Entry:
    """What the reference says of one operator. `facts` are pairs of a word and what it says."""

    name: str
    signature: str
    meaning: str
    notes: tuple[str, ...]
    operands: tuple[str, ...]
    outputs: tuple[str, ...]
    rules: tuple[Row, ...]
    facts: tuple[tuple[str, str], ...]

    def as_json(self) -> dict:
        return asdict(self) | {"facts": dict(self.facts)}


# -- rules before there are shapes ---------------------------------------------------


def rows(decl: OpDecl) -> tuple[Row, ...]:
    """The rules of an operator by its indices, the replicated one first; a star stands for each of its dims."""
    operands, outputs = len(decl.operands), len(decl.results)
    found = [Row("", ("R",) * operands, ("R",) * outputs)]
    found += _of_notation(decl) if decl.notation else [row for name in _indices(decl) for row in _cut(decl, name)]
    for group in decl.linear:
        found.append(Row("", tuple("P" if o.name in group else "R" for o in decl.operands), ("P",) * outputs))
    if decl.notation and not decl.linear:
        found.append(Row("", ("one P, the others R",), ("P",)))
    return tuple(found)


def _of_notation(decl: OpDecl) -> list[Row]:
    """Which indices there are stands in an attribute of each call."""
    kept = Row(_NOTATION[0], ("S, where it stands",), ("S",))
    return [kept, Row(_NOTATION[1], ("S, where it stands",), ("P",))] if decl.operands[0].variadic else [kept]


def _indices(decl: OpDecl) -> list[str]:
    return list(dict.fromkeys(name for dims in decl.patterns for name in index_names(dims)))


def _cut(decl: OpDecl, name: str) -> Iterator[Row]:
    """The rule that cuts one index, if there is one. Behind others in a merged dim it is cut where these have length 1."""
    if name in decl.wholes:
        return
    before: dict[str, None] = {}
    sides: list[list[str]] = []
    for side in ([o.dims for o in decl.operands], [r.dims for r in decl.results]):
        placed = []
        for dims in side:
            holding = [i for i in dims if name in i.names]
            if len(holding) > 1:
                return
            for i in holding:
                before.update(dict.fromkeys(i.names[: i.names.index(name)]))
            placed.append(f"S({shown(holding[0], name)})" if holding else "R")
        sides.append(placed)
    operands, outputs = sides
    if any(b.isdigit() and b != "1" for b in before):
        return
    if "R" in outputs and name not in decl.sums:
        return
    star = any(i.star and name in i.names for dims in decl.patterns for i in dims)
    where = " = ".join([*(b for b in before if not b.isdigit()), "1"]) if before else ""
    yield Row(f"*{name}" if star else name, tuple(operands), tuple("P" if p == "R" else p for p in outputs), where)


def shown(index: nodes.Index, name: str) -> str:
    """An index as rules name it: with its star."""
    return f"*{name}" if index.star else name


# -- entries ---------------------------------------------------------------------------


@cache
def entries() -> dict[str, Entry]:
    """An entry for each operator of the standard theory."""
    return {op.name: entry(op) for ops in blocks().values() for op in ops}


def entry(op: nodes.Op) -> Entry:
    """The entry of a declaration; its meaning is the comment above it."""
    decl = declare(op, Report())
    meaning, notes = _comment(op)
    empty = to_text(nodes.Op(op.name, op.operands, op.attributes, op.results, ()))
    return Entry(
        name=op.name,
        signature=empty.removeprefix("op ").removesuffix(" { }"),
        meaning=meaning or _gradient_of(op.name),
        notes=notes,
        operands=tuple(("*" if o.variadic else "") + o.name + ("?" if o.optional else "") for o in op.operands),
        outputs=tuple(r.name for r in op.results),
        rules=rows(decl),
        facts=tuple(_facts(op, decl)),
    )


def _comment(op: nodes.Op) -> tuple[str, tuple[str, ...]]:
    """The first sentence of the comment above an operator, and the paragraphs behind it."""
    last = max((k for k, line in enumerate(op.leading) if line == nodes.BLANK), default=-1)
    paragraphs = [p for p in "\n".join(op.leading[last + 1 :]).split("\n\n") if p.strip()]
    if not paragraphs:
        return "", ()
    first = " ".join(paragraphs[0].split("\n"))
    sentence = re.split(r"(?<=[.:])\s+(?=[A-Z(])", first, maxsplit=1)
    return sentence[0], (*sentence[1:], *paragraphs[1:])


def _gradient_of(name: str) -> str:
    """What a gradient operator is, by the operators whose gradients call it."""
    for decl in standard().values():
        for rule in decl.grads:
            if isinstance(rule.value, nodes.Call) and rule.value.function == name:
                return f"The gradient of `{decl.name}` with respect to {_and(rule.targets)}."
    return ""


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _facts(op: nodes.Op, decl: OpDecl) -> Iterator[tuple[str, str]]:
    if decl.notation:
        yield "index notation", f"in `{decl.notation}`"
        yield "flops", "`2 *` the product of the extents of all indices" if decl.operands[0].variadic else "`0`"
        yield "bytes", "all operands read, the output written"
    else:
        yield "flops", f"`{inline(decl.flops)}`" if decl.flops is not None else "`0`"
        read = " + ".join(_elements(o) for o in op.operands)
        yield "bytes", f"`{read}` elements read, `{' + '.join(_elements(r) for r in op.results)}` written"
    if decl.tiled:
        yield "in tiles", ", ".join(f"`{inline(dim)}`" for dim in decl.tiled)
    for index, value in decl.at.items():
        yield "position", f"`{index}` stands at `{inline(value)}`"
    for operand, value in decl.reads.items():
        yield "reads", f"`{inline(value)}` elements of `{operand}`"
    for output, value in decl.order.items():
        yield "order", f"the dims of `{output}` by `{inline(value)}`"
    for index, value in decl.sizes.items():
        yield "extent", f"`{index} = {inline(value)}`"
    yield (
        "gradient",
        "; ".join([*(f"`{inline(r)}`" for r in decl.grads), *(f"`{o} = {NO_GRADIENT}`" for o in sorted(decl.stopped))])
        or ("by its notation" if decl.notation else "none"),
    )
    without = [(f"where `{name}` is 0", rules) for name, rules in decl.without.items()]
    for word, instead in (("in training", decl.training), ("in evaluation", decl.evaluation), *without):
        if instead:
            yield word, "; ".join(f"`{inline(r)}`" for r in instead)
    given = {n: d for n, d in decl.attributes.items() if n not in {o.name for o in op.operands}}
    if given:
        yield "attributes", ", ".join(f"`{n}`" if d is None else f"`{n} = {inline(d)}`" for n, d in given.items())
    if decl.dtypes:
        yield "dtypes", ", ".join(f"`{n}`: {v}" for n, v in decl.dtypes.items())
    if decl.torch:
        yield "kernel", f"`{decl.torch}`"


def _elements(tensor: nodes.Operand | nodes.Result) -> str:
    return " * ".join(n for i in tensor.dims for n in i.names) or "1"


# -- pages ------------------------------------------------------------------------------


def plain(found: Entry) -> str:
    """The entry for a terminal."""
    lines = [f"{found.signature}", "", found.meaning.replace("`", "")]
    for note in found.notes:
        lines += ["", note]
    table = [["", *found.operands, "->", *found.outputs]]
    table += [[r.says, *_wide(r.operands, found.operands), "->", *r.outputs] for r in found.rules]
    widths = [max(len(row[k]) for row in table) for k in range(len(table[0]))]
    lines += ["", *("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in table), ""]
    width = max(len(name) for name, _ in found.facts)
    lines += [f"{name.ljust(width)}  {says.replace('`', '')}" for name, says in found.facts]
    return "\n".join(lines) + "\n"


def _wide(placements: Sequence[str], operands: Sequence[str]) -> list[str]:
    return [*placements, *[""] * (len(operands) - len(placements))]


def markdown(found: Entry) -> str:
    """The entry for the page."""
    lines = [f"### {found.name}", "", f"`{' '.join(found.signature.split())}`", "", found.meaning]
    for note in found.notes:
        code = all(re.match(r"\w[\w, ]* = ", line) for line in note.split("\n"))
        lines += ["", *(f"    {line}" for line in note.split("\n"))] if code else ["", " ".join(note.split("\n"))]
    head = ["rule", *(f"`{o}`" for o in found.operands), *(f"→ `{o}`" for o in found.outputs)]
    lines += ["", *_row(head), "|---" * len(head) + "|"]
    for rule in found.rules:
        says = f"{rule.says.split(', where')[0]}" + (f", where `{rule.where}`" if rule.where else "")
        says = says.replace(rule.cut, f"`{rule.cut}`", 1) if rule.cut and rule.cut not in _NOTATION else says
        lines += _row(
            [says, *(f"`{p}`" for p in _wide(rule.operands, found.operands)), *(f"`{p}`" for p in rule.outputs)]
        )
    lines += ["", "| | |", "|---|---|", *(f"| {name} | {says} |" for name, says in found.facts), ""]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(c if c != "``" else "" for c in cells) + " |"]


INTRODUCTION = """\
# The theory

Every operator that models and programs may call, made from the declarations in `hapdsl/theory/*.hap` (`make theory`). `hapdsl explain matmul` prints
an entry at the terminal; [language.md](language.md#operators) says how to declare your own.

- `x[*b, m, k]` is a tensor whose dims hold the indices `*b` (any number of dims), `m` and `k`. `x[]` is a scalar, `x[...]?` may be left out, `*x[...]` is one
  operand or more, `lr[] = 0.01` may be a number. A merged dim `(h e)` holds `h` major and `e` minor.
- A *rule* says how operands lie on the devices and what comes out: `R` replicated, `S(k)` cut along the dim that holds index `k` (programs write the
  dim's position: `S(0)`), `P` partial sums. `S(*b)` is a rule for each dim of the star. No other rules hold. An index of length 1 isn't cut, and an operand's dim of 1 that
  stretches stays whole.
- *Flops* are for whole extents; a device pays for its part of what is cut. *Bytes* are elements times the size of their dtype. What both cost: [cost.md](cost.md).
- A *gradient* is written with the operators of this page; `y.grad` is the gradient of the output `y`.
"""


def page() -> str:
    """The whole reference, as Markdown."""
    found = entries()
    groups = blocks()
    order = [*GROUPS, *(g for g in groups if g not in GROUPS)]
    parts = [INTRODUCTION]
    for group in order:
        parts.append(
            f"[{GROUPS.get(group, group)}](#{_anchor(GROUPS.get(group, group))}): "
            + ", ".join(f"[{op.name}](#{op.name})" for op in groups[group])
            + "\n"
        )
    for group in order:
        parts.append(f"## {GROUPS.get(group, group)}\n")
        parts += [markdown(found[op.name]) for op in groups[group]]
    return "\n".join(parts)


def _anchor(title: str) -> str:
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        write_file(Path(sys.argv[1]), page())
    else:
        sys.stdout.write(page())
