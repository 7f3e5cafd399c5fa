"""Operators tried out in numbers: every rule on random uneven shares, every gradient against torch's autograd.

The declaration is taken at its word: rules, classes and gradients are those that the theory derives from it, the kernel is the
one it names. What it says wrongly shows as a difference to one device.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hapdsl.graph.build import build
from hapdsl.graph.program import Instruction, Layout, Program, Value
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.run.initial import generator
from hapdsl.run.inprocess import InProcess
from hapdsl.run.pieces import assemble, cut, largest_gap
from hapdsl.run.reference import Reference
from hapdsl.run.samples import Sample, samples
from hapdsl.run.threads import one_thread
from hapdsl.theory.library import standard
from hapdsl.theory.ops import OpDecl
from hapdsl.theory.placements import Placements, R, show
from hapdsl.theory.rules import Rule

TOLERANCE = 1e-9
DEVICES = 4
MESH2 = (("outer", 2), ("inner", 2))


def validate_op(
    decl: OpDecl,
    ops: Mapping[str, OpDecl] | None = None,
    seed: int = 0,
    allow: Set[str] = frozenset(),
    calls: Sequence[Sample] | None = None,
    two_axes: bool = False,
) -> list[Diagnostic]:
    """Run all rules and gradients of one operator in float64 on random uneven shares, one of them empty.

    `ops` are all operators that its gradients may call (the standard ones where None), `calls` the calls to try (derived
    ones where None). `two_axes` also tries every pair of rules on a mesh of two axes. Returns HAP730 for a rule that isn't
    true, HAP732 for a gradient that isn't, HAP731 where nothing can be tried (a warning), and what kernels raise.
    """
    known = {**standard(), **(ops or {}), decl.name: decl}
    try:
        chosen = list(calls) if calls is not None else samples(decl)
    except HapError as stop:
        return [Diagnostic(d.code, d.message, d.span, d.help, "warning") for d in stop.diagnostics]
    found: list[Diagnostic] = []
    with one_thread():
        for number, sample in enumerate(chosen):
            try:
                trial = Trial.of(decl, known, sample, f"{seed}/{decl.name}/{number}", allow)
            except HapError as stop:
                found += () if sample.tentative else stop.diagnostics
                continue
            try:
                found += trial.rules()
                if two_axes:
                    found += trial.pairs()
                found += trial.gradients()
                for lesser in lesser_gradients(decl):
                    found += Trial.of(decl, known, sample, f"{seed}/{decl.name}/{number}", allow, lesser).gradients()
            except HapError as stop:
                found += stop.diagnostics
    return list(dict.fromkeys(found))


@dataclass
class Trial:
    """One sample call: its graph (one forward call and, where gradients are declared, a backward pass) and values."""

    decl: OpDecl
    graph: TrainingGraph
    node: Node
    values: dict[str, Tensor]
    key: str
    allow: Set[str]

    @classmethod
    def of(
        cls,
        decl: OpDecl,
        ops: Mapping[str, OpDecl],
        sample: Sample,
        key: str,
        allow: Set[str],
        only: Set[str] | None = None,
    ) -> Trial:
        """A trial of one call; `only` these operands are trained (all that have gradients where None)."""
        graph, node = _graph(decl, ops, sample, only)
        trial = cls(decl, graph, node, {}, key, allow)
        trial.values = trial.draw(sample, positive=False)
        if not all(bool(torch.isfinite(y).all()) for y in trial.alone().values() if y.is_floating_point()):
            trial.values = trial.draw(sample, positive=True)  # logarithms, roots, quotients
        return trial

    def draw(self, sample: Sample, positive: bool) -> dict[str, Tensor]:
        made = {}
        for (operand, shape), name in zip(sample.operands, self.node.inputs, strict=True):
            source = generator(0, f"{self.key}/{name}")
            if operand in sample.below:
                made[name] = torch.randint(sample.below[operand], shape, generator=source)
            else:
                value = torch.randn(shape, generator=source, dtype=torch.float64)
                made[name] = value.abs() + 0.5 if positive else value
        return made

    def alone(self) -> dict[str, Tensor]:
        """The outputs on one device."""
        made = Reference(self.graph, torch.float64, 1, self.allow, self.node.outputs, [self.node]).step(self.values, 3)
        return {name: made[name] for name in self.node.outputs}

    # -- rules ---------------------------------------------------------------------

    def rules(self) -> list[Diagnostic]:
        """Every rule on one axis."""
        mesh = (("devices", DEVICES),)
        return [d for rule in self.node.rules for d in self.rule(mesh, (rule,))]

    def pairs(self) -> list[Diagnostic]:
        """Every pair of rules on two axes."""
        rules = self.node.rules
        return [d for a in rules for b in rules for d in self.rule(MESH2, (a, b))]

    def rule(self, mesh: tuple[tuple[str, int], ...], rules: tuple[Rule, ...]) -> list[Diagnostic]:
        """Compare one application of the operator, one rule per axis, with one device."""
        draw = random.Random(f"{self.key}/{rules}")
        layout = random_layout(self.graph, mesh, draw)
        inputs = tuple(Value(t, tuple(rule.inputs[k] for rule in rules)) for k, t in enumerate(self.node.inputs))
        outputs = tuple(Value(t, tuple(rule.outputs[k] for rule in rules)) for k, t in enumerate(self.node.outputs))
        loads = [Instruction("input", (), (v,)) for v in dict.fromkeys(inputs)]
        program = Program(
            "trial", self.graph, layout, [*loads, Instruction(self.decl.name, inputs, outputs, node=self.node)]
        )
        executor = InProcess(program, torch.float64, 1, self.allow, keep_all=True)
        executor.held = {v: self.spread(program, v, draw) for v in inputs}
        wanted = self.alone()
        found = []
        try:
            made = executor.step({}, 3)
            for value in outputs:
                gap = largest_gap(assemble(program, value, made[value], 1e-12), wanted[value.tensor])
                if gap > TOLERANCE:
                    found.append(f"gives {value.tensor} off by {gap:.3g}")
        except HapError as stop:
            found += [d.message for d in stop.diagnostics]
        if not found:
            return []
        shares = {c: [int(n) for n in next(iter(s.values()))] for c, s in layout.shares.items()}
        text = (
            f"the rule {_shown(self.node, rules)} of '{self.decl.name}' isn't true: it {found[0]} with shares {shares}"
        )
        return [Diagnostic("HAP730", text, self.decl.span, "look at its `sum`, `linear` and `whole` statements")]

    def spread(self, program: Program, value: Value, draw: random.Random) -> list[Tensor]:
        """What each device holds of an operand; partial sums are random and add up to it."""
        whole = self.values[value.tensor]
        devices = range(program.layout.devices)
        partial = [a for a, p in enumerate(value.placement) if p.kind == "P"]
        coordinates = program.layout.coordinates
        keys = sorted({tuple(int(coordinates[d][a]) for a in partial) for d in devices})
        source = torch.Generator().manual_seed(draw.getrandbits(60))
        parts = {k: torch.randn(whole.shape, generator=source, dtype=whole.dtype) for k in keys[1:]} if partial else {}
        rest = whole - sum(parts.values(), torch.zeros_like(whole)) if parts else whole
        parts[keys[0]] = rest
        plain = Value(value.tensor, _without_partial(value.placement))
        dtypes = {"f64": torch.float64, "i64": torch.int64}
        return [cut(program, plain, d, parts[tuple(int(coordinates[d][a]) for a in partial)], dtypes) for d in devices]

    # -- gradients -------------------------------------------------------------------

    def gradients(self) -> list[Diagnostic]:
        """Every declared gradient against torch's autograd through the kernel."""
        if self.graph.loss is None:
            return []
        trained = {t.name for t in self.graph.of_kind("param")}
        cotangents = {
            t.name: torch.randn(t.shape, generator=generator(1, f"{self.key}/{t.name}"), dtype=torch.float64)
            for t in self.graph.of_kind("input")
            if t.name not in self.values
        }
        leaves = {n: v.clone().requires_grad_(n in trained) for n, v in self.values.items()}
        forward = [n for n in self.graph.nodes if n.section == "forward"]
        with torch.enable_grad():
            made = Reference(self.graph, torch.float64, 1, self.allow, None, forward).step({**leaves, **cotangents}, 3)
            made[self.graph.loss].backward()
        own = Reference(self.graph, torch.float64, 1, self.allow).step({**self.values, **cotangents}, 3)
        found = []
        for operand, name in zip(self.node.instance.given, self.node.inputs, strict=True):
            if name in trained:
                want = leaves[name].grad
                gap = largest_gap(
                    own[self.graph.resolve(f"{name}.grad")], torch.zeros_like(leaves[name]) if want is None else want
                )
                if gap > TOLERANCE:
                    text = f"the gradient of '{operand.operand}' of '{self.decl.name}' is off by {gap:.3g} (torch's autograd through its kernel)"
                    found.append(Diagnostic("HAP732", text, self.decl.span, "look at its `grad` statement"))
        return found


def lesser_gradients(decl: OpDecl) -> list[frozenset[str]]:
    """The operands of gradients that give less than another one does: they are used where the rest is frozen."""
    targets = [frozenset(rule.targets) for rule in decl.grads]
    return [t for t in targets if any(t < other for other in targets)]


def random_layout(graph: TrainingGraph, mesh: tuple[tuple[str, int], ...], draw: random.Random) -> Layout:
    """Random shares of every class over the mesh: at least one device has none where the units allow it."""
    bare = Layout(mesh)
    shares: dict[str, dict[tuple[int, ...], np.ndarray]] = {}
    for name, cls in graph.classes.items():
        own: dict[tuple[int, ...], np.ndarray] = {}
        for axis, (_, size) in enumerate(mesh):
            cuts = random_shares(cls.units, size, draw)
            own[(axis,)] = np.array([cuts[c[axis]] for c in bare.coordinates], dtype=np.int64)
        if len(mesh) == 2:
            outer, inner = mesh[0][1], mesh[1][1]
            rows = [random_shares(int(own[(0,)][r * inner]), inner, draw) for r in range(outer)]
            own[(0, 1)] = np.array([n for row in rows for n in row], dtype=np.int64)
        shares[name] = own
    return Layout(mesh, shares)


def random_shares(units: int, devices: int, draw: random.Random) -> list[int]:
    """Whole units that add up, uneven, with a device that has none."""
    empty = draw.randrange(devices)
    cuts = sorted(draw.randint(0, units) for _ in range(devices - 2))
    parts = [b - a for a, b in zip([0, *cuts], [*cuts, units], strict=True)]
    return [*parts[:empty], 0, *parts[empty:]] if devices > 1 else [units]


def _without_partial(placement: Placements) -> Placements:
    return tuple(R if p.kind == "P" else p for p in placement)


def _shown(node: Node, rules: tuple[Rule, ...]) -> str:
    given = [g.operand for g in node.instance.given]
    left = ", ".join(f"{n}@{show(tuple(r.inputs[k] for r in rules))}" for k, n in enumerate(given))
    results = [r.name for r in node.instance.decl.results]
    return f"{left} -> " + ", ".join(f"{n}@{show(tuple(r.outputs[k] for r in rules))}" for k, n in enumerate(results))


# -- the model around a call ------------------------------------------------------


def _graph(
    decl: OpDecl, ops: Mapping[str, OpDecl], sample: Sample, only: Set[str] | None = None
) -> tuple[TrainingGraph, Node]:
    """The training graph of a model that does nothing but this call, and loses a random projection of its outputs."""
    names = [f"arg.{k}" for k in range(len(sample.operands))]
    ops = {
        **ops,
        decl.name: replace(decl, training=(), evaluation=(), without={}),
    }  # the operator itself, whatever stands for it in a model
    if decl.is_update:
        return _update_graph(decl, sample, names)
    targets = {t for rule in decl.grads for t in rule.targets if only is None or t in only}
    trained = [n for n, (o, _) in zip(names, sample.operands, strict=True) if _differentiable(decl, targets, o, sample)]
    body: list[nodes.Statement] = []
    for name, (operand, shape) in zip(names, sample.operands, strict=True):
        dtype = "i64" if operand in sample.below else "f64"
        body.append(_declare("param" if name in trained else "input", name, dtype, shape))
    arguments = tuple(nodes.Arg(None, nodes.Name(n)) for n in names)
    attributes = tuple(nodes.Arg(n, _literal(v)) for n, v in sample.attributes.items())
    made = [f"made.{k}" for k in range(len(decl.results))]
    body.append(nodes.Assign(tuple(made), nodes.Call(decl.name, (*arguments, *attributes))))
    body.append(nodes.Output(tuple(made)))
    if trained:
        plain = build(nodes.Model("trial", (), tuple(body)), {}, ops)
        body += _projection(made, [plain.tensors[n].shape for n in made])
    graph = build(nodes.Model("trial", (), tuple(body)), {}, ops)
    return graph, next(n for n in graph.nodes if n.outputs == tuple(made))


def _differentiable(decl: OpDecl, targets: Set[str], operand: str, sample: Sample) -> bool:
    declared = {o.name: o for o in decl.operands}
    return (
        operand not in sample.below and (operand in targets or bool(decl.notation)) and not declared[operand].optional
    )


def _projection(made: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> list[nodes.Statement]:
    """`loss` = the sum over outputs of output times a random input of its shape."""
    body: list[nodes.Statement] = []
    terms: list[str] = []
    for k, (name, shape) in enumerate(zip(made, shapes, strict=True)):
        body.append(_declare("input", f"along.{k}", "f64", shape))
        body.append(_assign(f"term.{k}", "mul", nodes.Name(name), nodes.Name(f"along.{k}")))
        terms.append(f"term.{k}")
        if shape:
            body.append(_assign(f"total.{k}", "sum", nodes.Name(f"term.{k}"), dims=list(range(len(shape)))))
            terms[-1] = f"total.{k}"
    loss = terms[0]
    for k, term in enumerate(terms[1:]):
        body.append(_assign(f"loss.{k}", "add", nodes.Name(loss), nodes.Name(term)))
        loss = f"loss.{k}"
    body.append(nodes.Train(loss, nodes.Call("sgd", ())))
    return body


def _update_graph(decl: OpDecl, sample: Sample, names: Sequence[str]) -> tuple[TrainingGraph, Node]:
    """An update operator's call can't be written in a model: it is laid over plain inputs here."""
    from hapdsl.graph.classes import classes
    from hapdsl.graph.drafts import Drafts
    from hapdsl.graph.emit import emit
    from hapdsl.graph.scope import Draft
    from hapdsl.graph.training import Tensor as Declared

    drafts = Drafts()
    operands = [Draft(n, shape, "f64", "input") for n, (_, shape) in zip(names, sample.operands, strict=True)]
    drafts.tensors += operands
    made = [f"made.{k}" for k in range(len(decl.results))]
    given = [o for o, _ in sample.operands]
    emit(drafts, decl, operands, sample.attributes, made, "update", "sample", (), nodes.NOWHERE, given)
    found = classes(drafts.tensors, drafts.nodes, {}, ())
    of = {m: c.name for c in found.values() for m in c.members}
    tensors = {
        t.name: Declared(t.name, t.shape, t.dtype, t.kind, tuple(of.get((t.name, d)) for d in range(len(t.shape))))
        for t in drafts.tensors
    }
    draft = drafts.nodes[0]
    node = Node(draft.instance, tuple(names), tuple(made), "update", "sample")
    return TrainingGraph("trial", {}, tensors, [node], found, None, tuple(made)), node


def _declare(kind: str, name: str, dtype: str, shape: Sequence[int]) -> nodes.Declare:
    return nodes.Declare(kind, (name,), nodes.Type(dtype, tuple(nodes.Number(n) for n in shape)))


def _assign(target: str, function: str, *operands: nodes.Expr, **attributes: object) -> nodes.Assign:
    args = [nodes.Arg(None, o) for o in operands] + [nodes.Arg(n, _literal(v)) for n, v in attributes.items()]
    return nodes.Assign((target,), nodes.Call(function, tuple(args)))


def _literal(value: object) -> nodes.Expr:
    """The tree of an attribute's value."""
    match value:
        case bool():
            return nodes.Bool(value)
        case int() | float():
            return nodes.Negate(nodes.Number(-value)) if value < 0 else nodes.Number(value)
        case str():
            return nodes.Text(value)
    assert isinstance(value, list | tuple), value
    return nodes.Items(tuple(_literal(v) for v in value))
