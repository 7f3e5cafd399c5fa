"""Is one line a triple that the theory holds? Compute lines against rules, conversions against the mesh."""

from __future__ import annotations

from hapdsl.check.names import Turn, tensor_of
from hapdsl.graph.program import COLLECTIVES, METHODS, Instruction, Layout, Value, conversion
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.theory.expressions import evaluate
from hapdsl.theory.instance import DTYPE_BYTES
from hapdsl.theory.placements import Placement, from_nodes, show
from hapdsl.theory.rules import Rule


def value_of(value: nodes.Value, turn: Turn | None, graph: TrainingGraph, layout: Layout) -> Value | None:
    """The value that a person wrote, None where its placement has a `?`.

    Raises HapError: HAP510 no such tensor, HAP520 wrong number of axes, HAP521 a dim that isn't there,
    HAP522 a dim that can't be sharded, HAP523 two axes cutting one dim without rows of shares.
    """
    name = tensor_of(value.name, turn, graph, value.span)
    placement = from_nodes(value.placement)
    if placement is None:
        return None
    if len(placement) != len(layout.mesh):
        raise error("HAP520", f"{show(placement)} is for {len(placement)} mesh axes, the mesh has {len(layout.mesh)}", value.span, "one entry per axis: (S(0), R)")  # fmt: skip
    tensor = graph.tensors[name]
    for p in placement:
        if p.kind != "S":
            continue
        if not 0 <= p.dim < len(tensor.shape):
            raise error("HAP521", f"'{name}' has {len(tensor.shape)} dims, there is no dim {p.dim}", value.span, "dims count from 0")
        cls = tensor.classes[p.dim]
        if cls is None:
            raise error("HAP522", f"dim {p.dim} of '{name}' has length 1 and can't be sharded", value.span, "keep it whole: R")
        if graph.classes[cls].units == 1:
            raise error("HAP522", f"dim {p.dim} of '{name}' is one indivisible unit (class {cls})", value.span, "keep it whole: R")
        axes = tuple(a for a, q in enumerate(placement) if q == p)
        if axes not in layout.shares.get(cls, {}):
            raise error("HAP523", f"dim {p.dim} of '{name}' is cut on two axes, but '{cls}' has no shares for both", value.span, f"shares {cls} = [[…], […]]: a row per outer position")  # fmt: skip
    return Value(name, placement)


def compute(line: nodes.Line, inputs: list[Value], outputs: list[Value], graph: TrainingGraph, section: str) -> Instruction:
    """A compute line, if the theory holds it.

    Raises HapError: HAP530 another operator makes this tensor, HAP531 wrong outputs, HAP532 wrong operands,
    HAP533 no rule for these placements, HAP534 a rule, but with another result, HAP535 an attribute that differs.
    """
    node = _node(line, outputs[0], graph)
    if [v.tensor for v in outputs] != list(node.outputs):
        raise error("HAP531", f"this call makes {', '.join(node.outputs)}, in that order", line.span, "bind them all on one line")
    if [v.tensor for v in inputs] != list(node.inputs):
        raise error("HAP532", f"'{node.outputs[0]}' is computed from {', '.join(node.inputs) or 'nothing'}", line.span, f"{node.op}({', '.join(node.inputs)})")  # fmt: skip
    _attributes(line, node)
    for axis in range(len(outputs[0].placement)):
        _axis(line, node, inputs, outputs, axis)
    return Instruction(node.op, tuple(inputs), tuple(outputs), section, node, span=line.span)


def _node(line: nodes.Line, output: Value, graph: TrainingGraph) -> Node:
    number = graph.producer.get(output.tensor)
    if number is None:
        kind = graph.tensors[output.tensor].kind
        raise error("HAP530", f"'{output.tensor}' is loaded, not computed", line.span, f"write: {output} = {_loader(kind)}()")
    node = graph.nodes[number]
    if node.op != line.function:
        raise error("HAP530", f"'{output.tensor}' is made by {node.op}, not {line.function}", line.span, f"{node.op}({', '.join(node.inputs)})")  # fmt: skip
    return node


def _loader(kind: str) -> str:
    return {"input": "input", "state": "state", "seed": "seed"}.get(kind, "param")


def _attributes(line: nodes.Line, node: Node) -> None:
    """Attributes come from the model; where a program repeats one it must agree."""
    names = [a for a in node.instance.decl.attributes]
    position = 0
    for arg in line.args:
        if isinstance(arg.value, nodes.Value):
            continue
        name = arg.name or (names[position] if position < len(names) else None)
        position += arg.name is None
        if name is None or name not in node.instance.attributes:
            raise error("HAP535", f"'{node.op}' has no attribute for this", arg.span, "leave it out: attributes come from the model")
        wanted = node.instance.attributes[name]
        value = evaluate(arg.value, {d: d for d in DTYPE_BYTES})
        if value != wanted and [value] != wanted:
            raise error("HAP535", f"the model has {name} = {wanted} here", arg.span, "leave it out: attributes come from the model")


def _axis(line: nodes.Line, node: Node, inputs: list[Value], outputs: list[Value], axis: int) -> None:
    given = tuple(v.placement[axis] for v in inputs)
    made = tuple(v.placement[axis] for v in outputs)
    if any(r.inputs == given and r.outputs == made for r in node.rules):
        return
    same_inputs = [r for r in node.rules if r.inputs == given]
    on = f" on axis {axis}" if len(outputs[0].placement) > 1 else ""
    if same_inputs:
        results = " or ".join(_results(r, node) for r in same_inputs)
        raise error("HAP534", f"from these operands {node.op} gives {results}{on}", line.span, _convert_after(same_inputs[0], outputs, axis))
    same_outputs = [r for r in node.rules if r.outputs == made]
    nearest = min(same_outputs or list(node.rules), key=lambda r: _distance(r, given, made))
    fixes = [
        f"`{Value(v.tensor, _with(v.placement, axis, want))} = {conversion(p, want)}({v})`" if conversion(p, want) else f"{v.tensor} as {want}"
        for v, p, want in zip(inputs, given, nearest.inputs, strict=True)
        if p != want
    ]
    needs = ", ".join(f"{n}@{p}" for n, p in zip(node.inputs, nearest.inputs, strict=True))
    raise error("HAP533", f"no rule of {node.op} takes ({', '.join(map(str, given))}){on} to {', '.join(map(str, made))}", line.span, f"a near rule needs {needs}" + (f": {'; '.join(fixes)}" if fixes else ""))  # fmt: skip


def _results(rule: Rule, node: Node) -> str:
    return ", ".join(f"{n}@{p}" for n, p in zip(node.outputs, rule.outputs, strict=True))


def _convert_after(rule: Rule, outputs: list[Value], axis: int) -> str:
    made, wanted = rule.outputs[0], outputs[0].placement[axis]
    how = conversion(made, wanted)
    before = Value(outputs[0].tensor, _with(outputs[0].placement, axis, made))
    return f"write {before} here, then `{outputs[0]} = {how}({before})`" if how else f"write {before} here"


def _with(placement: tuple[Placement, ...], axis: int, p: Placement) -> tuple[Placement, ...]:
    return (*placement[:axis], p, *placement[axis + 1 :])


def _distance(rule: Rule, given: tuple[Placement, ...], made: tuple[Placement, ...]) -> tuple[int, int]:
    """How many operands would have to change, impossible changes counted heavily."""
    changes = [(p, want) for p, want in zip(given, rule.inputs, strict=True) if p != want]
    impossible = sum(conversion(p, want) is None for p, want in changes)
    return impossible, len(changes) + sum(a != b for a, b in zip(rule.outputs, made, strict=True))


def convert(line: nodes.Line, inputs: list[Value], outputs: list[Value], layout: Layout, section: str) -> Instruction:
    """A collective or local conversion, with any number of operands in one message.

    Raises HapError: HAP540 operands that don't pair up, HAP541 nothing or several axes change, HAP542 another
    conversion is needed, HAP543 an unknown method, HAP544 a dim that an inner axis cuts too.
    """
    if len(inputs) != len(outputs) or [v.tensor for v in inputs] != [v.tensor for v in outputs]:
        raise error("HAP540", f"{line.function} turns each operand into the same tensor in another placement", line.span)
    axes = set()
    for source, target in zip(inputs, outputs, strict=True):
        changed = [a for a, (p, q) in enumerate(zip(source.placement, target.placement, strict=True)) if p != q]
        if len(changed) != 1:
            what = "nothing changes" if not changed else "two axes change at once"
            raise error("HAP541", f"{what} from {source} to {target}", line.span, "one conversion changes one axis")
        axis = changed[0]
        axes.add(axis)
        how = conversion(source.placement[axis], target.placement[axis])
        if how is None:
            raise error("HAP542", f"nothing turns {source} into {target}", line.span, "partial sums must be reduced, not cut")
        if how != line.function:
            raise error("HAP542", f"{source} becomes {target} by {how}, not {line.function}", line.span, f"`{target} = {how}({source})`")
        _nested(line, source, target, axis)
    if len(axes) > 1:
        raise error("HAP541", "all operands of one message must change along the same axis", line.span)
    return Instruction(line.function, tuple(inputs), tuple(outputs), section, method=_method(line), axis=axes.pop(), span=line.span)


def _nested(line: nodes.Line, source: Value, target: Value, axis: int) -> None:
    for value in (source, target):
        p = value.placement[axis]
        inner = [a for a, q in enumerate(value.placement) if q == p and a > axis]
        if p.kind == "S" and inner:
            raise error("HAP544", f"dim {p.dim} of {value} is cut by an inner axis too", line.span, "convert the inner axis first")


def _method(line: nodes.Line) -> str | None:
    """The method written, else the first one of a collective."""
    method = METHODS[line.function][0] if line.function in COLLECTIVES else None
    for arg in line.args:
        if isinstance(arg.value, nodes.Value):
            continue
        known = METHODS.get(line.function, ())
        if arg.name != "method" or not isinstance(arg.value, nodes.Name) or arg.value.id not in known:
            raise error("HAP543", f"{line.function} takes {'method = ' + ' or '.join(known) if known else 'nothing else'}", arg.span)
        method = arg.value.id
    return method


