"""Curves through measurements: monotone, because more work doesn't take less time, and of few straight lines.

The monotone fit is isotonic regression (pool adjacent violators) of the logarithms, so that each point counts by its relative error; points
whose neighbours' straight line says the same within a few percent are then left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

NEAR = 0.03  # relative: what a curve of fewer points may differ by
LEAST_SECONDS = 1e-9
TILES = (2, 4, 8, 16, 32, 64, 128)
FEWEST = 3  # lengths that say anything of tiles
BETTER = 0.5  # of the squared error without tiles: what tiles must leave no more than


def monotone(samples: Iterable[tuple[float, float]], near: float = NEAR) -> tuple[tuple[float, float], ...]:
    """(size, seconds) of an ascending curve through samples in any order, two points at least; () where all samples have one size.

    Samples of one size count as their geometric mean. Cost: O(samples²) at worst, for the thinning.
    """
    from scipy.optimize import isotonic_regression

    by_size: dict[float, list[float]] = {}
    for size, seconds in samples:
        by_size.setdefault(size, []).append(np.log(max(seconds, LEAST_SECONDS)))
    if len(by_size) < 2:
        return ()
    sizes = sorted(by_size)
    fitted = isotonic_regression([np.mean(by_size[s]) for s in sizes], weights=[len(by_size[s]) for s in sizes]).x
    return thinned([(s, float(np.exp(y))) for s, y in zip(sizes, fitted, strict=True)], near)


def tile(samples: Iterable[tuple[float, Sequence[int], float]]) -> int:
    """In tiles of what length an operator computes its dims, from (FLOP, their lengths, seconds): the length for which calls that differ in one
    dim's length alone take seconds in proportion to its whole tiles; 1 where nothing speaks for tiles.

    Seconds should be those of long calls: where a launch is all that a call takes, all lengths take as long.
    """
    series: dict[tuple[object, ...], list[tuple[int, float]]] = {}
    for flops, dims, seconds in samples:
        for k, length in enumerate(dims):
            others = (k, *dims[:k], *dims[k + 1 :], round(flops / length))
            series.setdefault(others, []).append((length, seconds))
    told = [s for s in series.values() if len({length for length, _ in s}) >= FEWEST]
    if not told:
        return 1
    errors = {t: sum(_spread(s, t) for s in told) for t in (1, *TILES)}
    best = min(errors, key=lambda t: errors[t])
    return best if errors[best] < BETTER * errors[1] else 1


def _spread(series: Sequence[tuple[int, float]], tile: int) -> float:
    """How far (length, seconds) are from seconds per whole tile: the sum of squares of the logarithm's deviations."""
    each = np.log([max(seconds, LEAST_SECONDS) / -(-length // tile) for length, seconds in series])
    return float(((each - each.mean()) ** 2).sum())


def thinned(points: list[tuple[float, float]], near: float = NEAR) -> tuple[tuple[float, float], ...]:
    """The points that straight lines between them need to come within `near` (relative) of all: from each as far as one line goes."""
    kept, at = [points[0]], 0
    while at < len(points) - 1:
        reach = at + 1
        for end in range(len(points) - 1, at + 1, -1):
            if _straight(points[at : end + 1], near):
                reach = end
                break
        kept.append(points[reach])
        at = reach
    return tuple(kept)


def _straight(points: list[tuple[float, float]], near: float) -> bool:
    (x0, y0), (x1, y1) = points[0], points[-1]
    return all(abs(y0 + (y1 - y0) * (x - x0) / (x1 - x0) - y) <= near * y for x, y in points[1:-1])
