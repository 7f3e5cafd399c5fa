"""A program becomes, for the devices asked for, a list of steps with everything worked out beforehand.

Per step of training nothing is left but to go through the list: shapes, offsets, contexts of kernels, groups
and split sizes are in it, values have numbers (slots), and each step says which slots end behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import torch

from hapdsl.graph.program import COLLECTIVES, LOADS, LOCAL, METHODS, Instruction, Program, Value, summed
from hapdsl.graph.training import LOADED, TURN
from hapdsl.lang.diagnostics import error
from hapdsl.run.call import Call, prepare
from hapdsl.run.context import DTYPES, Clock
from hapdsl.run.pieces import Slices, Transfer, ranges, sizes, slices, transfer


@dataclass(frozen=True)
class Load:
    """Bring inputs, parameters, state or the seed onto the devices."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Compute:
    """One operator call: `calls[device]`."""

    calls: Mapping[int, Call]


@dataclass(frozen=True)
class Convert:
    """A local conversion: `slices[device][k]` cuts operand k; devices in `keeps` hold it, the others hold zeros."""

    slices: Mapping[int, tuple[Slices, ...]]
    keeps: Set[int]


@dataclass(frozen=True)
class Exchange:
    """A collective along one mesh axis: `transfers[g][k]` is operand k within group g. Floats are sent as `dtype`, if there is one."""

    op: str
    method: str
    axis: int
    groups: tuple[tuple[int, ...], ...]
    transfers: tuple[tuple[Transfer, ...], ...]
    dtype: torch.dtype | None = None


Work = Load | Compute | Convert | Exchange


@dataclass(frozen=True)
class Step:
    """`inputs` and `outputs` are slots; `drops` are the slots whose last reader this was, `sums` those of which what was made in
    this turn is done with: the next turn's is added."""

    work: Work
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    drops: tuple[int, ...]
    instruction: Instruction
    sums: tuple[int, ...] = ()


@dataclass(frozen=True)
class Goals:
    """What a program leaves behind: the loss, outputs and metrics, and the new value of what it held before.

    `updated` maps a loaded parameter or piece of state to its new value in the same placement.
    """

    loss: Value | None
    outputs: Mapping[str, Value]
    updated: Mapping[Value, Value]

    @property
    def values(self) -> tuple[Value, ...]:
        own = (self.loss,) if self.loss is not None else ()
        return tuple(dict.fromkeys((*own, *self.outputs.values(), *self.updated.values())))


@dataclass(frozen=True)
class Lowered:
    """The steps of a program for `devices`, with the clock that all its kernels read."""

    program: Program
    devices: tuple[int, ...]
    steps: tuple[Step, ...]
    slots: Mapping[Value, int]
    goals: Goals
    clock: Clock
    dtypes: Mapping[str, torch.dtype]

    @property
    def turns(self) -> int:
        """How often the steps of a turn are done."""
        return self.program.graph.turns

    @cached_property
    def loop(self) -> tuple[int, ...]:
        """The numbers of the steps of a turn: forward and backward."""
        return tuple(k for k, s in enumerate(self.steps) if s.instruction.section in TURN)

    @cached_property
    def after(self) -> tuple[int, ...]:
        """The numbers of the steps that are done once, behind all turns."""
        return tuple(k for k, s in enumerate(self.steps) if s.instruction.section not in TURN)

    def dtype_of(self, value: Value) -> torch.dtype:
        """The torch dtype in which a value is held."""
        return self.dtypes[self.program.graph.tensors[value.tensor].dtype]

    @property
    def torch_dtypes(self) -> set[torch.dtype]:
        """All torch dtypes that some value has."""
        return {self.dtype_of(v) for v in self.slots}

    @property
    def held(self) -> tuple[Value, ...]:
        """Parameters, buffers and state that a step loads, in the order of the program."""
        loads = [s.instruction for s in self.steps if isinstance(s.work, Load)]
        return tuple(dict.fromkeys(v for i in loads for v in i.outputs if self.kind(v) in ("param", "state")))

    @property
    def fed(self) -> tuple[Value, ...]:
        """Inputs that a step loads."""
        loads = [s.instruction for s in self.steps if isinstance(s.work, Load)]
        return tuple(dict.fromkeys(v for i in loads for v in i.outputs if self.kind(v) == "input"))

    def kind(self, value: Value) -> str:
        """input, param, state or seed."""
        return LOADED.get(self.program.graph.tensors[value.tensor].kind, "")


def goals(program: Program) -> Goals:
    """What the program's last values are. Raises HapError HAP709 where something held has no new value in its placement."""
    graph = program.graph
    made: dict[str, list[Value]] = {}
    for instruction in program.instructions:
        for value in instruction.outputs:
            made.setdefault(value.tensor, []).append(value)
    loaded = {v for i in program.instructions if i.op in LOADS and i.node is None for v in i.outputs}
    updated: dict[Value, Value] = {}
    for name, new in graph.updates.items():
        for held in dict.fromkeys(made.get(name, ())) if new in made else ():
            if held in loaded:
                updated[held] = Value(new, held.placement)
                if updated[held] not in made[new]:
                    raise error("HAP709", f"{held} is held, but there is no {updated[held]}", status=1)
    wanted = (*graph.outputs, *graph.metrics)
    outputs = {name: made[name][-1] for name in wanted if name in made}
    loss = made[graph.loss][-1] if graph.loss in made else None
    return Goals(loss, outputs, updated)


def lower(
    program: Program,
    devices: Sequence[int] | None = None,
    dtypes: Mapping[str, torch.dtype] = DTYPES,
    clock: Clock | None = None,
    allow: Set[str] = frozenset(),
    keep_all: bool = False,
) -> Lowered:
    """Lower a complete program for some devices (all where None). `keep_all` lets no value end.

    Raises HapError: HAP700, HAP701 no kernel; HAP707 pieces that don't fit; HAP709 no new value of a parameter;
    HAP715 an instruction that can't run. Cost: O(instructions × devices lowered for × operands).
    """
    wanted = tuple(range(program.layout.devices)) if devices is None else tuple(devices)
    clock = clock or Clock()
    aims = goals(program)
    slots: dict[Value, int] = {}
    for instruction in program.instructions:
        for value in instruction.outputs:
            slots.setdefault(value, len(slots))
    ends = _ends(program.instructions, set() if keep_all else set(slots) - set(aims.values))
    sums = _sums(program) if program.graph.turns > 1 else {}
    steps = []
    for number, instruction in enumerate(program.instructions):
        if instruction.op == "free":
            continue
        missing = next((v for v in instruction.inputs if v not in slots), None)
        if missing is not None:
            raise error("HAP715", f"{missing} is read, but nothing makes it", instruction.span)
        work = _work(program, instruction, wanted, dtypes, clock, allow)
        steps.append(
            Step(
                work,
                tuple(slots[v] for v in instruction.inputs),
                tuple(slots[v] for v in instruction.outputs),
                tuple(slots[v] for v in ends[number]),
                instruction,
                tuple(slots[v] for v in sums.get(number, ())),
            )
        )
    return Lowered(program, wanted, tuple(steps), slots, aims, clock, dtypes)


def _ends(instructions: Sequence[Instruction], mortal: set[Value]) -> list[tuple[Value, ...]]:
    """For each instruction the values that nothing reads behind it before they are made again.

    A `free` adds nothing: a value that is freed has been read for the last time before.
    """
    ends: list[tuple[Value, ...]] = []
    live: set[Value] = set()
    for instruction in reversed(instructions):
        if instruction.op == "free":
            ends.append(())
            continue
        touched = dict.fromkeys((*instruction.inputs, *instruction.outputs))
        ends.append(tuple(v for v in touched if v not in live and v in mortal))
        live -= set(instruction.outputs)
        live |= set(instruction.inputs)
    return ends[::-1]


def _sums(program: Program) -> dict[int, list[Value]]:
    """By the number of the last instruction of a turn that has to do with them: the values whose sum over turns is read."""
    wanted = summed(program.instructions)
    last: dict[Value, int] = {}
    for number, instruction in enumerate(program.instructions):
        if instruction.section in TURN:
            last.update({v: number for v in (*instruction.inputs, *instruction.outputs) if v in wanted})
    found: dict[int, list[Value]] = {}
    for value, number in last.items():
        found.setdefault(number, []).append(value)
    return found


def _work(
    program: Program,
    instruction: Instruction,
    devices: Sequence[int],
    dtypes: Mapping[str, torch.dtype],
    clock: Clock,
    allow: Set[str],
) -> Work:
    node = instruction.node
    if node is not None:
        calls = {
            d: prepare(
                node,
                [ranges(program, v, d) for v in instruction.inputs],
                [ranges(program, v, d) for v in instruction.outputs],
                clock,
                dtypes,
                allow,
            )
            for d in devices
        }
        return Compute(calls)
    if instruction.op in LOADS:
        return Load(instruction.outputs)
    if instruction.op in LOCAL:
        return _convert(program, instruction, devices)
    if instruction.op in COLLECTIVES:
        groups = tuple(tuple(g) for g in program.layout.groups(instruction.axis))
        reduces = instruction.op in ("all_reduce", "reduce_scatter")
        pairs = list(zip(instruction.inputs, instruction.outputs, strict=True))
        moved = tuple(tuple(transfer(program, s, t, g, reduces) for s, t in pairs) for g in groups)
        dtype = dtypes[instruction.dtype] if instruction.dtype is not None else None
        method = instruction.method or METHODS[instruction.op][0]
        return Exchange(instruction.op, method, instruction.axis, groups, moved, dtype)
    raise error("HAP715", f"'{instruction.op}' can't be run", instruction.span)


def _convert(program: Program, instruction: Instruction, devices: Sequence[int]) -> Convert:
    cuts: dict[int, tuple[Slices, ...]] = {}
    keeps: set[int] = set()
    for d in devices:
        own = []
        for source, target in zip(instruction.inputs, instruction.outputs, strict=True):
            before, after = ranges(program, source, d), ranges(program, target, d)
            inside = all(
                b.offset <= a.offset and a.offset + a.length <= b.offset + b.length
                for a, b in zip(after, before, strict=True)
            )
            if not inside and all(sizes(after)):
                raise error(
                    "HAP707", f"device {d} doesn't hold the piece of {target} in {source}", instruction.span, status=1
                )
            own.append(slices(after, before) if inside else tuple(slice(0, n) for n in sizes(after)))
        cuts[d] = tuple(own)
        axis = instruction.axis
        if instruction.op == "slice" or program.layout.coordinates[d][axis] == 0:
            keeps.add(d)
    return Convert(cuts, keeps)
