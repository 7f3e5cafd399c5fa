"""Is one line a triple that the theory holds? Compute lines against rules, conversions against the mesh.

Both judge patterns, so that a line with a `?` is refused where nothing could stand for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from hapdsl.check.values import Pattern
from hapdsl.graph.program import COLLECTIVES, LOCAL, METHODS, Instruction, Value, conversion
from hapdsl.graph.training import TURN, Node, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.theory.dtypes import DTYPE_BYTES, FLOATS
from hapdsl.theory.expressions import evaluate
from hapdsl.theory.placements import Placement
from hapdsl.theory.rules import Rule

Patterns = Sequence[Pattern]


def compute(
    line: nodes.Line, inputs: Patterns, outputs: Patterns, graph: TrainingGraph, section: str
) -> Instruction | None:
    """A compute line, if the theory holds it; None where it leaves placements open.

    Raises HapError: HAP530 another operator makes this tensor, HAP531 wrong outputs, HAP532 wrong operands,
    HAP533 no rule for these placements, HAP534 a rule, but with another result, HAP535 an attribute that differs, HAP536 operands by name,
    HAP518 a call of every turn of a batch behind the turns, or one that is done once in them.
    """
    node = call_of(line, outputs, graph, section)
    if [v.tensor for v in inputs] != list(node.inputs):
        raise error(
            "HAP532",
            f"'{node.outputs[0]}' is computed from {', '.join(node.inputs) or 'nothing'}",
            line.span,
            _call(node),
        )
    _attributes(line, node)
    for axis in range(len(outputs[0].placement)):
        _axis(line, node, inputs, outputs, axis)
    read, made = [v.value for v in inputs], [v.value for v in outputs]
    if None in read or None in made:
        return None
    return Instruction(node.op, _values(read), _values(made), section, node, span=line.span)


def call_of(line: nodes.Line, outputs: Patterns, graph: TrainingGraph, section: str) -> Node:
    """The call that makes what a line makes, whatever it reads. Raises HAP518, HAP530 and HAP531 as `compute` does."""
    node = _node(line, outputs[0].tensor, graph)
    _turns(line, node, graph, section)
    if [v.tensor for v in outputs] != list(node.outputs):
        raise error(
            "HAP531",
            f"this call makes {', '.join(node.outputs)}, in that order",
            line.span,
            "bind them all on one line",
        )
    return node


def _values(values: Sequence[Value | None]) -> tuple[Value, ...]:
    return tuple(v for v in values if v is not None)


def _call(node: Node) -> str:
    return f"{node.op}({', '.join(node.inputs)})"


def _node(line: nodes.Line, output: str, graph: TrainingGraph) -> Node:
    number = graph.producer.get(output)
    if number is None:
        kind = graph.tensors[output].kind
        raise error(
            "HAP530", f"'{output}' is loaded, not computed", line.span, f"write: {output}@… = {_loader(kind)}()"
        )
    node = graph.nodes[number]
    if node.op != line.function:
        raise error("HAP530", f"'{output}' is made by {node.op}, not {line.function}", line.span, _call(node))
    return node


def _turns(line: nodes.Line, node: Node, graph: TrainingGraph, section: str) -> None:
    """What is done in every turn of a batch stands in the `microbatch` block, all else behind it: there the values of the last turn are at hand."""
    if graph.turns == 1 or (section in TURN) == (node.section in TURN):
        return
    made = node.outputs[0]
    if node.section in TURN:
        raise error("HAP518", f"'{made}' is computed in every turn of the batch, and this line stands behind them", line.span, "move it into the `microbatch` block")  # fmt: skip
    raise error("HAP518", f"'{made}' is computed once, behind all turns, and this line stands in a `microbatch` block", line.span, "move it into `update`")  # fmt: skip


def _loader(kind: str) -> str:
    return {"input": "input", "state": "state", "seed": "seed"}.get(kind, "param")


def _unnamed(arg: nodes.Arg, order: str = "") -> None:
    if arg.name is not None:
        help = f"operands stand in order, without names{order}"
        raise error("HAP536", f"operand '{arg.name}' is given by name", arg.span, help)


def _attributes(line: nodes.Line, node: Node) -> None:
    """Attributes come from the model; where a program repeats one it must agree."""
    names = list(node.instance.decl.attributes)
    position = 0
    for arg in line.args:
        if isinstance(arg.value, nodes.Value):
            _unnamed(arg, f": {_call(node)}")
            continue
        name = arg.name or (names[position] if position < len(names) else None)
        position += arg.name is None
        if name is None or name not in node.instance.attributes:
            raise error(
                "HAP535",
                f"'{node.op}' has no attribute for this",
                arg.span,
                "leave it out: attributes come from the model",
            )
        if isinstance(arg.value, nodes.Hole):
            continue
        wanted = node.instance.attributes[name]
        value = evaluate(arg.value, {d: d for d in DTYPE_BYTES})
        if value != wanted and [value] != wanted:
            raise error(
                "HAP535",
                f"the model has {name} = {wanted} here",
                arg.span,
                "leave it out: attributes come from the model",
            )


# -- rules -------------------------------------------------------------------------


def _axis(line: nodes.Line, node: Node, inputs: Patterns, outputs: Patterns, axis: int) -> None:
    given = [v.placement[axis] for v in inputs]
    made = [v.placement[axis] for v in outputs]
    if any(_fits(given, r.inputs) and _fits(made, r.outputs) for r in node.rules):
        return
    same_inputs = [r for r in node.rules if _fits(given, r.inputs)]
    on = f" on axis {axis}" if len(outputs[0].placement) > 1 else ""
    if same_inputs:
        results = " or ".join(dict.fromkeys(_results(r, node) for r in same_inputs))
        raise error(
            "HAP534",
            f"from these operands {node.op} gives {results}{on}",
            line.span,
            _convert_after(same_inputs[0], outputs, axis),
        )
    same_outputs = [r for r in node.rules if _fits(made, r.outputs)]
    nearest = min(same_outputs or list(node.rules), key=lambda r: _distance(r, given, made))
    needs = ", ".join(f"{n}@{p}" for n, p in zip(node.inputs, nearest.inputs, strict=True))
    fixes = [
        _fix(v, axis, want)
        for v, want in zip(inputs, nearest.inputs, strict=True)
        if v.placement[axis] not in (None, want)
    ]
    if not _fits(made, nearest.outputs):
        fixes.append(f"it gives {_results(nearest, node)}")
    taken, wanted = (", ".join(map(str, side)) for side in (inputs, outputs))
    raise error("HAP533", f"no rule of {node.op} makes {wanted} from {taken or 'nothing'}{on}", line.span, f"a near rule needs {needs}" + (f": {'; '.join(fixes)}" if fixes else ""))  # fmt: skip


def _fits(written: Sequence[Placement | None], wanted: Sequence[Placement]) -> bool:
    return all(p is None or p == q for p, q in zip(written, wanted, strict=True))


def _fix(value: Pattern, axis: int, want: Placement) -> str:
    """The line that makes an operand what a rule needs, or words where there is none."""
    before = value.placement[axis]
    how = conversion(before, want) if before is not None else None
    target = _with(value, axis, want)
    return f"`{target} = {how}({value})`" if how else f"make {target} without {value}"


def _results(rule: Rule, node: Node) -> str:
    return ", ".join(f"{n}@{p}" for n, p in zip(node.outputs, rule.outputs, strict=True))


def _convert_after(rule: Rule, outputs: Patterns, axis: int) -> str:
    """The first output that isn't what the rule gives: written as it is, then converted."""
    pairs = ((made, written, written.placement[axis]) for made, written in zip(rule.outputs, outputs, strict=True))
    made, written, wanted = next((m, w, p) for m, w, p in pairs if p is not None and p != m)
    how = conversion(made, wanted)
    before = _with(written, axis, made)
    return f"write {before} here, then `{written} = {how}({before})`" if how else f"write {before} here"


def _with(value: Pattern, axis: int, p: Placement) -> Pattern:
    return Pattern(value.tensor, (*value.placement[:axis], p, *value.placement[axis + 1 :]))


def _distance(rule: Rule, given: Sequence[Placement | None], made: Sequence[Placement | None]) -> tuple[int, int]:
    """How many operands would have to change, impossible changes counted heavily."""
    changes = [(p, want) for p, want in zip(given, rule.inputs, strict=True) if p is not None and p != want]
    impossible = sum(conversion(p, want) is None for p, want in changes)
    return impossible, len(changes) + sum(p is not None and p != q for p, q in zip(made, rule.outputs, strict=True))


# -- conversions -------------------------------------------------------------------


def is_conversion(line: nodes.Line, inputs: Patterns, outputs: Patterns, graph: TrainingGraph) -> bool:
    """Does a line convert what is there? `slice` is also an operator: then it makes another tensor, or with a `?` one that it is known to make."""
    if line.function not in LOCAL or line.function == "partial":
        return line.function in (*COLLECTIVES, *LOCAL)
    if has_hole(line):
        made = graph.producer.get(outputs[0].tensor)
        return made is None or graph.nodes[made].op != line.function
    return bool(inputs) and [v.tensor for v in inputs] == [v.tensor for v in outputs]


def has_hole(line: nodes.Line) -> bool:
    """Is an operand left open?"""
    return any(isinstance(a.value, nodes.Hole) and a.name is None for a in line.args)


def sources(line: nodes.Line, inputs: Patterns, outputs: Patterns) -> Patterns:
    """What a conversion reads: a `?` is the tensor that comes of it, in any placement; one alone stands for all of them."""
    args = [a.value for a in line.args if a.name is None]
    anywhere = [Pattern(o.tensor, (None,) * len(o.placement)) for o in outputs]
    if len(args) == 1 and isinstance(args[0], nodes.Hole):
        return anywhere
    if not has_hole(line):
        return inputs
    if len(args) != len(outputs):
        return ()
    values = iter(inputs)
    return [next(values) if isinstance(a, nodes.Value) else open_ for a, open_ in zip(args, anywhere, strict=True)]


def convert(
    line: nodes.Line, inputs: Patterns, outputs: Patterns, graph: TrainingGraph, section: str
) -> Instruction | None:
    """A collective or local conversion, with any number of operands in one message; None where it leaves placements open.

    Raises HapError: HAP540 operands that don't pair up, HAP541 nothing or several axes change, HAP542 another
    conversion is needed, HAP543 an unknown method, HAP544 a dim that an inner axis cuts too, HAP545 a dtype that can't be sent.
    """
    if not inputs or [v.tensor for v in inputs] != [v.tensor for v in outputs]:
        raise error("HAP540", f"{line.function} turns each operand into the same tensor in another placement", line.span, "as many values on both sides, in the same order")  # fmt: skip
    method, dtype = _how(line, inputs, graph)
    axes = {_changed(line, source, target) for source, target in zip(inputs, outputs, strict=True)} - {None}
    if len(axes) > 1:
        raise error(
            "HAP541", "all operands of one message must change along the same axis", line.span, "write a line per axis"
        )
    read, made = [v.value for v in inputs], [v.value for v in outputs]
    axis = next(iter(axes), None)
    if None in read or None in made or axis is None:
        return None
    return Instruction(
        line.function, _values(read), _values(made), section, method=method, axis=axis, span=line.span, dtype=dtype
    )


def _changed(line: nodes.Line, source: Pattern, target: Pattern) -> int | None:
    """The mesh axis along which one operand changes, None where a `?` leaves it open."""
    pairs = list(zip(source.placement, target.placement, strict=True))
    changed = [a for a, (p, q) in enumerate(pairs) if p is not None and q is not None and p != q]
    if len(changed) > 1:
        raise error(
            "HAP541", f"two axes change at once from {source} to {target}", line.span, "one conversion changes one axis"
        )
    open_ = [(p, q) for p, q in pairs if p is None or q is None]
    if not changed and open_:
        if not any(_may(p, line.function, q) for p, q in open_):
            raise error(
                "HAP542",
                f"{line.function} never turns {source} into {target}",
                line.span,
                "nothing that fits the `?` makes it so",
            )
        return None
    if not changed:
        raise error("HAP541", f"nothing changes from {source} to {target}", line.span, "leave this line out")
    axis = changed[0]
    before, after = pairs[axis]
    assert before is not None and after is not None
    how = conversion(before, after)
    if how is None:
        raise error(
            "HAP542",
            f"nothing turns {source} into {target}",
            line.span,
            "gather it first (all_gather); what is whole becomes partial sums by `partial`",
        )  # shards to partial sums: all else has one
    if how != line.function:
        raise error(
            "HAP542",
            f"{source} becomes {target} by {how}, not {line.function}",
            line.span,
            f"`{target} = {how}({source})`",
        )
    for value in (source, target):
        p = value.placement[axis]
        if p is not None and p.kind == "S" and any(q == p for q in value.placement[axis + 1 :]):
            raise error(
                "HAP544",
                f"dim {p.dim} of {value} is cut by an inner axis too",
                line.span,
                "convert the inner axis first",
            )
    return axis


def _may(source: Placement | None, function: str, target: Placement | None) -> bool:
    """Is there anything for the holes of one axis that makes `function` the conversion between the two?"""
    anything = (Placement("R"), Placement("P"), Placement("S", 0), Placement("S", 1))
    sources = anything if source is None else (source,)
    targets = anything if target is None else (target,)
    return any(conversion(p, q) == function for p in sources for q in targets)


def _how(line: nodes.Line, inputs: Patterns, graph: TrainingGraph) -> tuple[str | None, str | None]:
    """The method written, else the first one of a collective; and the dtype it is sent in, None where that is the operands' own."""
    collective = line.function in COLLECTIVES
    methods = METHODS.get(line.function, ())
    method, dtype = methods[0] if collective else None, None
    for arg in line.args:
        if isinstance(arg.value, nodes.Value):
            _unnamed(arg)
            continue
        if isinstance(arg.value, nodes.Hole) and arg.name is None:
            continue
        word = arg.value.id if isinstance(arg.value, nodes.Name) else None
        if arg.name == "dtype" and collective:
            own = [graph.tensors[v.tensor].dtype for v in inputs]
            if word not in FLOATS or not all(d in FLOATS for d in own):
                raise error("HAP545", f"{line.function} can't send {', '.join(dict.fromkeys(own))} as {word or 'this'}", arg.span, f"floats are sent as one of {', '.join(FLOATS)}")  # fmt: skip
            dtype = word if any(d != word for d in own) else None
        elif arg.name == "method" and word in methods:
            method = word
        else:
            takes = f"takes method = {' or '.join(methods)}, and a dtype" if methods else "takes nothing else"
            raise error("HAP543", f"{line.function} {takes}", arg.span, "leave it out: the first is the default")
    return method, dtype
