"""The torch.distributed executor: one rank's part of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hapdsl import __version__
from hapdsl.graph.program import Program, Value
from hapdsl.lang.diagnostics import error
from hapdsl.run import actions, levels
from hapdsl.run.actions import Action, Store
from hapdsl.run.backends import GLOO, Backend, require
from hapdsl.run.compiled import segments
from hapdsl.run.context import Clock, dtypes_at
from hapdsl.run.fingerprint import differing, fingerprint
from hapdsl.run.gradients import Gradients, chosen
from hapdsl.run.groups import Group
from hapdsl.run.inplace import written
from hapdsl.run.lower import Compute, Convert, Exchange, Load, lower
from hapdsl.run.moves import PHASED, Move
from hapdsl.run.pieces import cut, given, of_turn

Fed = Mapping[Value, Sequence[Tensor]]  # a rank's share of each input, turn by turn


class Held(dict[Value, Tensor]):
    """What a rank holds between steps. `torn` while updates are written over it: some values are new then, others old."""

    torn = False


class Rank:
    """One device of a program. The default process group must be up, with as many ranks as the program has devices.

    Parameters and state carry over from step to step, on `device`. Raises HapError HAP717 where the ranks hold different
    programs, HAP718 where there are more or fewer ranks than devices, HAP722 a dtype that the device lacks. `keep_all` makes `step` return every value.
    `scale` is that of gradients: "auto" (dynamic where something is f16), "off", or a number to begin with.
    `compiled` has torch.compile make one function of what stands between two collectives.
    `beside` is this rank of the same training, on batches of another size: they share its clock and the scale of gradients.
    """

    def __init__(
        self,
        program: Program,
        dtype: torch.dtype | None = None,
        seed: int = 0,
        allow: Set[str] = frozenset(),
        keep_all: bool = False,
        backend: Backend = GLOO,
        scale: str | float = "auto",
        compiled: bool = False,
        beside: Rank | None = None,
    ) -> None:
        self.program = program
        self.rank = dist.get_rank()
        if dist.get_world_size() != program.layout.devices:
            raise error(
                "HAP718", f"{dist.get_world_size()} processes for a program on {program.layout.devices} devices"
            )
        agree(program)  # first: a rank with another program makes other groups, and all would wait for one another
        self.backend, self.device = backend, backend.device()
        self.clock: Clock = Clock(seed, 1) if beside is None else beside.clock
        self.lowered = lower(program, [self.rank], dtypes_at(dtype), self.clock, allow, keep_all)
        require(backend, self.device, self.lowered.torch_dtypes)
        self.groups = groups(program, self.rank, backend)
        self._held = Held()
        self.fed: Fed = {}
        self.totals: dict[int, Tensor] = {}
        self.under: dict[int, Any] = {}  # collectives under way, by step
        self.seeds: dict[Value, Tensor] = {}
        self.moves = {
            k: Move(step.work, self.groups[step.work.axis], self.lowered, step)
            for k, step in enumerate(self.lowered.steps)
            if isinstance(step.work, Exchange)
        }
        self.gradients = Gradients(self.lowered, self.rank, self.device)
        self.gradients.scale = chosen(scale, self.gradients) if beside is None else beside.gradients.scale
        # A step that is found wanting behind its last line (f16) changes nothing.
        self.written = {} if self.gradients.scale is not None else written(self.lowered, self.rank)
        loop, after = list(self.lowered.loop), list(self.lowered.after)
        once = self.lowered.turns == 1
        self.loop = self.listed(loop + after if once else loop)
        self.after = self.listed([] if once else after)
        if compiled:
            self.loop, self.after = (segments(part, self.lowered.steps, self.rank) for part in (self.loop, self.after))

    def listed(self, numbers: Sequence[int]) -> list[Action]:
        """The actions of some lowered steps, in order."""
        made: list[Action] = []
        for what, k in actions.scheduled(numbers, self.lowered.steps, self.moves):
            step = self.lowered.steps[k]
            if what != "finish" and (crossing := self.gradients.crossing(k)) is not None:
                made.append(Action("gradient", k, crossing))
            if what == "start":
                made.append(Action("poll", k, actions.polling(self.under)))
                made.append(Action("start", k, actions.starting(self.moves[k], step, self.under, k)))
                continue
            if what == "finish":
                made.append(Action("finish", k, actions.finishing(step, self.under, k)))
            else:
                match step.work:
                    case Load(values=values):
                        act = actions.loading(self.fetch, step, values)
                    case Compute(calls=calls):
                        act = actions.computing(calls[self.rank], step, self.written.get(k, frozenset()), self._begun)
                    case Convert() as convert:
                        act = actions.converting(convert, step, self.rank)
                    case Exchange():
                        raise AssertionError("a collective is started and finished")
                made.append(Action(actions.kinds(step), k, act))
            if step.sums:
                made.append(Action("sum", k, actions.summing(step.sums, self.totals)))
        last = self.gradients.crossing(len(self.lowered.steps))
        if last is not None and numbers and numbers[-1] == len(self.lowered.steps) - 1:
            made.append(Action("gradient", len(self.lowered.steps) - 1, last))
        return made

    @property
    def held(self) -> Held:
        """Parameters, buffers and state, by the value they are loaded as. A step writes new ones over the old where it may (`hapdsl.run.inplace`), so
        who wants to keep one copies it.

        Raises HapError HAP764 behind a step that ended in the middle of its updates.
        """
        if self._held.torn:
            raise error(
                "HAP764",
                "a step ended in the middle of its updates: some parameters are this step's, some the last one's",
                help="go on from the last checkpoint",
            )
        return self._held

    @held.setter
    def held(self, values: Mapping[Value, Tensor]) -> None:
        self._held = values if isinstance(values, Held) else Held(values)

    def _begun(self) -> None:
        self._held.torn = True

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Cut this rank's share of global parameters, buffers and state. Raises HapError HAP706."""
        self.held = {value: self.cut(value, tensors) for value in self.lowered.held}

    def cut(self, value: Value, tensors: Mapping[str, Tensor]) -> Tensor:
        """This rank's share of a global tensor, on its device. Raises HapError HAP706."""
        return cut(self.program, value, self.rank, given(value, tensors), self.lowered.dtypes).to(self.device)

    def feed(self, inputs: Mapping[str, Tensor]) -> Fed:
        """This rank's share of a global batch, turn by turn, ready for `step`."""
        graph = self.program.graph
        turns = range(self.lowered.turns)
        return {v: [self.cut(v, of_turn(graph, v.tensor, inputs, t)) for t in turns] for v in self.lowered.fed}

    def step(self, fed: Fed) -> dict[Value, Tensor]:
        """Run one step on this rank's inputs (`feed`); returns the local tensors of the goals (of all values with `keep_all`)."""
        held = self.held
        store: Store = [None] * len(self.lowered.slots)
        self.fed = fed
        self.totals.clear()
        for turn in range(self.lowered.turns):
            self.clock.turn = turn
            for action in self.loop:
                action.run(store)
        for slot, total in self.totals.items():
            store[slot] = total
        self.totals.clear()
        for action in self.after:
            action.run(store)
        self.fed = {}
        goals = {v: made for v, slot in self.lowered.slots.items() if (made := store[slot]) is not None}
        if self.gradients.settle():
            for old, new in self.lowered.goals.updated.items():
                held[old] = goals[new]
            held.torn = False
        else:
            self.clock.skipped += 1
        self.clock.step += 1
        return goals

    def fetch(self, value: Value) -> Tensor:
        if value in self._held:
            return self._held[value]
        if value in self.fed:
            return self.fed[value][self.clock.turn]
        declared = self.program.graph.tensors[value.tensor]
        if self.lowered.kind(value) != "seed":
            raise error("HAP706", f"no value is given for '{value.tensor}'", declared.span)
        if value not in self.seeds:
            self.seeds[value] = self.cut(value, {value.tensor: torch.ones(declared.shape)})
        return self.gradients.scaled(self.seeds[value])


def groups(program: Program, rank: int, backend: Backend = GLOO) -> list[Group]:
    """This rank's group along each mesh axis. Every rank makes all groups, in one order, as torch asks."""
    found = []
    world = tuple(range(program.layout.devices))
    asked = {i.axis for i in program.instructions if i.method in PHASED}
    names = levels.node_names() if asked else []
    for axis in range(len(program.layout.mesh)):
        for members in program.layout.groups(axis):
            ranks = tuple(members)
            handle = None if ranks == world or len(ranks) == 1 else dist.new_group(list(ranks))
            group = Group(ranks, ranks.index(rank) if rank in ranks else -1, handle, backend=backend)
            if axis in asked:
                group = replace(group, levels=levels.levels(group, names))
            if rank in ranks:
                found.append(group)
    return found


def agree(program: Program) -> None:
    """Raises HapError HAP717 unless all ranks hold the same program for the same model and shares, in the same version of hapdsl."""
    version = f"run another version of hapdsl than rank 0 (rank {dist.get_rank()} has {__version__})"
    for said, what in ((__version__, version), (fingerprint(program), "hold another program than rank 0")):
        if different := differing(said):
            raise error(
                "HAP717",
                f"ranks {', '.join(map(str, different))} {what}",
                help="start all ranks with the same file and the same hapdsl",
            )
