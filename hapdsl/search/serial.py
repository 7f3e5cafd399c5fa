"""What computing can't hide: which messages stand before or behind which calls in every order of every program.

Beside a message goes only what neither makes its operand nor needs its result. Of a chain of calls that is nothing: so a step takes at least as long as some
calls and the messages that are apart from all of them, one after the other. A *pass* is such a set of calls, and the messages apart from them:

- `behind`: tensors whose call comes after all of these calls (or that have none of them left to wait for): whatever is sent of them, is sent later;
- `between`: tensors, and one reader of each: each of the calls comes before the tensor is made, or needs the reader's result, or is the reader. What the
  reader takes must have come by messages, one after another, from the placement that the tensor was made in.

Calls and messages that are apart are never under way at once on a device: in a program a call that needs another's result stands behind it, a message starts when its
operand is there, and a reader when its operand is. (Where calls may run twice this isn't so, and nothing is claimed.)

Four passes are looked at: all calls (their messages: what is sent along the forward chain), those of the forward pass's longest chain (whatever is sent later, gradients for example),
those of the backward pass (parameters and activations, sent earlier), and the longest chain with all that leads to it, which leaves out the gradients of weights (and so
lets messages between the layers of the backward pass count). Which are worth it, is a matter of the bound only: any set of calls is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import inf

import numpy as np
from numpy.typing import NDArray

from hapdsl.graph.program import LOCAL, conversion
from hapdsl.graph.training import TrainingGraph
from hapdsl.search.messages import PARAMS
from hapdsl.theory.placements import Placement

Table = NDArray[np.float64]
SPARE = 0.01  # of a pass's seconds: calls that may be left out of it for a message to be apart


@dataclass(frozen=True)
class Pass:
    """Calls (by number), and the tensors whose messages are apart from all of them (see the module)."""

    calls: frozenset[int]
    behind: frozenset[str]
    between: Mapping[str, int]


def passes(training: TrainingGraph, seconds: Sequence[float]) -> list[Pass]:
    """The passes of a graph, whose calls take about so many seconds each. Cost: O(calls² / 64) and O(calls × tensors / 64)."""
    nodes = training.nodes
    above, below = _lines(training)
    of = {s: sum(1 << k for k, n in enumerate(nodes) if n.section == s) for s in ("forward", "backward", "update")}
    last = _last(training, seconds)
    chain = above[last] | 1 << last
    chosen = dict.fromkeys([(1 << len(nodes)) - 1, of["forward"] & chain, of["backward"], chain])
    found = [_pass(training, calls, seconds, above, below) for calls in chosen if calls]
    return [p for p in found if p.calls and (p.behind or p.between)]


def least_ways(places: Sequence[Placement], price: Callable[[Placement, Placement], float]) -> Table:
    """Seconds of the cheapest way from each placement to each, by any number of conversions over these (local ones are free): [from, to]."""
    ways = np.full((len(places), len(places)), np.inf)
    for (i, p), (j, q) in permutations(enumerate(places), 2):
        how = conversion(p, q)
        if how is not None:
            ways[i, j] = 0.0 if how in LOCAL else price(p, q)
    np.fill_diagonal(ways, 0.0)
    for k in range(len(places)):
        np.minimum(ways, ways[:, k, None] + ways[None, k], out=ways)
    return ways


def _lines(training: TrainingGraph) -> tuple[list[int], list[int]]:
    """For each call, as bits, the calls whose results it needs and those that need its own."""
    nodes, producer = training.nodes, training.producer
    above, below = [0] * len(nodes), [0] * len(nodes)
    for k, node in enumerate(nodes):
        for name in node.inputs:
            if (made := producer.get(name)) is not None:
                above[k] |= above[made] | 1 << made
    for k in range(len(nodes) - 1, -1, -1):
        for name in nodes[k].outputs:
            for reader in training.readers[name]:
                below[k] |= below[reader] | 1 << reader
    return above, below


def _last(training: TrainingGraph, seconds: Sequence[float]) -> int:
    """The call before the updates that ends the longest chain."""
    longest = [0.0] * len(training.nodes)
    for k, node in enumerate(training.nodes):
        made = [training.producer[n] for n in node.inputs if n in training.producer]
        longest[k] = max((longest[m] for m in made), default=0.0) + seconds[k]
    return max(range(len(longest)), key=lambda k: (training.nodes[k].section != "update", longest[k]))


class _Weights:
    """Seconds of sets of calls, given as bits."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self.seconds = seconds

    def within(self, calls: int, most: float) -> float:
        """The sum of a set of calls; infinite where it is more than `most`."""
        total = 0.0
        while calls:
            low = calls & -calls
            total += self.seconds[low.bit_length() - 1]
            if total > most:
                return inf
            calls ^= low
        return total


def _pass(training: TrainingGraph, calls: int, seconds: Sequence[float], above: list[int], below: list[int]) -> Pass:
    """These calls but for some that take next to no time, and what is apart from them; tensors that least is in the way of come first."""
    weights = _Weights(seconds)
    spare = SPARE * weights.within(calls, inf)
    # Seconds of what is in the way, a number, the tensor, its reader (-1 where none is needed), the calls that are in the way
    wanted: list[tuple[float, int, str, int, int]] = []
    for n, (name, tensor) in enumerate(training.tensors.items()):
        made = training.producer.get(name)
        if made is None and tensor.kind not in PARAMS:
            continue
        rest = calls if made is None else calls & ~(above[made] | 1 << made)
        options = [(rest, -1)] if made is not None else []
        if rest or made is None:
            options += [(rest & ~(below[r] | 1 << r), r) for r in training.readers[name]]
        for inway, reader in options:
            cost = weights.within(inway, spare)
            if cost <= spare:
                wanted.append((cost, n, name, reader, inway))
    behind: set[str] = set()
    between: dict[str, int] = {}
    for _, _, name, reader, inway in sorted(wanted):
        cost = weights.within(inway & calls, spare)
        if cost > spare or name in behind or name in between:
            continue
        spare -= cost
        calls &= ~inway
        if reader < 0:
            behind.add(name)
        else:
            between[name] = reader
    return Pass(frozenset(k for k in range(len(seconds)) if calls >> k & 1), frozenset(behind), between)
