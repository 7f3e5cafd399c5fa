"""One collective of a program on one rank: which blocks it packs into messages, and where it lays what arrives.

Everything is worked out beforehand. `Move.start` packs and starts, `Under.finish` waits and unpacks; between the two only the messages
are held, so what was sent may end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hapdsl.lang.diagnostics import error
from hapdsl.run import collectives
from hapdsl.run.collectives import Flight, Phases
from hapdsl.run.context import Ranges
from hapdsl.run.groups import Group
from hapdsl.run.lower import Exchange, Lowered, Step
from hapdsl.run.pieces import Slices, Transfer, sizes, slices, volume

PHASED = ("tree", "hierarchical")  # methods that start things one after another


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

    dtype: torch.dtype
    operands: tuple[int, ...]
    takes: tuple[tuple[Part, ...], ...]
    puts: tuple[tuple[Part, ...], ...]
    lengths: tuple[tuple[int, ...], ...]


Fresh = dict[int, Tensor]  # operand -> what this rank holds of it afterwards


class Move:
    """One collective on one rank, with its blocks and lengths worked out."""

    def __init__(self, exchange: Exchange, group: Group, lowered: Lowered, step: Step) -> None:
        self.exchange, self.group = exchange, group
        self.transfers = exchange.transfers[exchange.groups.index(group.ranks)]
        self.expected = [sizes(t.sources[group.me]) for t in self.transfers]
        self.targets = [sizes(t.targets[group.me]) for t in self.transfers]
        own = [lowered.dtypes[lowered.program.graph.tensors[v.tensor].dtype] for v in step.instruction.inputs]
        self.own = own
        by_dtype: dict[torch.dtype, list[int]] = {}
        for k, dtype in enumerate(own):
            by_dtype.setdefault(exchange.dtype or dtype, []).append(k)
        self.bundles = [self.bundle(dtype, operands) for dtype, operands in by_dtype.items()]

    @property
    def phased(self) -> bool:
        """Does it start something only when something else has been waited for?"""
        return self.exchange.method in PHASED

    def bundle(self, dtype: torch.dtype, operands: Sequence[int]) -> Bundle:
        me, members = self.group.me, range(self.group.size)
        takes = [[_part(k, self.transfers[k], me, j, taking=True) for k in operands] for j in members]
        puts = [[_part(k, self.transfers[k], i, me, taking=False) for k in operands] for i in members]
        lengths = [[sum(volume(self.transfers[k].block(i, j)) for k in operands) for j in members] for i in members]
        return Bundle(
            dtype,
            tuple(operands),
            tuple(tuple(p for p in row if p is not None) for row in takes),
            tuple(tuple(p for p in row if p is not None) for row in puts),
            tuple(map(tuple, lengths)),
        )

    def start(self, locals: Sequence[Tensor]) -> Under:
        """Pack the operands and start their messages. Raises HapError HAP716 for a local tensor of another shape."""
        for local, shape in zip(locals, self.expected, strict=True):
            if local.shape != shape:
                raise error("HAP716", f"{self.exchange.op} got {list(local.shape)}, the layout says {list(shape)}")
        if self.group.size == 1 and self.exchange.dtype is None:
            return Under(self, locals[0].device, [], dict(enumerate(locals)))
        packed = [self.phases(bundle, locals) for bundle in self.bundles]
        if self.phased:
            packed = [_behind_one_another(packed)]
        return Under(self, locals[0].device, [Flight(phases) for phases in packed])

    def phases(self, bundle: Bundle, locals: Sequence[Tensor]) -> Phases[Fresh]:
        """Packed here, before it is a generator, so that it doesn't hold on to the operands."""
        group, op, method, me = self.group, self.exchange.op, self.exchange.method, self.group.me
        if op == "all_reduce":
            total = collectives.all_reduce(_packed(bundle, me, locals), group, method)
            return self.whole(total, bundle)
        if op == "reduce_scatter":
            parts = [_packed(bundle, j, locals) for j in range(group.size)]
            return self.whole(collectives.reduce_scatter(parts, bundle.lengths[me], group, method), bundle)
        if op == "all_gather":
            lengths = [row[me] for row in bundle.lengths]
            return self.each(collectives.all_gather(_packed(bundle, me, locals), lengths, group, method), bundle)
        parts = [_packed(bundle, j, locals) for j in range(group.size)]
        return self.each(collectives.all_to_all(parts, bundle.lengths, group, method), bundle)

    def whole(self, phases: Phases[Tensor], bundle: Bundle) -> Phases[Fresh]:
        total = yield from phases
        return self.unpack([(bundle.puts[self.group.me], total)], bundle)

    def each(self, phases: Phases[list[Tensor]], bundle: Bundle) -> Phases[Fresh]:
        found = yield from phases
        return self.unpack(zip(bundle.puts, found, strict=True), bundle)

    def unpack(self, messages: Iterable[tuple[Sequence[Part], Tensor]], bundle: Bundle) -> Fresh:
        """Lay the blocks of each message where they belong.

        A message that is one whole operand is taken as it came; where there is more in its memory, the operand gets memory of its own, so that it can
        end by itself.
        """
        fresh: Fresh = {}
        for parts, message in messages:
            blocks = message.split([p.length for p in parts]) if parts else ()
            for part, block in zip(parts, blocks, strict=True):
                k = part.operand
                if part.shape == self.targets[k]:
                    alone = block.untyped_storage().nbytes() == block.nbytes
                    fresh[k] = block.view(part.shape) if alone else block.view(part.shape).clone()
                    continue
                if k not in fresh:
                    fresh[k] = block.new_empty(self.targets[k])
                fresh[k][part.slices] = block.view(part.shape)
        return fresh


def _behind_one_another(several: Sequence[Phases[Fresh]]) -> Phases[Fresh]:
    """Phases of two messages that share groups must come in one order on all ranks."""
    made: Fresh = {}
    for phases in several:
        made |= yield from phases
    return made


class Under:
    """A collective under way; `made` is what was there without one."""

    def __init__(
        self, move: Move, device: torch.device, flights: Sequence[Flight[Fresh]], made: Fresh | None = None
    ) -> None:
        self.move, self.device, self.flights, self.made = move, device, flights, made or {}

    @property
    def arrived(self) -> bool:
        """Is everything there that is under way? Of messages in several phases only the one that has been started is meant."""
        return all(flight.arrived for flight in self.flights)

    def poll(self) -> None:
        """Unpack what has arrived already."""
        if not self.move.phased:
            for flight in self.flights:
                flight.poll()

    def finish(self) -> list[Tensor]:
        """Wait; returns the operands as this rank holds them afterwards."""
        made = self.made
        for flight in self.flights:
            made |= flight.wait()
        shapes = zip(self.move.own, self.move.targets, strict=True)
        return [
            made[k].to(own) if k in made else torch.empty(shape, dtype=own, device=self.device)
            for k, (own, shape) in enumerate(shapes)
        ]


def _part(operand: int, transfer: Transfer, source: int, target: int, taking: bool) -> Part | None:
    block = transfer.block(source, target)
    if block is None:
        return None
    within: Ranges = transfer.sources[source] if taking else transfer.targets[target]
    return Part(operand, slices(block, within), sizes(block), volume(block))


def _block(local: Tensor, part: Part) -> Tensor:
    return local if local.shape == part.shape else local[part.slices]


def _packed(bundle: Bundle, member: int, locals: Sequence[Tensor]) -> Tensor:
    """The blocks for a member behind one another, in a buffer of their own and the dtype they travel in."""
    parts = bundle.takes[member]
    if not parts:
        return locals[0].new_empty(0, dtype=bundle.dtype)
    taken = [_block(locals[p.operand], p).reshape(-1) for p in parts]
    if any(t.dtype != bundle.dtype for t in taken):
        taken = [t.to(bundle.dtype) for t in taken]
    return torch.cat(taken)
