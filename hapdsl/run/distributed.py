"""The torch.distributed executor: one rank's part of a program."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from hapdsl.graph.program import Program, Value
from hapdsl.lang.diagnostics import error
from hapdsl.run import backend, levels
from hapdsl.run.context import Clock, Ranges, dtypes_at
from hapdsl.run.groups import Group
from hapdsl.run.lower import Compute, Convert, Exchange, Load, Lowered, Step, lower
from hapdsl.run.pieces import Slices, Transfer, cut, of_turn, sizes, slices, volume

Fed = Mapping[Value, Sequence[Tensor]]  # a rank's share of each input, turn by turn


class Rank:
    """One device of a program. The default process group must be up, with as many ranks as the program has devices.

    Parameters and state carry over from step to step. Raises HapError HAP717 where the ranks hold different
    programs, HAP718 where there are more or fewer ranks than devices. `keep_all` makes `step` return every value.
    """

    def __init__(
        self,
        program: Program,
        dtype: torch.dtype | None = None,
        seed: int = 0,
        allow: Set[str] = frozenset(),
        keep_all: bool = False,
    ) -> None:
        self.program = program
        self.rank = dist.get_rank()
        if dist.get_world_size() != program.layout.devices:
            raise error("HAP718", f"{dist.get_world_size()} processes for {program.layout.devices} devices")
        self.clock = Clock(seed, 1)
        self.lowered = lower(program, [self.rank], dtypes_at(dtype), self.clock, allow, keep_all)
        self.groups = groups(program, self.rank)
        self.moves = {
            k: Move(step.work, self.groups[step.work.axis], self.lowered, step)
            for k, step in enumerate(self.lowered.steps)
            if isinstance(step.work, Exchange)
        }
        self.held: dict[Value, Tensor] = {}
        agree(program)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Cut this rank's share of global parameters, buffers and state. Raises HapError HAP706."""
        self.held = {value: self.cut(value, tensors) for value in self.lowered.held}

    def cut(self, value: Value, tensors: Mapping[str, Tensor]) -> Tensor:
        """This rank's share of a global tensor."""
        if value.tensor not in tensors:
            raise error("HAP706", f"no value is given for '{value.tensor}'")
        return cut(self.program, value, self.rank, tensors[value.tensor], self.lowered.dtypes)

    def feed(self, inputs: Mapping[str, Tensor]) -> Fed:
        """This rank's share of a global batch, turn by turn, ready for `step`."""
        graph = self.program.graph
        turns = range(self.lowered.turns)
        return {v: [self.cut(v, of_turn(graph, v.tensor, inputs, t)) for t in turns] for v in self.lowered.fed}

    def step(self, fed: Fed) -> dict[Value, Tensor]:
        """Run one step on this rank's inputs (`feed`); returns the local tensors of the goals (of all values with `keep_all`)."""
        store: list[Tensor | None] = [None] * len(self.lowered.slots)
        totals: dict[int, Tensor] = {}
        for turn in range(self.lowered.turns):
            self.clock.turn = turn
            for number in self.lowered.loop:
                self.one(number, store, fed, totals)
        for slot, total in totals.items():
            store[slot] = total
        for number in self.lowered.after:
            self.one(number, store, fed, totals)
        goals = {v: held for v, slot in self.lowered.slots.items() if (held := store[slot]) is not None}
        for old, new in self.lowered.goals.updated.items():
            self.held[old] = goals[new]
        self.clock.step += 1
        return goals

    def one(self, number: int, store: list[Tensor | None], fed: Fed, totals: dict[int, Tensor]) -> None:
        step = self.lowered.steps[number]
        made = self.run(number, step, store, fed)
        for slot, value in zip(step.outputs, made, strict=True):
            store[slot] = value
        for slot in step.sums:
            part = _made(store[slot])
            totals[slot] = totals[slot] + part if slot in totals else part
            store[slot] = None
        for slot in step.drops:
            store[slot] = None

    def run(self, number: int, step: Step, store: Sequence[Tensor | None], fed: Fed) -> Sequence[Tensor]:
        read = [_made(store[slot]) for slot in step.inputs]
        match step.work:
            case Load(values=values):
                return [self.fetch(value, fed) for value in values]
            case Compute(calls=calls):
                return calls[self.rank](read)
            case Convert() as convert:
                pieces = [local[s] for local, s in zip(read, convert.slices[self.rank], strict=True)]
                return pieces if self.rank in convert.keeps else [torch.zeros_like(p) for p in pieces]
            case Exchange():
                return self.moves[number](read)

    def fetch(self, value: Value, fed: Fed) -> Tensor:
        if value in self.held:
            return self.held[value]
        if value in fed:
            return fed[value][self.clock.turn]
        declared = self.program.graph.tensors[value.tensor]
        if self.lowered.kind(value) != "seed":
            raise error("HAP706", f"no value is given for '{value.tensor}'", declared.span)
        return self.cut(value, {value.tensor: torch.ones(declared.shape)})


def _made(value: Tensor | None) -> Tensor:
    assert value is not None, "a value was dropped before its last reader"
    return value


def groups(program: Program, rank: int) -> list[Group]:
    """This rank's group along each mesh axis. Every rank makes all groups, in one order, as torch asks."""
    found = []
    world = tuple(range(program.layout.devices))
    asked = {i.axis for i in program.instructions if i.method in ("tree", "hierarchical")}
    names = levels.node_names() if asked else []
    for axis in range(len(program.layout.mesh)):
        for members in program.layout.groups(axis):
            ranks = tuple(members)
            handle = None if ranks == world or len(ranks) == 1 else dist.new_group(list(ranks))
            group = Group(ranks, ranks.index(rank) if rank in ranks else -1, handle)
            if axis in asked:
                group = replace(group, levels=levels.levels(group, names))
            if rank in ranks:
                found.append(group)
    return found


def agree(program: Program) -> None:
    """Raises HapError HAP717 unless all ranks hold the same program for the same model and shares."""
    digest = hashlib.blake2b(program.graph.fingerprint.encode(), digest_size=8)
    for cls, cuts in sorted(program.layout.shares.items()):
        digest.update(f"{cls}{sorted((axes, list(map(int, shares))) for axes, shares in cuts.items())}".encode())
    for i in program.instructions:
        digest.update(f"{i.op}{i.method}{i.axis}{i.dtype}{[*map(str, i.inputs)]}{[*map(str, i.outputs)]}".encode())
    own = torch.tensor([int.from_bytes(digest.digest(), "little", signed=True)])
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    different = [r for r, other in enumerate(every) if not torch.equal(other, every[0])]
    if different:
        raise error("HAP717", f"ranks {', '.join(map(str, different))} hold another program than rank 0")


@dataclass(frozen=True)
class Part:
    """A block of one operand in a message: where it is taken from or put to, and its shape."""

    operand: int
    slices: Slices
    shape: tuple[int, ...]
    length: int


@dataclass(frozen=True)
class Bundle:
    """The operands of one dtype, which travel in one message.

    `takes[j]` are the blocks for member j, `puts[i]` those that come from member i, `lengths[i][j]` the
    elements that member i has for member j.
    """

    operands: tuple[int, ...]
    takes: tuple[tuple[Part, ...], ...]
    puts: tuple[tuple[Part, ...], ...]
    lengths: tuple[tuple[int, ...], ...]


class Move:
    """One collective on one rank, with its blocks and lengths worked out."""

    def __init__(self, exchange: Exchange, group: Group, lowered: Lowered, step: Step) -> None:
        self.exchange, self.group = exchange, group
        self.transfers = exchange.transfers[exchange.groups.index(group.ranks)]
        self.expected = [sizes(t.sources[group.me]) for t in self.transfers]
        self.targets = [sizes(t.targets[group.me]) for t in self.transfers]
        by_dtype: dict[torch.dtype, list[int]] = {}
        for k, value in enumerate(step.instruction.inputs):
            dtype = exchange.dtype or lowered.dtypes[lowered.program.graph.tensors[value.tensor].dtype]
            by_dtype.setdefault(dtype, []).append(k)
        self.bundles = [self.bundle(operands) for operands in by_dtype.values()]

    def bundle(self, operands: Sequence[int]) -> Bundle:
        me, members = self.group.me, range(self.group.size)
        takes = [[_part(k, self.transfers[k], me, j, taking=True) for k in operands] for j in members]
        puts = [[_part(k, self.transfers[k], i, me, taking=False) for k in operands] for i in members]
        lengths = [[sum(volume(self.transfers[k].block(i, j)) for k in operands) for j in members] for i in members]
        return Bundle(
            tuple(operands),
            tuple(tuple(p for p in row if p is not None) for row in takes),
            tuple(tuple(p for p in row if p is not None) for row in puts),
            tuple(map(tuple, lengths)),
        )

    def __call__(self, locals: Sequence[Tensor]) -> list[Tensor]:
        """The operands as this rank holds them afterwards. Raises HapError HAP716 for a local tensor of another shape."""
        for local, shape in zip(locals, self.expected, strict=True):
            if tuple(local.shape) != shape:
                raise error("HAP716", f"{self.exchange.op} got {list(local.shape)}, the layout says {list(shape)}")
        sent = locals if self.exchange.dtype is None else [t.to(self.exchange.dtype) for t in locals]
        made: list[Tensor] = list(sent)
        for bundle in self.bundles:
            self.move(bundle, sent, made)
        return [t.to(own.dtype) for t, own in zip(made, locals, strict=True)]

    def move(self, bundle: Bundle, locals: Sequence[Tensor], made: list[Tensor]) -> None:
        group, op, method, me = self.group, self.exchange.op, self.exchange.method, self.group.me
        if op == "all_reduce":
            total = backend.all_reduce(_packed(bundle.takes[me], locals, bundle.operands), group, method)
            self.unpack([(bundle.puts[me], total)], bundle, made)
        elif op == "reduce_scatter":
            parts = [_packed(parts, locals, bundle.operands) for parts in bundle.takes]
            total = backend.reduce_scatter(parts, bundle.lengths[me], group, method)
            self.unpack([(bundle.puts[me], total)], bundle, made)
        elif op == "all_gather":
            lengths = [row[me] for row in bundle.lengths]
            found = backend.all_gather(_packed(bundle.takes[me], locals, bundle.operands), lengths, group, method)
            self.unpack(zip(bundle.puts, found, strict=True), bundle, made)
        else:
            parts = [_packed(parts, locals, bundle.operands) for parts in bundle.takes]
            found = backend.all_to_all(parts, bundle.lengths, group)
            self.unpack(zip(bundle.puts, found, strict=True), bundle, made)

    def unpack(self, messages: Iterable[tuple[Sequence[Part], Tensor]], bundle: Bundle, made: list[Tensor]) -> None:
        """Lay the blocks of each message where they belong; one that is a whole operand is taken as it came."""
        fresh: dict[int, Tensor] = {}
        for parts, message in messages:
            blocks = message.split([p.length for p in parts]) if parts else ()
            for part, block in zip(parts, blocks, strict=True):
                k = part.operand
                if part.shape == self.targets[k]:
                    fresh[k] = block.view(part.shape)
                    continue
                if k not in fresh:
                    fresh[k] = block.new_empty(self.targets[k])
                fresh[k][part.slices] = block.view(part.shape)
        for k in bundle.operands:
            made[k] = fresh[k] if k in fresh else made[k].new_empty(self.targets[k])


def _part(operand: int, transfer: Transfer, source: int, target: int, taking: bool) -> Part | None:
    block = transfer.block(source, target)
    if block is None:
        return None
    within: Ranges = transfer.sources[source] if taking else transfer.targets[target]
    return Part(operand, slices(block, within), sizes(block), volume(block))


def _packed(parts: Sequence[Part], locals: Sequence[Tensor], operands: Sequence[int]) -> Tensor:
    """The blocks of several operands behind one another, in a buffer of their own."""
    if not parts:
        return locals[operands[0]].new_empty(0)
    return torch.cat([locals[p.operand][p.slices].reshape(-1) for p in parts])
