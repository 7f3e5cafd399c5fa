"""Dimension classes: dims that operators or symbols tie together are cut alike.

Only indices of operators and symbols of declarations tie dims, never equal sizes (design §2). The same
tensor in each turn of a repeat is tied too. Cost: near-linear in dims (union-find).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from networkx.utils import UnionFind

from hapdsl.graph.scope import Draft, DraftNode
from hapdsl.graph.training import DimensionClass

Dim = tuple[str, int]


def classes(
    tensors: Sequence[Draft],
    nodes: Sequence[DraftNode],
    repeats: Mapping[str, int],
    order: Iterable[str],
    alike: Iterable[tuple[Draft, Draft]] = (),
) -> dict[str, DimensionClass]:
    """All classes by name. `order` lists the model's parameters: of several symbols in a class the first names it.

    `alike` are pairs of tensors that are held alike, dim by dim: a buffer and what it is after the step.
    """
    ties: UnionFind = UnionFind()
    extents: dict[Dim, int] = {}
    lengths: dict[Dim, int] = {}  # what the units must divide, where an operator cuts a merged dim
    for tensor in tensors:
        for d, extent in enumerate(tensor.shape):
            if extent > 1:
                extents[tensor.name, d] = extent
                ties[tensor.name, d]
    _tie_operators(nodes, extents, lengths, ties)
    for old, new in alike:
        for d in range(len(old.shape)):
            if (old.name, d) in extents:
                ties.union((old.name, d), (new.name, d))
    symbols = _tie_symbols(tensors, extents, ties)
    _tie_turns(extents, repeats, ties)
    ranks = {symbol: k for k, symbol in enumerate(order)}
    found: dict[str, DimensionClass] = {}
    for group in ties.to_sets():
        members = sorted(group, key=lambda m: (len(m[0]), m))
        units = math.gcd(*(math.gcd(extents[m], lengths.get(m, 0)) for m in members))
        named = sorted({symbols[m] for m in members if m in symbols}, key=lambda s: ranks.get(s, len(ranks)))
        name = next((s for s in named if s not in found), f"{members[0][0]}.{members[0][1]}")
        found[name] = DimensionClass(name, units, tuple(members))
    return found


def _tie_operators(
    nodes: Sequence[DraftNode], extents: Mapping[Dim, int], lengths: dict[Dim, int], ties: UnionFind
) -> None:
    for node in nodes:
        instance = node.instance
        sides = [*zip(node.inputs, instance.operands, strict=True), *zip(node.outputs, instance.results, strict=True)]
        first: dict[str, Dim] = {}
        for tensor, dims in sides:
            for d, dim in enumerate(dims):
                if not dim or (tensor.name, d) not in extents:
                    continue
                member, major = (tensor.name, d), instance.major(dim)
                if major.isdigit():
                    continue
                lengths[member] = math.gcd(lengths.get(member, 0), instance.extents[major])
                head = first.setdefault(major, member)
                if head is not member:  # most indices stand in few tensors, and a union costs
                    ties.union(head, member)


def _tie_symbols(tensors: Sequence[Draft], extents: Mapping[Dim, int], ties: UnionFind) -> dict[Dim, str]:
    symbols: dict[Dim, str] = {}
    first: dict[tuple[str, int], Dim] = {}
    for tensor in tensors:
        for d, symbol in enumerate(tensor.symbols):
            if symbol is not None and (tensor.name, d) in extents:
                symbols[tensor.name, d] = symbol
                ties.union(first.setdefault((symbol, extents[tensor.name, d]), (tensor.name, d)), (tensor.name, d))
    return symbols


def _tie_turns(extents: Mapping[Dim, int], repeats: Mapping[str, int], ties: UnionFind) -> None:
    """`layer.0.q` and `layer.3.q` are one tensor of the text."""
    if not repeats:
        return
    # inner repeats have a longer path, turn numbers and all: match any repeat's last word between dots
    words = {path.rpartition(".")[2] for path in repeats}
    turn = re.compile(rf"(?:(?<=^)|(?<=\.))({'|'.join(map(re.escape, sorted(words)))})\.\d+(?=\.)")
    first: dict[tuple[str, int, int], Dim] = {}
    for (name, d), extent in extents.items():
        general = turn.sub(r"\1.*", name)
        if general != name:
            ties.union(first.setdefault((general, d, extent), (name, d)), (name, d))
