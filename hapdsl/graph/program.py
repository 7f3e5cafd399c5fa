"""A distributed program, resolved: instructions over values, and how each class is cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from hapdsl.graph.training import TURN, Node, TrainingGraph
from hapdsl.lang.nodes import NOWHERE, Span
from hapdsl.theory.dtypes import DTYPE_BYTES
from hapdsl.theory.placements import Placement, Placements, show

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
LOCAL = ("slice", "partial")  # R -> S(d) keeps a piece; R -> P keeps the value on one device, zeros elsewhere
LOADS = ("input", "param", "state", "seed")
METHODS = {  # the first is the default, and wins a tie
    "all_reduce": ("ring", "hierarchical", "tree"),
    "all_gather": ("padded", "grouped", "hierarchical"),
    "reduce_scatter": ("padded", "grouped", "hierarchical"),
    "all_to_all": ("pairwise", "hierarchical"),
}
MOST_DEVICES = 100_000  # of a mesh, and so of a cluster


def conversion(source: Placement, target: Placement) -> str | None:
    """The one instruction that turns `source` into `target` on one axis; None where there is none (paper §3)."""
    match source.kind, target.kind:
        case "P", "R":
            return "all_reduce"
        case "P", "S":
            return "reduce_scatter"
        case "S", "R":
            return "all_gather"
        case "S", "S" if source.dim != target.dim:
            return "all_to_all"
        case "R", "S":
            return "slice"
        case "R", "P":
            return "partial"
    return None


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor at a placement (one entry per mesh axis): `h@S(0)`."""

    tensor: str
    placement: Placements

    def __str__(self) -> str:
        return f"{self.tensor}@{show(self.placement)}"


@dataclass(frozen=True)
class Instruction:
    """One line: a compute operator under one rule, a collective, a local conversion, or a load.

    op is an operator's name (then `node` is its call in the training graph), one of COLLECTIVES, LOCAL, LOADS, or "free".
    Collectives and conversions may hold several operands in one message: `inputs[k]` becomes `outputs[k]`; all move along one
    mesh `axis`. `rules[axis]` is the rule that a compute instruction uses on each axis.
    """

    op: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    section: str = "forward"
    node: Node | None = None
    method: str | None = None
    axis: int = 0
    span: Span = NOWHERE
    repeat: tuple[tuple[str, int], ...] = ()  # the turn it is printed in
    dtype: str | None = None  # of a collective: what floats are rounded to and sent as, their own where None

    @property
    def is_collective(self) -> bool:
        return self.node is None and self.op in COLLECTIVES

    @property
    def is_compute(self) -> bool:
        return self.node is not None

    @property
    def said_method(self) -> str | None:
        """The method of a collective as far as a text says it: None where it is the first one."""
        return None if self.method is None or self.method == METHODS[self.op][0] else self.method


@dataclass(frozen=True)
class Layout:
    """The mesh and how each dimension class is cut over it.

    mesh is ((axis name, size), …); devices are numbered row-major over it. `shares[cls][axes]` is
    an integer array over all devices: the units each device holds of a class that is sharded on
    the mesh axes `axes` (a sorted tuple, `(0,)` on one axis). Devices that differ only on other axes hold the same.
    """

    mesh: tuple[tuple[str, int], ...]
    shares: Mapping[str, Mapping[tuple[int, ...], np.ndarray]] = field(default_factory=dict)

    @cached_property
    def devices(self) -> int:
        return int(np.prod([size for _, size in self.mesh]))

    @cached_property
    def coordinates(self) -> np.ndarray:
        """int array [devices, axes]."""
        return np.stack(np.unravel_index(np.arange(self.devices), [size for _, size in self.mesh]), axis=1)

    def groups(self, axis: int) -> list[list[int]]:
        """The devices that a collective along `axis` joins, one list per group, in order along the axis."""
        other = [a for a in range(len(self.mesh)) if a != axis]
        found: dict[tuple[int, ...], list[int]] = {}
        for device, coordinate in enumerate(self.coordinates):
            found.setdefault(tuple(int(coordinate[a]) for a in other), []).append(device)
        return list(found.values())

    def units(self, cls: str, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """(offset, length) in units per device of a class sharded on `axes`. Raises KeyError where it has no shares."""
        found = self._units.get((cls, axes))
        if found is None:
            lengths = self.shares[cls][axes]
            owners, owner = self._owners(axes)
            starts = np.concatenate([[0], np.cumsum(lengths[owners])[:-1]])
            found = self._units[cls, axes] = (starts[owner].astype(lengths.dtype), lengths)
        return found

    def _owners(self, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """The first device at each position along `axes`, in order, and each device's place among these positions."""
        _, first, place = np.unique(self.coordinates[:, list(axes)], axis=0, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first, kind="stable"), kind="stable")
        return np.sort(first), rank[place.reshape(-1)]

    @cached_property
    def _units(self) -> dict[tuple[str, tuple[int, ...]], tuple[np.ndarray, np.ndarray]]:
        return {}

    @staticmethod
    def even(units: int, devices: int) -> np.ndarray:
        """Shares as equal as whole units allow, the larger ones first."""
        return np.array([units // devices + (d < units % devices) for d in range(devices)], dtype=np.int64)


def summed(instructions: Iterable[Instruction]) -> set[Value]:
    """The values of a `microbatch` block that stand for their sum over turns behind it: parts of sums (`accumulate`) that are read there."""
    behind = [i for i in instructions if i.section not in TURN]
    parts = {v.tensor for i in behind if i.op == "accumulate" for v in i.inputs}
    return {v for i in behind for v in i.inputs if v.tensor in parts}


@dataclass
class Program:
    """A complete distributed program for one training graph on a mesh."""

    name: str
    graph: TrainingGraph
    layout: Layout
    instructions: list[Instruction]
    cluster: str | None = None
    model_args: Mapping[str, object] = field(default_factory=dict)

    def piece(self, value: Value) -> tuple[np.ndarray, np.ndarray]:
        """(offsets, lengths) of a value's local pieces in elements, int arrays [devices, dims].

        A dim that isn't sharded has offset 0 and its whole length; P and R pieces are whole.
        Cost: O(devices × dims), cached per value.
        """
        cached = self._pieces.get(value)
        if cached is None:
            cached = self._pieces[value] = self._piece(value)
        return cached

    @cached_property
    def _pieces(self) -> dict[Value, tuple[np.ndarray, np.ndarray]]:
        return {}

    @cached_property
    def _cuts(self) -> dict[tuple[object, ...], tuple[np.ndarray, np.ndarray]]:
        """Pieces by what they depend on: tensors of one shape, in the same classes and placement, are cut alike."""
        return {}

    @cached_property
    def _extents(self) -> dict[int, np.ndarray]:
        """A whole extent on each device, by the extent."""
        return {}

    def _piece(self, value: Value) -> tuple[np.ndarray, np.ndarray]:
        tensor = self.graph.tensors[value.tensor]
        key = (tensor.shape, tensor.classes, value.placement)
        cut = self._cuts.get(key)
        if cut is None:
            cut = self._cuts[key] = self._cut(tensor.shape, tensor.classes, value.placement)
        return cut

    def _cut(
        self, shape: tuple[int, ...], classes: tuple[str | None, ...], placement: Placements
    ) -> tuple[np.ndarray, np.ndarray]:
        offsets = np.zeros((self.layout.devices, len(shape)), dtype=np.int64)
        lengths = np.empty_like(offsets)
        lengths[:] = shape
        for d, cls in enumerate(classes):
            axes = tuple(a for a, p in enumerate(placement) if p.kind == "S" and p.dim == d)
            if axes and cls is not None:
                scale = shape[d] // self.graph.classes[cls].units
                start, length = self.layout.units(cls, axes)
                offsets[:, d] = start * scale
                lengths[:, d] = length * scale
        return offsets, lengths

    def local_bytes(self, value: Value) -> np.ndarray:
        """Bytes of a value on each device, int array [devices]."""
        _, lengths = self.piece(value)
        return lengths.prod(axis=1) * DTYPE_BYTES[self.graph.tensors[value.tensor].dtype]

    def index_lengths(self, instruction: Instruction) -> dict[str, np.ndarray]:
        """The local length of each index of a compute instruction, int arrays [devices].

        Read off its operands' and outputs' pieces; an index that no placement shards has its whole extent.
        """
        node = instruction.node
        assert node is not None
        instance = node.instance
        whole = self._extents
        found: dict[str, np.ndarray] = {}
        for index, extent in instance.extents.items():
            if extent not in whole:
                whole[extent] = np.full(self.layout.devices, extent)
            found[index] = whole[extent]
        for value, cuts in zip((*instruction.inputs, *instruction.outputs), instance.cuts, strict=True):
            dims = [p.dim for p in value.placement if p.kind == "S"]
            if not dims:
                continue
            _, lengths = self.piece(value)
            for d in dims if len(dims) == 1 else sorted(set(dims)):
                if d < len(cuts) and (cut := cuts[d]) is not None:
                    major, minor = cut
                    found[major] = lengths[:, d] // minor
        return found
