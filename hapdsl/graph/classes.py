"""Dimension classes: dims that operators or symbols tie together are cut alike.

Only indices of operators and symbols of declarations tie dims, never equal sizes (design §2). The same tensor in each turn of a
repeat is tied too: `layer.0.q` and `layer.3.q` are one tensor of the text, `layer.*.q`. So ties are made between the dims of the text
(`Place`), once for each call of the text, however many turns make it: whatever one turn ties, it ties in all of them.
Cost: near-linear in the dims and calls of distinct layers (disjoint sets), and a look-up for each dim of each tensor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from hapdsl.graph.scope import Draft, DraftNode
from hapdsl.graph.ties import Ties
from hapdsl.graph.training import DimensionClass

Place = tuple[str, int, int]  # a tensor's name with `*` for the turns it stands in, the dim, its extent


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
    general = _general(repeats)
    words = {tensor.name: general(tensor.name) for tensor in tensors}
    ties: Ties[Place] = Ties()
    lengths: dict[Place, int] = {}  # what the units must divide, where an operator cuts a merged dim
    for tensor in tensors:
        for place in _places(tensor, words):
            if place not in lengths:
                lengths[place] = 0
                ties.add(place)
    _tie_operators(nodes, words, lengths, ties)
    for old, new in alike:
        for one, other in zip(_places(old, words), _places(new, words), strict=True):
            ties.tie(one, other)
    symbols = _tie_symbols(tensors, words, ties)
    ranks = {symbol: k for k, symbol in enumerate(order)}
    groups = list(ties.sets())
    members: list[list[tuple[str, int]]] = [[] for _ in groups]
    number = {place: k for k, group in enumerate(groups) for place in group}
    for tensor in sorted(tensors, key=lambda t: (len(t.name), t.name)):
        for place in _places(tensor, words):
            members[number[place]].append((tensor.name, place[1]))
    found: dict[str, DimensionClass] = {}
    for group, dims in zip(groups, members, strict=True):
        units = math.gcd(*(math.gcd(place[2], lengths[place]) for place in group))
        named = sorted({s for place in group for s in symbols.get(place, ())}, key=lambda s: ranks.get(s, len(ranks)))
        name = next((s for s in named if s not in found), f"{dims[0][0]}.{dims[0][1]}")
        found[name] = DimensionClass(name, units, tuple(dims))
    return found


def _general(repeats: Mapping[str, int]) -> Callable[[str], str]:
    """What a tensor is called in the text: the numbers of its turns are stars."""
    if not repeats:
        return str
    # inner repeats have a longer path, turn numbers and all: match any repeat's last word between dots
    words = {path.rpartition(".")[2] for path in repeats}
    turn = re.compile(rf"(?:(?<=^)|(?<=\.))({'|'.join(map(re.escape, sorted(words)))})\.\d+(?=\.)")
    return lambda name: turn.sub(r"\1.*", name)


def _places(tensor: Draft, words: Mapping[str, str]) -> list[Place]:
    """The dims of a tensor that are longer than 1."""
    word = words[tensor.name]
    return [(word, d, extent) for d, extent in enumerate(tensor.shape) if extent > 1]


def _tie_operators(
    nodes: Sequence[DraftNode], words: Mapping[str, str], lengths: dict[Place, int], ties: Ties[Place]
) -> None:
    seen = set()
    for node in nodes:
        instance = node.instance
        drafts = (*node.inputs, *node.outputs)
        call = (id(instance), *[words[t.name] for t in drafts])  # an instance has its shapes
        if call in seen:
            continue
        seen.add(call)
        first: dict[str, Place] = {}
        for tensor, dims in zip(drafts, (*instance.operands, *instance.results), strict=True):
            for d, dim in enumerate(dims):
                if not dim or tensor.shape[d] <= 1:
                    continue
                place, major = (words[tensor.name], d, tensor.shape[d]), instance.major(dim)
                if major.isdigit():
                    continue
                lengths[place] = math.gcd(lengths[place], instance.extents[major])
                head = first.setdefault(major, place)
                if head is not place:  # most indices stand in few tensors, and a union costs
                    ties.tie(head, place)


def _tie_symbols(tensors: Sequence[Draft], words: Mapping[str, str], ties: Ties[Place]) -> dict[Place, list[str]]:
    """The symbols of each place; turns of one text have the same."""
    symbols: dict[Place, list[str]] = {}
    first: dict[tuple[str, int], Place] = {}
    for tensor in tensors:
        for d, symbol in enumerate(tensor.symbols):
            if symbol is None or tensor.shape[d] <= 1:
                continue
            place = (words[tensor.name], d, tensor.shape[d])
            own = symbols.setdefault(place, [])
            if symbol not in own:
                own.append(symbol)
                ties.tie(first.setdefault((symbol, tensor.shape[d]), place), place)
    return symbols
