"""Gradient accumulation: the loop over microbatches, derived from the graph of the whole batch.

Taking a batch in k turns is cutting its dim over time, and the rules that say what may be cut over devices say what may be cut
so: a tensor with a dim of the batch is shorter in each turn, one that sums over the batch is a partial sum in each turn (so are
the loss and the gradients of parameters), and others are the same in all turns. Kernels divide by the global count, so the
sum over turns is what the whole batch gives, dropout and masked labels included. What no rule allows (statistics over a batch that
are read within it) is refused.

The graph that comes of it has the forward and backward calls of one turn, behind them the sums over turns (`accumulate`), and updates:
`w.grad.turn` is a turn's gradient, `w.grad` that of the step. Cost: linear in calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from hapdsl.graph.drafts import Drafts
from hapdsl.graph.emit import emit
from hapdsl.graph.scope import Draft, DraftNode
from hapdsl.graph.training import SUMS, TrainingGraph
from hapdsl.lang.diagnostics import error
from hapdsl.theory.instance import Given, Instance
from hapdsl.theory.ops import OpDecl
from hapdsl.theory.placements import P, Placement, R, S
from hapdsl.theory.rules import Rule, rules


@dataclass
class Turned:
    """What the division found: the dim of each tensor that is taken in turns, the index of each call (by id), and the
    input that an input with another name is a view of."""

    count: int
    dims: dict[int, int] = field(default_factory=dict)
    indices: dict[int, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


def divide(drafts: Drafts, ops: Mapping[str, OpDecl], updates: dict[int, Draft], whole: TrainingGraph) -> Turned:
    """Turn `drafts`, whose graph is `whole`, into the loop's; `updates` (new values by id of the old) follows.

    Raises HapError HAP208 where the batch can't be taken in turns.
    """
    return _Division(drafts, ops, updates, whole).run()


class _Division:
    def __init__(
        self, drafts: Drafts, ops: Mapping[str, OpDecl], updates: dict[int, Draft], whole: TrainingGraph
    ) -> None:
        assert drafts.microbatch is not None
        self.drafts, self.ops, self.updates, self.whole = drafts, ops, updates, whole
        self.block = drafts.microbatch
        self.found = Turned(self.block.count)
        self.batch = self.members()
        self.places: dict[int, Placement] = {}  # R, S or P over turns
        self.chosen: dict[int, Rule] = {}
        self.loop: list[DraftNode] = []
        self.after: list[DraftNode] = []
        self.wholes: dict[int, Draft] = {}  # by id of an input that is taken in turns: all of it
        self.shares: dict[int, Draft] = {}  # by id of what is the same in all turns: a k-th of it
        # By a call's instance (which `whole` keeps) and rule: layers that are alike share the instances of a turn, too.
        self.instances: dict[tuple[int, Rule], Instance] = {}

    def fail(self, message: str, help: str, where: DraftNode | Draft | None = None) -> NoReturn:
        raise error("HAP208", message, self.block.span if where is None else where.span, help)

    def run(self) -> Turned:
        self.deal()
        for node in list(self.loop):
            self.place(node)
        self.shorten()
        self.accumulate()
        self.drafts.outputs = []  # of a whole batch: those of the evaluation's graph
        self.drafts.nodes = [*self.loop, *self.after]
        return self.found

    # -- what is taken in turns ------------------------------------------------------

    def inside(self, node: DraftNode) -> bool:
        return id(node) in self.block.nodes or node.section == "backward"

    def members(self) -> dict[str, list[int]]:
        """The dims of the batch by tensor: the class of the first dim of the first input that the block reads."""
        read = {id(t) for n in self.drafts.nodes if id(n) in self.block.nodes for t in n.inputs}
        first = next((t for t in self.drafts.tensors if t.kind == "input" and t.shape and id(t) in read), None)
        if first is None:
            self.fail("nothing in this block reads an input", "put the lines that depend on the batch into it")
        cls = self.whole.tensors[first.name].classes[0]
        units = self.whole.classes[cls].units if cls is not None else 1
        if units % self.block.count:
            self.fail(
                f"a batch of {units} can't be taken in {self.block.count} equal turns ('{first.name}' has dim 0 of {first.shape[0]})",
                f"a batch of {-(-units // self.block.count) * self.block.count} can",
            )
        dims: dict[str, list[int]] = {}
        for name, d in self.whole.classes[cls].members if cls is not None else ():
            dims.setdefault(name, []).append(d)
        return dims

    def deal(self) -> None:
        """Which calls are done in each turn, and which once: the latter read no gradient and nothing within the block reads them."""
        wanted: set[int] = set()
        loop: list[DraftNode] = []
        once: list[DraftNode] = []
        updates = [n for n in self.drafts.nodes if n.section == "update"]
        for node in reversed([n for n in self.drafts.nodes if n.section != "update"]):
            if self.inside(node) or any(id(t) in wanted for t in node.outputs):
                wanted.update(id(t) for t in node.inputs)
                loop.append(node)
            else:
                node.section = "update"
                once.append(node)
        self.loop = loop[::-1]
        self.after = [*once[::-1], *updates]

    # -- over turns: whole, a part, or a partial sum ------------------------------------

    def placement(self, tensor: Draft, node: DraftNode) -> Placement:
        """Of a tensor that `node` reads or makes, as far as its dims tell."""
        dims = self.batch.get(tensor.name, [])
        if len(dims) > 1:
            self.fail(
                f"'{tensor.name}' has {len(dims)} dims of the batch, so each sample meets each other one",
                "samples must not mix in a microbatch",
                node,
            )
        return S(dims[0]) if dims else R

    def place(self, node: DraftNode) -> None:
        if not self.inside(node):
            self.outside(node)
            return
        for tensor in node.inputs:
            if id(tensor) not in self.places:
                self.places[id(tensor)] = self.loaded(tensor, node)
        given = [self.places[id(t)] for t in node.inputs]
        made = [self.placement(t, node) for t in node.outputs]
        found = self.rule(node, given, made)
        if found is None:
            cut = next((t for t, p in zip(node.inputs, given, strict=True) if p == R and t.name in self.batch), None)
            if cut is not None:
                self.fail(
                    f"'{cut.name}' is made of the whole batch outside this block, and read inside",
                    "put the line that makes it into the block",
                    node,
                )
            self.fail(
                f"'{node.outputs[0].name}' = {node.instance.decl.name}(…) needs the whole batch, or sums over it, before the turns end",
                "put it outside the block; a count of labels is taken there from the whole input",
                node,
            )
        self.chosen[id(node)] = found
        node.inputs = [
            self.share(t, node) if (p, q) == (R, P) else t
            for t, p, q in zip(node.inputs, given, found.inputs, strict=True)
        ]
        self.places.update({id(t): p for t, p in zip(node.outputs, found.outputs, strict=True)})

    def outside(self, node: DraftNode) -> None:
        """A call outside the block whose result the turns read: the same in all of them, so it can't be made of what they make."""
        node.inputs = [self.undivided(t) for t in node.inputs]
        for tensor in node.inputs:
            place = self.places.get(id(tensor), R)
            if place != R:
                self.fail(
                    f"each turn's gradients read '{node.outputs[0].name}', which is made of '{tensor.name}', known behind the last turn only",
                    "put the line that makes it into the block"
                    if place.kind == "S"
                    else f"train '{tensor.name}' itself, or what is linear in it",
                    node,
                )
        self.places.update({id(t): R for t in (*node.inputs, *node.outputs)})

    def loaded(self, tensor: Draft, node: DraftNode) -> Placement:
        place = self.placement(tensor, node)
        if place != R and tensor.kind != "input":
            self.fail(
                f"{tensor.kind} '{tensor.name}' has a dim of the batch", "what is kept can't be taken in turns", tensor
            )
        return place

    def undivided(self, tensor: Draft) -> Draft:
        """The whole of an input that the block takes in turns."""
        if tensor.kind != "input" or tensor.name not in self.batch:
            return tensor
        known = self.wholes.get(id(tensor))
        if known is None:
            known = self.wholes[id(tensor)] = replace(tensor, name=f"{tensor.name}.whole", symbols=())
            self.drafts.tensors.append(known)
            self.found.sources[known.name] = tensor.name
        return known

    @staticmethod
    def rule(node: DraftNode, given: Sequence[Placement], made: Sequence[Placement]) -> Rule | None:
        """The rule for these operands, as they are or with whole ones dealt out as partial sums."""

        def fits(rule: Rule, free: bool) -> bool:
            read = all(p == q or (free and (p, q) == (R, P)) for p, q in zip(given, rule.inputs, strict=True))
            return read and all(p == q or (p, q) == (R, P) for p, q in zip(made, rule.outputs, strict=True))

        known = rules(node.instance)
        return next((r for free in (False, True) for r in known if fits(r, free)), None)

    def share(self, tensor: Draft, node: DraftNode) -> Draft:
        """A k-th of a tensor that is the same in all turns: they add up to it."""
        known = self.shares.get(id(tensor))
        if known is None:
            scaled = emit(
                self.drafts, self.ops["scale"], [tensor], {"by": 1 / self.block.count}, [f"{tensor.name}.share"], node.section, node.path, node.repeat, node.span,
            )  # fmt: skip
            self.loop.insert(self.loop.index(node), self.drafts.nodes.pop())
            known = self.shares[id(tensor)] = scaled[0]
            self.places[id(known)] = P
        return known

    # -- one turn's sizes -----------------------------------------------------------

    def shorten(self) -> None:
        for tensor in self.drafts.tensors:
            place = self.places.get(id(tensor), R)
            if place.kind == "S":
                self.found.dims[id(tensor)] = place.dim
                tensor.shape = self.part(tensor.shape, place)
        for node in self.loop:
            rule = self.chosen.get(id(node))
            if rule is not None and rule.index is not None:
                self.found.indices[id(node)] = rule.index
                node.instance = self.turn(node.instance, rule)

    def part(self, shape: tuple[int, ...], place: Placement) -> tuple[int, ...]:
        return tuple(n // self.block.count if place == S(d) else n for d, n in enumerate(shape))

    def turn(self, instance: Instance, rule: Rule) -> Instance:
        """The call of one turn. Attributes stay those of the whole batch: a mean's gradient is divided by its count."""
        assert rule.index is not None
        found = self.instances.get((id(instance), rule))
        if found is None:
            found = self.instances[id(instance), rule] = replace(
                instance,
                given=tuple(
                    Given(g.operand, self.part(g.shape, p), g.dtype)
                    for g, p in zip(instance.given, rule.inputs, strict=True)
                ),
                result_shapes=tuple(self.part(s, p) for s, p in zip(instance.result_shapes, rule.outputs, strict=True)),
                extents={**instance.extents, rule.index: instance.extents[rule.index] // self.block.count},
            )
        return found

    # -- sums over turns ----------------------------------------------------------------

    def accumulate(self) -> None:
        """See that what is read behind the loop is the sum over its turns."""
        made = {id(t) for n in self.loop for t in n.outputs}
        sums: dict[int, Draft] = {}
        first: list[DraftNode] = []
        after: list[DraftNode] = []
        goals = [*([self.drafts.loss] if self.drafts.loss is not None else []), *self.drafts.metrics]
        renewed = {id(new) for new in self.updates.values()}
        for tensor in goals:
            if id(tensor) in made - renewed and self.places[id(tensor)] == P and id(tensor) not in sums:
                sums[id(tensor)] = self.sum(tensor, (), first)
        olds = {id(t): t for t in self.drafts.tensors}
        for old, new in list(self.updates.items()):
            if id(new) in made:
                self.updates[old] = sums[id(new)] = self.renewed(new, olds[old], first, after)
        for node in self.after:
            for k, tensor in enumerate(node.inputs):
                if id(tensor) not in made:
                    continue
                place = self.places[id(tensor)]
                if place.kind == "S":
                    self.fail(
                        f"'{tensor.name}' has a part of the batch in each turn, and is read outside the block",
                        "put the line that reads it into the block",
                        node,
                    )
                if place == P and id(tensor) not in sums:
                    sums[id(tensor)] = self.sum(tensor, node.repeat, first)
                node.inputs[k] = sums.get(id(tensor), tensor)
            after.append(node)
        self.after = [*first, *after]
        loss = self.drafts.loss
        self.drafts.loss = sums.get(id(loss), loss) if loss is not None else None
        kept = [t for t in self.drafts.metrics if self.places.get(id(t), R).kind != "S"]
        self.drafts.metrics = [sums.get(id(t), t) for t in kept]
        params = {t.name for t in self.drafts.tensors if t.kind == "param"}
        for alias, tensor in self.drafts.aliases.items():
            if alias.removesuffix(".grad") in params:
                self.drafts.aliases[alias] = sums.get(id(tensor), tensor)

    def renewed(self, new: Draft, old: Draft, first: list[DraftNode], after: list[DraftNode]) -> Draft:
        """A buffer's value after the step, where turns make it: their sum, unless it is the same in all of them."""
        place = self.places[id(new)]
        if place.kind == "S":
            self.fail(f"'{new.name}' has a dim of the batch", "what is kept can't be taken in turns", new)
        if place == R:
            return new
        name = new.name
        new.name = f"{name}.sum"
        total = self.sum(new, new.repeat, first)
        return self.call("cast_like", [total, old], name, new, "update", after)

    def sum(self, tensor: Draft, repeat: tuple[tuple[str, int], ...], first: list[DraftNode]) -> Draft:
        name = tensor.name
        tensor.name = f"{name}.turn"
        total = self.call("accumulate", [tensor], name, tensor, SUMS, first)
        total.repeat = first[-1].repeat = repeat
        return total

    def call(self, op: str, inputs: list[Draft], name: str, like: Draft, section: str, to: list[DraftNode]) -> Draft:
        made = emit(self.drafts, self.ops[op], inputs, {}, [name], section, name, like.repeat, like.span)[0]
        to.append(self.drafts.nodes.pop())
        return made
