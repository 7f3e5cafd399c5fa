"""The in-process executor: one process holds what every device holds, and runs the program for all of them.

Collectives are done exactly, by moving and adding the pieces that the layout names; it is what tests and
`check --numeric` compare with one device.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

import torch
from torch import Tensor

from hapdsl.graph.program import Program, Value
from hapdsl.run.context import Clock, dtypes_at
from hapdsl.run.lower import Compute, Convert, Exchange, Load, Step, lower
from hapdsl.run.pieces import assemble, cut, given, of_turn, sizes, slices
from hapdsl.run.threads import one_thread

Locals = dict[Value, list[Tensor]]  # value -> one tensor per device


class InProcess:
    """A program at work on all its devices.

    `dtype` runs every floating tensor at one precision (torch.float64 for exact comparison); `keep_all` makes
    `step` return every value and not only the goals. Parameters and state carry over from step to step, on `device`.
    `beside` is an executor of the same training, on batches of another size: they share its clock.
    """

    def __init__(
        self,
        program: Program,
        dtype: torch.dtype | None = None,
        seed: int = 0,
        allow: Set[str] = frozenset(),
        keep_all: bool = False,
        device: torch.device | None = None,
        beside: InProcess | None = None,
    ) -> None:
        self.program, self.device = program, device or torch.device("cpu")
        self.clock: Clock = Clock(seed, 1) if beside is None else beside.clock
        self.lowered = lower(program, None, dtypes_at(dtype), self.clock, allow, keep_all)
        self.held: Locals = {}

    @property
    def devices(self) -> int:
        return self.program.layout.devices

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Cut global parameters, buffers and state to the devices. Raises HapError HAP706 for one that is missing or misshapen."""
        self.held = {value: self.cut(value, tensors) for value in self.lowered.held}

    def cut(self, value: Value, tensors: Mapping[str, Tensor]) -> list[Tensor]:
        whole = given(value, tensors)
        locals = (cut(self.program, value, d, whole, self.lowered.dtypes) for d in range(self.devices))
        return [local.to(self.device) for local in locals]

    def step(self, inputs: Mapping[str, Tensor], step: int | None = None) -> Locals:
        """Run one step on global inputs; parameters and state are replaced by their new values.

        `step` counts from 1 and goes up by itself. Returns the goals' local values (all values with `keep_all`).
        Raises HapError as kernels do.
        """
        if step is not None:
            self.clock.step = step
        store: list[list[Tensor] | None] = [None] * len(self.lowered.slots)
        totals: dict[int, list[Tensor]] = {}
        for turn in range(self.lowered.turns):
            self.clock.turn = turn
            for k in self.lowered.loop:
                self.one(self.lowered.steps[k], store, inputs, totals)
        for slot, total in totals.items():
            store[slot] = total
        for k in self.lowered.after:
            self.one(self.lowered.steps[k], store, inputs, totals)
        made = {v: held for v, slot in self.lowered.slots.items() if (held := store[slot]) is not None}
        for old, new in self.lowered.goals.updated.items():
            self.held[old] = made[new]
        self.clock.step += 1
        return made

    def one(
        self,
        step: Step,
        store: list[list[Tensor] | None],
        inputs: Mapping[str, Tensor],
        totals: dict[int, list[Tensor]],
    ) -> None:
        self.run(step, store, inputs)
        for slot in step.sums:
            made = _made(store[slot])
            totals[slot] = [a + b for a, b in zip(totals[slot], made, strict=True)] if slot in totals else made
            store[slot] = None
        for slot in step.drops:
            store[slot] = None

    def run(self, step: Step, store: list[list[Tensor] | None], inputs: Mapping[str, Tensor]) -> None:
        read = [_made(store[slot]) for slot in step.inputs]
        match step.work:
            case Load(values=values):
                made = [self.fetch(value, inputs) for value in values]
            case Compute(calls=calls):
                per_device = [calls[d]([r[d] for r in read]) for d in range(self.devices)]
                made = [list(column) for column in zip(*per_device, strict=True)]
            case Convert() as convert:
                made = [[_convert(convert, d, k, r[d]) for d in range(self.devices)] for k, r in enumerate(read)]
            case exchange:
                made = [_exchange(exchange, k, r) for k, r in enumerate(read)]
        for slot, value in zip(step.outputs, made, strict=True):
            store[slot] = value

    def fetch(self, value: Value, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        if value in self.held:
            return self.held[value]
        if self.lowered.kind(value) == "seed" and value.tensor not in inputs:
            return self.cut(value, {value.tensor: torch.ones(self.program.graph.tensors[value.tensor].shape)})
        return self.cut(value, of_turn(self.program.graph, value.tensor, inputs, self.clock.turn))


def _made(value: list[Tensor] | None) -> list[Tensor]:
    assert value is not None, "a value was dropped before its last reader"
    return value


def _convert(convert: Convert, device: int, operand: int, local: Tensor) -> Tensor:
    piece = local[convert.slices[device][operand]]
    return piece if device in convert.keeps else torch.zeros_like(piece)


def _exchange(exchange: Exchange, operand: int, locals: list[Tensor]) -> list[Tensor]:
    """What every device holds of one operand after a collective."""
    if exchange.dtype is not None and exchange.dtype != locals[0].dtype:
        sent = _exchange(replace(exchange, dtype=None), operand, [t.to(exchange.dtype) for t in locals])
        return [t.to(locals[0].dtype) for t in sent]
    made: list[Tensor] = list(locals)
    for group, transfers in zip(exchange.groups, exchange.transfers, strict=True):
        transfer = transfers[operand]
        for j, device in enumerate(group):
            if j > 0 and transfer.uniform:
                made[device] = made[group[0]]
                continue
            target = transfer.targets[j]
            whole = locals[device].new_zeros(sizes(target))
            for i, source in enumerate(group):
                block = transfer.block(i, j)
                if block is None:
                    continue
                taken = locals[source][slices(block, transfer.sources[i])]
                if transfer.reduces:
                    whole += taken
                else:
                    whole[slices(block, target)] = taken
            made[device] = whole
    return made


def simulate(
    program: Program,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype | None = None,
    step: int = 1,
    seed: int = 0,
    allow: Set[str] = frozenset(),
) -> Locals:
    """One step of a program: the local tensors of every value it makes, one per device.

    `tensors` are global: inputs, parameters and state. Raises HapError (HAP7xx).
    """
    executor = InProcess(program, dtype, seed, allow, keep_all=True)
    executor.load(tensors)
    with one_thread():
        return executor.step(tensors, step)


def gather(program: Program, made: Locals, tensor: str, tolerance: float = 0.0) -> Tensor:
    """The global tensor from the last value of it that was made, whatever its placement."""
    value = [v for v in made if v.tensor == tensor][-1]
    return assemble(program, value, made[value], tolerance)
