"""Shares as a person reads them."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hapdsl.graph.program import Program


def shares_in_words(program: Program) -> list[str]:
    """`batch = [76, 76, 26]` for every class that some value is sharded on, in the graph's order."""
    layout = program.layout
    used: dict[str, set[tuple[int, ...]]] = {}
    for instruction in program.instructions:
        for value in (*instruction.inputs, *instruction.outputs):
            for d in {p.dim for p in value.placement if p.kind == "S"}:
                cls = program.graph.tensors[value.tensor].classes[d]
                if cls is not None:
                    axes = tuple(a for a, p in enumerate(value.placement) if p.kind == "S" and p.dim == d)
                    used.setdefault(cls, set()).add(axes)
    found = []
    for cls in program.graph.classes:
        for axes in sorted(used.get(cls, ())):
            over = "" if len(layout.mesh) == 1 else " over " + " × ".join(layout.mesh[a][0] for a in axes)
            found.append(f"{cls} = {_runs([int(n) for n in layout.shares[cls][axes]])}{over}")
    return found


def _runs(numbers: list[int]) -> str:
    parts = []
    for value, run in groupby(numbers):
        count = len(list(run))
        parts += [f"{count} × {value}"] if count >= 5 else [str(value)] * count
    return f"[{', '.join(parts)}]"
