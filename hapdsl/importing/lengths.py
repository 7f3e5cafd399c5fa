"""Numbers that Python worked out from the lengths of dims: `loss / x.shape[0]`.

An exported graph has only the number. Where one could be such a length, the module is exported once more with other lengths, and the
numbers of both graphs are laid beside each other: what has grown as a dim has is that dim's length, what hasn't changed is a number. What
goes with lengths in a way that the text can't say is remarked on, with its line.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from hapdsl.importing.atoms import Atom
from hapdsl.importing.constants import Constants
from hapdsl.importing.trace import Traced, origin
from hapdsl.lang.diagnostics import HapError

PRIMES = (2, 3, 5, 7, 11, 13)  # what each dim grows by, so that no two products are alike
SCALARS = {
    f"aten.{name}{place}.{kind}"
    for name in ("mul", "div", "add", "sub", "multiply", "divide", "subtract", "true_divide", "rsub")
    for place in ("", "_")
    for kind in ("Tensor", "Scalar")
}
PARTS = {"aten.slice.Tensor": (2, 3), "aten.select.int": (2,)}  # which arguments are positions along dim `args[1]`
Retrace = Callable[[dict[str, int]], Traced]


Powers = tuple[tuple[Atom, int, float], ...]  # of a dim's length and so many elements: an exponent


class Length(float):
    """`factor` times powers of lengths, each with a whole number added: what arithmetic makes of it is such a product, too."""

    factor: float
    powers: Powers

    def __new__(cls, value: float, powers: Powers) -> Length:
        made = super().__new__(cls, value)
        made.powers = powers
        made.factor = value / math.prod((a.size + plus) ** e for a, plus, e in powers)
        return made

    def __neg__(self) -> Length:
        return Length(-float(self), self.powers)

    def __mul__(self, other: float) -> Length:
        return Length(float(self) * other, self.powers)

    def __rtruediv__(self, other: float) -> Length:
        return Length(other / float(self), tuple((a, plus, -e) for a, plus, e in self.powers))


def find(traced: Traced, symbols: Mapping[str, Atom], retrace: Retrace) -> list[str]:
    """Put lengths in the place of the numbers of a graph that are some. Returns what is to be remarked on.

    `retrace` exports the module with other lengths of the named dims. Cost: another export where a number may be a length, else nothing.
    """
    sizes = {n: a.size for n, a in symbols.items()}
    numbers = list(_numbers(traced))
    candidates = [(node, k) for node, k in numbers if _is_candidate(node, k, list(sizes.values()))]
    if not candidates:
        return []
    grown = dict(zip(sizes, itertools.chain(PRIMES, itertools.repeat(1)), strict=False))
    for factors in (grown, {n: 2 if k == 0 else 1 for k, n in enumerate(sizes)}):
        other = _beside(traced, retrace, {n: size * factors[n] for n, size in sizes.items()})
        if other is not None:
            break
    else:
        return [_may_be(node, k, sizes) for node, k in candidates if _may_be(node, k, sizes)]
    moved = {n: f for n, f in factors.items() if f > 1}
    remarks = [said for node, k in numbers if (said := _settle(node, k, other[node], symbols, moved))]
    still = {n: size for n, size in sizes.items() if n not in moved}
    remarks += [
        said for node, k in candidates if node.args[k] == other[node].args[k] and (said := _may_be(node, k, still))
    ]
    return list(dict.fromkeys(remarks))


def _numbers(traced: Traced) -> Iterator[tuple[Node, int]]:
    """Numbers in arithmetic and positions within a dim, with their place in a node's arguments."""
    constants = Constants(traced)
    for node in traced.graph.nodes:
        if node.op != "call_function" or constants.has(node):
            continue
        name = str(node.target)
        places = (0, 1) if name in SCALARS else PARTS.get(name, ())
        for k in places:
            x = node.args[k] if len(node.args) > k else None
            if isinstance(x, int | float) and not isinstance(x, bool):
                yield node, k


def _is_candidate(node: Node, k: int, sizes: Sequence[int]) -> bool:
    """May a number be a length? A whole one in arithmetic, or a multiple of a length, its inverse or root; a position in a dim that is as long
    as a named one, or a multiple of it."""
    x = node.args[k]
    assert isinstance(x, int | float)
    if str(node.target) in SCALARS:
        return (isinstance(x, int) and abs(x) > 2) or _is_multiple(abs(x), sizes)
    extent = _extent(node)
    return 0 < x < extent and any(extent % n == 0 for n in sizes if n > 1)


def _is_multiple(x: float, sizes: Sequence[int]) -> bool:
    """Of a length, or of one less, or one over such a number? Or is its square?"""
    if not x or not math.isfinite(x):
        return False
    tried = [y for y in (x, 1 / x, *((x * x, 1 / x / x) if x != round(x) else ())) if y > 0.9]
    lengths = {m for n in sizes for m in (n, n - 1) if m > 1 or n == 1}
    return any(abs(y / m - round(y / m)) < 1e-9 * y / m for y in tried for m in lengths if m and y > 0.9 * m)


def _extent(node: Node) -> int:
    source = node.args[0]
    assert isinstance(source, Node)
    shape = source.meta["val"].shape
    return int(shape[node.args[1]]) if len(shape) and isinstance(node.args[1], int) else 0


def _beside(traced: Traced, retrace: Retrace, sizes: dict[str, int]) -> dict[Node, Node] | None:
    """The nodes of a graph, each with the one of another export that does the same; None where there is none such."""
    try:
        other = retrace(sizes)
    except HapError:  # a table has no more rows, say
        return None
    pairs = list(itertools.zip_longest(traced.graph.nodes, other.graph.nodes))
    if any(a is None or b is None or (str(a.target) != str(b.target) and a.op == "call_function") for a, b in pairs):
        return None
    return dict(pairs)


def _settle(node: Node, k: int, other: Node, symbols: Mapping[str, Atom], factors: Mapping[str, int]) -> str | None:
    """One number of a node: a length is put in its place, or what can't be said is remarked on."""
    before, after = node.args[k], other.args[k]
    if before == after or not isinstance(before, int | float) or not isinstance(after, int | float):
        return None
    if str(node.target) in PARTS:
        extent, longer = _extent(node), _extent(other)
        if before >= extent and after >= longer:
            return None  # up to the end
        if after - before == longer - extent:
            node.update_arg(k, int(before) - extent)  # counted from the end
            return None
    else:
        found = _said(before, after, symbols, factors)
        if found is not None:
            node.update_arg(k, found)
            return None
    return (
        f"{before:g} {_where(node)} was worked out from the length of a dim, in a way that this text can't say: "
        "with other lengths it is wrong"
    )


def _said(before: float, after: float, symbols: Mapping[str, Atom], factors: Mapping[str, int]) -> Length | None:
    names = list(factors)
    for powers in itertools.product((0, 1, -1, 0.5, -0.5), repeat=len(names)):
        grown = math.prod(factors[n] ** float(e) for n, e in zip(names, powers, strict=True))
        if abs(after / before - grown) < 1e-9 * grown:
            return Length(before, tuple((symbols[n], 0, e) for n, e in zip(names, powers, strict=True) if e))
    for n in names:
        size = symbols[n].size
        for sign in (1, -1):
            if after - before == sign * (size * factors[n] - size):
                return Length(before, ((symbols[n], sign * int(before) - size, 1),))
    return None


def _may_be(node: Node, k: int, sizes: Mapping[str, int]) -> str:
    """Of a number that couldn't be looked at with another length."""
    x = node.args[k]
    found = [n for n, size in sizes.items() if size > 1 and x == size]
    if not found:
        return ""
    return f"{x:g} {_where(node)} is as long as '{found[0]}': if it was worked out from that, it is wrong with another length"


def _where(node: Node) -> str:
    where = str(origin(node))
    return f"({where})" if where else f"in {node.target}"


def resized(
    arguments: Mapping[str, Any],
    called: Mapping[str, str],
    dims: Mapping[str, Sequence[str | None]],
    sizes: Mapping[str, int],
) -> dict[str, Any]:
    """A module's arguments with other lengths of named dims, and no content."""
    found = dict(arguments)
    for name, tensor in arguments.items():
        names = dims.get(called.get(name, name))
        if isinstance(tensor, Tensor) and names is not None:
            shape = [sizes.get(n, old) if n is not None else old for n, old in zip(names, tensor.shape, strict=True)]
            found[name] = torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
    return found
