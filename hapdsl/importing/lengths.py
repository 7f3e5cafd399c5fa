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
from hapdsl.importing.clean import changes
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
SPLITS = ("aten.split_with_sizes.default", "aten.split.sizes")
EQUAL = ("aten.split.Tensor", "aten.chunk.default", "aten.unsafe_chunk.default")  # their number says how many parts
REST = -1  # of the lengths of a split: what the others leave
# Shapes that a handler reads from the dims themselves.
SHAPES = {
    f"aten.{name}"
    for name in (
        "view.default", "reshape.default", "_unsafe_view.default", "unflatten.int", "expand.default", "broadcast_to.default",
        "new_zeros.default", "new_ones.default", "new_full.default", "new_empty.default",
        "unsafe_chunk.default", "as_strided.default",
    )
}  # fmt: skip
COUNTS = ("aten.repeat.default", "aten.tile.default", "aten.repeat_interleave.self_int")  # how often something is there
# What a handler makes a dim of that no other tensor has: its length is noted beside the node (`Layouts.measured_by`).
MADE = {
    f"aten.{name}"
    for name in (
        "expand.default", "broadcast_to.default", "zeros.default", "ones.default", "full.default", "empty.memory_format",
        "new_zeros.default", "new_ones.default", "new_full.default", "new_empty.default",
    )
}  # fmt: skip
NOTED = "lengths"  # the key of that among a node's meta
BEYOND = 2**62  # an end of a slice that stands for the end of the dim
KNOWN = tuple(f * p for p in (math.pi, math.sqrt(2 / math.pi), math.log(2), math.e) for f in (1, -1))  # no lengths
Retrace = Callable[[dict[str, int]], Traced]
Place = tuple[Any, ...]  # the way to a number in (args, kwargs) of a node
Powers = tuple[tuple[Atom, int, float], ...]  # of a dim's length and so many elements: an exponent


class Length(float):
    """`factor` times powers of lengths, each with a whole number added: what arithmetic makes of it is such a product, too."""

    factor: float
    powers: Powers

    def __new__(cls, value: float, powers: Powers, factor: float | None = None) -> Length:
        made = super().__new__(cls, value)
        made.powers = powers
        made.factor = (
            value / math.prod((a.size + plus) ** float(e) for a, plus, e in powers) if factor is None else factor
        )
        return made

    def __neg__(self) -> Length:
        return Length(-float(self), self.powers, -self.factor)

    def __mul__(self, other: float) -> Length:
        powers = other.powers if isinstance(other, Length) else ()
        factor = other.factor if isinstance(other, Length) else other
        return Length(float(self) * float(other), (*self.powers, *powers), self.factor * factor)

    __rmul__ = __mul__

    def __rtruediv__(self, other: float) -> Length:
        return Length(other / float(self), tuple((a, plus, -e) for a, plus, e in self.powers), other / self.factor)

    @property
    def row(self) -> tuple[Atom, int] | None:
        """The dim and the number added, where it is a length and a number."""
        ((atom, plus, e),) = self.powers if len(self.powers) == 1 else ((None, 0, 0),)
        return (atom, plus) if atom is not None and e == 1 and self.factor == 1 else None


def find(traced: Traced, symbols: Mapping[str, Atom], retrace: Retrace) -> list[str]:
    """Put lengths in the place of the numbers of a graph that are some. Returns what is to be remarked on.

    `retrace` exports the module with other lengths of the named dims. Cost: another export where a number may be a length, else nothing.
    """
    sizes = {n: a.size for n, a in symbols.items()}
    constants = Constants(traced)
    numbers = [(node, place) for node in _read(traced, constants) for place, _ in _numbers(node)]
    lengths = list(sizes.values())
    candidates = {
        (node, place)
        for node, place in numbers
        if _is_candidate(node, place, lengths) and not (constants.has(node) and _at(node, place) == 0)
    }
    made = any(_is_made(node, lengths, constants) for node in traced.graph.nodes)
    if not sizes or not (candidates or made):
        return []
    tried = [dict(zip(sizes, itertools.chain(PRIMES, itertools.repeat(1)), strict=False))]
    tried += [{n: 2} for n in sizes] if len(sizes) > 1 else []
    other, moved = None, dict[str, int]()
    for factors in tried:
        other = _beside(traced, retrace, {n: size * factors.get(n, 1) for n, size in sizes.items()})
        if other is not None:
            moved = {n: f for n, f in factors.items() if f > 1}
            break
    for node in traced.graph.nodes:
        if other is not None and str(node.target) in MADE:
            node.meta[NOTED] = _noted(node, other[node], symbols, moved)
    remarks = []
    still = {n: size for n, size in sizes.items() if n not in moved}
    for node, place in numbers:
        before = _at(node, place)
        if str(node.target) in EQUAL and place == ("args", 1):
            if (node, place) in candidates:
                remarks.append(_parted(node, other[node] if other is not None else None, still))
        elif other is not None and before != _at(other[node], place):
            sayable = {} if constants.has(node) else symbols
            remarks.append(_settle(node, place, other[node], sayable, moved))
        elif (node, place) in candidates:
            remarks.append(_may_be(node, place, still))
    return list(dict.fromkeys(said for said in remarks if said))


def _is_made(node: Node, sizes: Sequence[int], constants: Constants) -> bool:
    """Is a dim repeated as often as a named one is long, or a new tensor overwritten that is as long?"""
    if str(node.target) not in MADE:
        return False
    shape, source = node.meta["val"].shape, node.args[0]
    if str(node.target) in ("aten.expand.default", "aten.broadcast_to.default") and isinstance(source, Node):
        if constants.has(source):
            return False
        held = source.meta["val"].shape
        held = (*[1] * (len(shape) - len(held)), *held)
        return any(n in sizes and n > 1 and old == 1 for n, old in zip(shape, held, strict=True))
    readers = [*node.users, *(u for view in node.users for u in view.users)]
    return any(n in sizes for n in shape) and any(changes(u) for u in readers)


def _noted(node: Node, other: Node, symbols: Mapping[str, Atom], factors: Mapping[str, int]) -> dict[int, Any]:
    """The dims of a node that are as long as a named one and a number: the atom and the number."""
    found: dict[int, Any] = {}
    for d, (before, after) in enumerate(zip(node.meta["val"].shape, other.meta["val"].shape, strict=True)):
        said = _said(int(before), int(after), symbols, factors) if before != after else None
        if said is not None and said.row is not None:
            found[d] = said.row
    return found


def _read(traced: Traced, constants: Constants) -> Iterator[Node]:
    """Operators that work on what a step brings or trains; of constants (positions, masks) only the arithmetic."""
    for node in traced.graph.nodes:
        known = constants.has(node) and str(node.target) not in SCALARS
        if node.op == "call_function" and not known and str(node.target) not in SHAPES:
            yield node


def _numbers(node: Node) -> Iterator[tuple[Place, int | float]]:
    """All numbers among a node's arguments, each with its place."""
    open_: list[tuple[Place, Any]] = [(("args", k), a) for k, a in enumerate(node.args)]
    open_ += [(("kwargs", k), a) for k, a in node.kwargs.items()]
    for place, x in open_:  # grows as lists are found
        if isinstance(x, list | tuple):
            open_ += [((*place, k), a) for k, a in enumerate(x)]
        elif isinstance(x, int | float) and not isinstance(x, bool):
            yield place, x


def _at(node: Node, place: Place) -> Any:
    """The number at a place, None where there is none."""
    return dict(_numbers(node)).get(place)


def _put(node: Node, place: Place, value: float) -> None:
    where, key, *rest = place
    held: Any = node.args[key] if where == "args" else node.kwargs[key]
    if rest:
        held = [*held[: rest[0]], value, *held[rest[0] + 1 :]]
    else:
        held = value
    if where == "args":
        node.update_arg(key, held)
    else:
        node.update_kwarg(key, held)


def _is_candidate(node: Node, place: Place, sizes: Sequence[int]) -> bool:
    """May a number be a length? A long fraction; a whole one in arithmetic, or about a position in a dim; elsewhere one near a length."""
    x, name = _at(node, place), str(node.target)
    arithmetic = name in SCALARS and place[1] in (0, 1, "alpha")
    if isinstance(x, float) and not x.is_integer():
        digits = 1 if arithmetic else 4
        long = 1e-30 < abs(x) < 1e30 and float(f"{x:.{digits}g}") != x and x not in KNOWN
        return long or any(math.isclose(abs(x), f) for n in sizes for f in _forms(n))
    if abs(x) >= BEYOND or not math.isfinite(x):
        return False
    if name in PARTS:
        return place[1] in PARTS[name] and x != 0
    if name in EQUAL and place == ("args", 1):
        total = sum(_lengths(node))
        return any(n > 1 and total % n == 0 for n in sizes)
    if name in (*SPLITS, "aten.pad.default", "aten.constant_pad_nd.default", "aten.roll.default"):
        return len(place) > 2 and x != 0
    if name in COUNTS and any(n > 1 and x > 0 and x % n == 0 for n in sizes):
        return True
    return (arithmetic and isinstance(x, int) and (abs(x) > 2 or x == 0)) or _near(x, sizes)


def _near(x: float, sizes: Sequence[int]) -> bool:
    return abs(x) > 2 and any(abs(x) in (n - 1, n, n + 1, n // 2, n * n) for n in sizes)


def _extent(node: Node, place: Place) -> int | None:
    """The length of the dim within which a number is a position (or a shift, or a part's length)."""
    name, d, source = str(node.target), None, node.args[0]
    if name in PARTS and place[0] == "args" and place[1] in PARTS[name]:
        d = node.args[1]
    elif name in SPLITS and len(place) == 3:
        d = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
    elif name == "aten.roll.default" and len(node.args) > 2 and place[:2] == ("args", 1) and len(place) == 3:
        d = node.args[2][place[2]]  # type: ignore[index]
    if not isinstance(d, int) or not isinstance(source, Node):
        return None
    shape = source.meta["val"].shape
    return int(shape[d]) if len(shape) else None


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


def _settle(node: Node, place: Place, other: Node, symbols: Mapping[str, Atom], factors: Mapping[str, int]) -> str:
    """One number of a node that another length has changed: a length is put in its place, or what can't be said is remarked on."""
    before, after = _at(node, place), _at(other, place)
    found: float | None = None
    extent, longer = _extent(node, place), _extent(other, place)
    if after is None:
        pass
    elif extent is not None and longer is not None:
        if str(node.target) == "aten.slice.Tensor" and before >= extent and after >= longer:
            return ""  # up to the end
        found = _position(node, before, after, extent, longer)
        if found is None and str(node.target) == "aten.slice.Tensor" and min(before, after) > 0:
            found = _said(before, after, symbols, factors)
    elif str(node.target) in SCALARS or str(node.target) == "aten.one_hot.default":
        found = _said(before, after, symbols, factors)
    elif str(node.target) in COUNTS:
        said = _said(before, after, symbols, factors)
        found = said if said is not None and said.row is not None else None
    if found is not None:
        _put(node, place, found)
        return ""
    return (
        f"{before:g} {_where(node)} was worked out from the length of a dim, in a way that this text can't say: "
        "with other lengths it is wrong"
    )


def _parted(node: Node, other: Node | None, still: Mapping[str, int]) -> str:
    """Of a dim cut in parts: they go with its length if they are alike, and as many. `still` are dims that no other export made longer."""
    lengths = _lengths(node)
    longer = [] if sum(lengths) in still.values() else _lengths(other) if other is not None else lengths
    alike = len(lengths) == len(longer) and len(set(lengths)) == len(set(longer)) == 1
    if alike or lengths == longer:
        return ""
    return f"the lengths {lengths} of parts {_where(node)} are those of this example: those of a longer dim would be others"


def _lengths(node: Node) -> list[int]:
    """How long the parts of a dim are."""
    d = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
    return [int(part.shape[d]) for part in node.meta["val"]]


def _position(node: Node, before: int, after: int, extent: int, longer: int) -> int | None:
    """A position that keeps its distance to the end is counted from there, and one from the end that keeps it to the start from here."""
    if 0 < before < extent and after - before == longer - extent:
        return REST if str(node.target) in SPLITS else before - extent
    if before < 0 and after < 0 and extent + before == longer + after and str(node.target) in PARTS:
        return extent + before
    return None


def _said(before: float, after: float, symbols: Mapping[str, Atom], factors: Mapping[str, int]) -> Length | None:
    """A product of lengths, a length and a number, or one over that. Of whole numbers only what is whole at all lengths: n // 2 isn't."""
    names = [n for n in factors if n in symbols]
    whole = isinstance(before, int) and isinstance(after, int)
    if before and math.isfinite(after / before):
        exponents = (0, 1) if whole else (0, 1, -1, 0.5, -0.5)
        for powers in itertools.product(exponents, repeat=len(names)):
            grown = math.prod(factors[n] ** float(e) for n, e in zip(names, powers, strict=True))
            if abs(after / before - grown) < 1e-9 * grown:
                found = Length(before, tuple((symbols[n], 0, e) for n, e in zip(names, powers, strict=True) if e))
                return found if not whole or found.factor.is_integer() else None
    tried = [(before, after, 1)] + ([] if whole or not before or not after else [(1 / before, 1 / after, -1)])
    for n, (x, y, e), sign in itertools.product(names, tried, (1, -1)):
        size = symbols[n].size
        near = abs(x - round(x)) < 1e-9 * max(1, abs(x)) and math.isfinite(y)
        if near and abs(y - x - sign * size * (factors[n] - 1)) < 1e-9 * max(1, abs(y)):
            return Length(before, ((symbols[n], sign * round(x) - size, e),), sign)
    return None


def _may_be(node: Node, place: Place, sizes: Mapping[str, int]) -> str:
    """Of a number that couldn't be looked at with another length."""
    x = _at(node, place)
    for name, n in sizes.items():
        if n > 1 and x == n:
            return f"{x:g} {_where(node)} is as long as '{name}': if it was worked out from that, it is wrong with another length"
        if n > 1 and isinstance(x, float) and not x.is_integer() and any(math.isclose(abs(x), f) for f in _forms(n)):
            return f"{x:g} {_where(node)} may have been worked out from '{name}': then it is wrong with another length"
    return ""


def _forms(n: int) -> tuple[float, ...]:
    """Fractions that are often made of a length."""
    bases = (n, n + 1, n - 1) if n > 2 else (n, n + 1)
    return tuple(f for m in bases for f in (1 / m, m**0.5, m**-0.5, m**-0.25, m / 2, math.log(m)))


def _where(node: Node) -> str:
    where = str(origin(node))
    return f"({where})" if where else f"in {node.target}"


def resized(
    arguments: Mapping[str, Any],
    called: Mapping[str, str],
    dims: Mapping[str, Sequence[str | None]],
    sizes: Mapping[str, int],
) -> dict[str, Any]:
    """A module's arguments with other lengths of named dims, on the meta device: no content, no memory."""
    found = dict(arguments)
    for name, tensor in arguments.items():
        names = dims.get(called.get(name, name))
        if isinstance(tensor, Tensor) and names is not None:
            shape = [sizes.get(n, old) if n is not None else old for n, old in zip(names, tensor.shape, strict=True)]
            found[name] = torch.empty(shape, dtype=tensor.dtype, device="meta")
    return found
