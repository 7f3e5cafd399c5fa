"""The least overlapped seconds of a program's instructions in any order, by trying all of them.

Each device has two clocks, for its computing and its messages, and a message moves the latter on all devices together, from where both of all
devices have come to. A state is
what is done; it is kept under several moments (clocks, and when each value that is still read comes up), none of which is behind another in
everything. Only for one mesh axis, and programs of some ten instructions that take time. It shares nothing with `hapdsl.search.streams`.
"""

from __future__ import annotations

import numpy as np

from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import Program, Value

Moments = tuple[np.ndarray, ...]


def least(program: Program, pricer: Pricer, most: int = 20_000) -> float | None:
    """Seconds of the best order; None where that takes more than `most` states."""
    lines = program.instructions
    seconds = [pricer.price(i).seconds for i in lines]
    made: dict[Value, int] = {}
    needs = []
    for k, line in enumerate(lines):
        needs.append({made[v] for v in line.inputs})
        for value in line.outputs:
            made.setdefault(value, k)
    readers: list[set[int]] = [{r for r, n in enumerate(needs) if k in n} for k in range(len(lines))]
    timed = [line.is_collective or bool(s.any()) for line, s in zip(lines, seconds, strict=True)]
    zero = np.zeros(len(pricer.cluster))
    Known = dict[int, np.ndarray]

    def settled(done: frozenset[int], ends: Known) -> tuple[frozenset[int], Known]:
        """With all that takes no time, and without what nobody reads any more."""
        ends = dict(ends)
        while True:
            free = [k for k in range(len(lines)) if not timed[k] and k not in done and needs[k] <= done]
            if not free:
                return done, {k: e for k, e in ends.items() if readers[k] - done}
            for k in free:
                ends[k] = np.maximum.reduce([zero, *(ends[n] for n in needs[k])])
            done = done | set(free)

    done, ends = settled(frozenset(), {})
    level: dict[frozenset[int], list[tuple[np.ndarray, np.ndarray, Known]]] = {done: [(zero, zero, ends)]}
    best, looked = np.inf, 0
    while level:
        following: dict[frozenset[int], list[tuple[np.ndarray, np.ndarray, Known]]] = {}
        for done, moments in level.items():
            ready = [k for k in range(len(lines)) if k not in done and timed[k] and needs[k] <= done]
            for compute, messages, ends in moments:
                looked += 1
                if looked > most:
                    return None
                if not ready:
                    best = min(best, float(np.maximum(compute, messages).max()))
                for k in ready:
                    start = np.maximum.reduce(
                        [messages if lines[k].is_collective else compute, *(ends[n] for n in needs[k])]
                    )
                    if lines[k].is_collective:  # launched behind what has been computed until then
                        start = np.full_like(start, np.maximum(start, compute).max())
                    end = start + seconds[k]
                    after, known = settled(done | {k}, {**ends, k: end})
                    state = (compute, end, known) if lines[k].is_collective else (end, messages, known)
                    _keep(following.setdefault(after, []), state)
        level = following
    return best


def _keep(
    states: list[tuple[np.ndarray, np.ndarray, dict[int, np.ndarray]]],
    new: tuple[np.ndarray, np.ndarray, dict[int, np.ndarray]],
) -> None:
    vector = _vector(new)
    if any((_vector(s) <= vector).all() for s in states):
        return
    states[:] = [s for s in states if not (vector <= _vector(s)).all()]
    states.append(new)


def _vector(state: tuple[np.ndarray, np.ndarray, dict[int, np.ndarray]]) -> np.ndarray:
    compute, messages, ends = state
    return np.concatenate([compute, messages, *(ends[k] for k in sorted(ends))])
