"""A sketch completed: what a person has written stays, the search chooses the rest.

What holds of the completed program:

- a call whose line is written runs under the placements written there (a `?` leaves that one open);
- a parameter or state is held as its written load says, inputs are (also) loaded as written;
- a written conversion is made, from the placement and by the method written; a pin's value comes up;
- written shares are used as they are; classes without shares are free.

Lines stand in the search's order, not in the person's, and what is written isn't moved from there to gain time; a message
of several operands may be parted or joined with others, and `free` is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hapdsl.check.facts import read_by
from hapdsl.check.layout import largest_remainder
from hapdsl.check.lines import PlacedLine, unrolled
from hapdsl.check.triples import has_hole, is_conversion, sources
from hapdsl.check.values import Pattern, pattern_of
from hapdsl.check.verify import Checked
from hapdsl.cluster.hardware import Cluster
from hapdsl.graph.program import LOADS, Instruction
from hapdsl.graph.training import Node, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, Report, error
from hapdsl.search.eliminate import TooWide, eliminate
from hapdsl.search.messages import LOADED_ONLY, PARAMS
from hapdsl.search.milp import by_milp
from hapdsl.search.plan import Plan
from hapdsl.search.plan import Report as Tell
from hapdsl.search.planner import plan
from hapdsl.search.possible import possible
from hapdsl.search.restriction import NOTHING, Restriction, Wish
from hapdsl.search.shares import layout_of
from hapdsl.search.space import Space
from hapdsl.search.structure import Structure
from hapdsl.theory.placements import Placement
from hapdsl.theory.rules import Rule

SCOPE = "what the sketch leaves open"
MILP_SECONDS = 5.0  # of HiGHS per set of lines, where tables would be too wide
Maybe = Placement | None


@dataclass(frozen=True)
class Decision:
    """One thing a person decided, with the place where it stands.

    `call`: the call that makes `tensor` runs with `inputs` -> `outputs` (None: open). `held`: a parameter or state is held
    as `target`. `source` -> `target`: a conversion, by `method`. `target` alone: a value that must come up.
    """

    span: nodes.Span
    kind: str  # call, held, conversion, value
    tensor: str
    inputs: tuple[Maybe, ...] = ()
    outputs: tuple[Maybe, ...] = ()
    source: Maybe = None
    target: Maybe = None
    method: str | None = None


def complete(
    checked: Checked,
    tree: nodes.Program,
    cluster: Cluster,
    *,
    objective: str = "sync",
    gap: float = 0.01,
    time_limit: float | None = None,
    progress: Tell | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Plan:
    """The best program found among those that a sketch leaves open (`checked` is what the verifier made of `tree`).

    Raises HapError: what the verifier found; HAP603 lines that can't all stand; HAP604 a sketch on several axes; HAP605 a
    line that no searched program has; and what `plan` raises.
    """
    if not checked.ok:
        raise HapError(*checked.diagnostics)
    training, layout = checked.program.graph, checked.program.layout
    if len(layout.mesh) > 1:
        raise error(
            "HAP604",
            f"'{tree.name}' is on a mesh of {len(layout.mesh)} axes",
            tree.span,
            "the search is on one axis",
            1,
        )
    found = decisions(tree, checked)
    fixed = {c: layout.shares[c][(0,)] for c in training.classes if c not in checked.free}
    restriction = restrict(training, found)
    try:
        made = plan(
            training,
            cluster,
            objective=objective,
            gap=gap,
            time_limit=time_limit,
            progress=progress,
            cancelled=cancelled,
            baselines=False,
            restriction=restriction,
            fixed=fixed,
            name=tree.name,
            written=written(found),
        )
    except HapError as problem:
        # Or time was up before anything was found.
        if problem.diagnostics[0].code == "HAP602" and found and not _feasible(training, restriction, cluster):
            raise contradiction(training, found, cluster) from None
        raise
    made.program.cluster, made.program.model_args = tree.cluster or cluster.name, checked.program.model_args
    return made


def written(found: Iterable[Decision]) -> Callable[[Instruction], bool]:
    """Which instructions stand for lines that a person wrote, calls and conversions; these keep their order."""
    calls = {d.tensor for d in found if d.kind == "call"}
    conversions = {(d.tensor, d.target) for d in found if d.kind == "conversion"}

    def is_written(instruction: Instruction) -> bool:
        if instruction.node is not None:
            return any(v.tensor in calls for v in instruction.outputs)
        return any((v.tensor, v.placement[0]) in conversions for v in instruction.outputs) and bool(instruction.inputs)

    return is_written


# -- what is written -----------------------------------------------------------------


def decisions(tree: nodes.Program, checked: Checked) -> list[Decision]:
    """All that a person decided, in the order of the lines."""
    training = checked.program.graph
    found: list[Decision] = []
    for placed in unrolled(tree, training, Report()):
        match placed.statement:
            case nodes.Pin(name=name, placement=placement) as pin:
                value = nodes.Value(name, placement, span=pin.span)
                pattern = pattern_of(value, placed.turn, training, checked.program.layout)
                if pattern.placement[0] is not None:  # `?` decides nothing
                    found.append(_value(training, pattern.tensor, pattern.placement[0], pin.span))
            case nodes.Line() as line:
                found += _line(line, placed, checked)
    return found


def _value(training: TrainingGraph, tensor: str, target: Placement, span: nodes.Span) -> Decision:
    kind = training.tensors[tensor].kind
    if kind in LOADED_ONLY and target.kind == "P":
        what = f"'{tensor}' is loaded, and nothing is loaded as partial sums"
        raise error("HAP605", what, span, "pin it at R or a shard", 1)
    return Decision(span, "held" if kind == "state" else "value", tensor, target=target)


def _line(line: nodes.Line, placed: PlacedLine, checked: Checked) -> list[Decision]:
    training, layout = checked.program.graph, checked.program.layout
    outputs = [pattern_of(v, placed.turn, training, layout) for v in line.outputs]
    inputs = [pattern_of(v, placed.turn, training, layout) for v in read_by(line)]
    if line.function in LOADS and not line.args:
        return [_load(training, o, line.span) for o in outputs if o.placement[0] is not None]
    if is_conversion(line, inputs, outputs, training):
        words = {a.name: a.value.id for a in line.args if isinstance(a.value, nodes.Name)}
        if "dtype" in words:
            raise error(
                "HAP605",
                "the search sends floats as they are",
                line.span,
                "take `dtype` away, or write the whole program",
                1,
            )
        method = words.get("method")
        given = sources(line, inputs, outputs)
        pairs = [(i.tensor, i.placement[0], o.placement[0]) for i, o in zip(given, outputs, strict=True)]
        return [_conversion(training, line, t, p, q, method) for t, p, q in pairs]
    read = () if has_hole(line) else tuple(v.placement[0] for v in inputs)
    return [Decision(line.span, "call", outputs[0].tensor, read, tuple(v.placement[0] for v in outputs))]


def _load(training: TrainingGraph, pattern: Pattern, span: nodes.Span) -> Decision:
    held = training.tensors[pattern.tensor].kind in (*PARAMS, "state")
    return Decision(span, "held" if held else "value", pattern.tensor, target=pattern.placement[0])


def _conversion(
    training: TrainingGraph, line: nodes.Line, tensor: str, source: Maybe, target: Maybe, method: str | None
) -> Decision:
    if training.tensors[tensor].kind in LOADED_ONLY:
        raise error("HAP605", f"'{tensor}' is loaded in any placement: the search converts it nowhere", line.span, "load it as it is read", 1)  # fmt: skip
    before, after = _SIDES[line.function]
    source, target = source or _side(training, line, tensor, before), target or _side(training, line, tensor, after)
    return Decision(line.span, "conversion", tensor, source=source, target=target, method=method)


# Between which kinds of placements each conversion goes (`graph.program.conversion`).
_SIDES = {
    "all_reduce": ("P", "R"), "reduce_scatter": ("P", "S"), "all_gather": ("S", "R"), "all_to_all": ("S", "S"),
    "slice": ("R", "S"), "partial": ("R", "P"),
}  # fmt: skip


def _side(training: TrainingGraph, line: nodes.Line, tensor: str, kind: str) -> Placement:
    """What `?` stands for on one side of a conversion: its kind is known, and of shards the dim where there is one only. Raises HapError HAP605."""
    if kind != "S":
        return Placement(kind)
    dims = training.shardable(tensor)
    if len(dims) != 1:
        shown = " or ".join(f"S({d})" for d in dims) or "nothing"
        raise error("HAP605", f"`?` of '{tensor}' may be {shown} here, and the search must be told which", line.span, "write it, or take the line away", 1)  # fmt: skip
    return Placement("S", dims[0])


# -- as a part of the space ------------------------------------------------------------


def restrict(training: TrainingGraph, found: Sequence[Decision]) -> Restriction:
    """The part of the space in which all decisions stand."""
    calls: dict[int, list[Decision]] = {}
    held: dict[str, set[Maybe]] = {}
    wishes: dict[str, Wish] = {}
    olds = {new: old for old, new in training.updates.items()}
    for d in found:
        wish = wishes.get(d.tensor, NOTHING)
        if d.kind == "call":
            calls.setdefault(id(training.nodes[training.producer[d.tensor]]), []).append(d)
        elif d.kind == "held":
            held.setdefault(d.tensor, set()).add(d.target)
        elif d.kind == "value":
            assert d.target is not None
            wishes[d.tensor] = replace(wish, wanted=_with(wish.wanted, d.target))
        else:
            assert d.source is not None and d.target is not None
            if d.tensor in olds:  # an updated parameter is converted to how it is held, and nowhere else
                held.setdefault(olds[d.tensor], set()).add(d.target)
            wish = replace(wish, wanted=_with(wish.wanted, d.source), made=_with(wish.made, d.target))
            wish = replace(wish, sources={**wish.sources, d.target: d.source})
            if d.method is not None:
                wish = replace(wish, methods={**wish.methods, d.target: d.method})
            wishes[d.tensor] = wish

    def allow(node: Node, rule: Rule) -> bool:
        for d in calls.get(id(node), ()):
            if not (_fits(d.outputs, rule.outputs) and (not d.inputs or _fits(d.inputs, rule.inputs))):
                return False
        return all(
            held[n] == {p}
            for n, p in zip(node.inputs, rule.inputs, strict=True)
            if n in held and training.tensors[n].kind == "state"
        )

    def allow_held(param: str, placement: Placement) -> bool:
        return param not in held or held[param] == {placement}

    return Restriction(allow, allow_held, wishes, SCOPE)


def _with(placements: tuple[Placement, ...], more: Placement) -> tuple[Placement, ...]:
    return tuple(sorted({*placements, more}))


def _fits(written: Sequence[Maybe], wanted: Sequence[Placement]) -> bool:
    return len(written) == len(wanted) and all(p is None or p == q for p, q in zip(written, wanted, strict=True))


# -- contradictions --------------------------------------------------------------------


def _feasible(training: TrainingGraph, restriction: Restriction, cluster: Cluster) -> bool:
    structure = Structure(training, restriction, ())
    if structure.impossible:
        return False
    ones = [1.0] * len(cluster)
    even = layout_of({c.name: largest_remainder(ones, c.units) for c in training.classes.values()}, len(cluster))
    space = Space(training, even, cluster, None, "sync", structure)
    weights = np.full(len(space.timed), 1.0 / len(space.timed))
    try:
        return eliminate(space.graph, weights).feasible
    except TooWide:
        return math.isfinite(by_milp(space.graph, seconds=MILP_SECONDS)(weights)[0])


def contradiction(training: TrainingGraph, found: Sequence[Decision], cluster: Cluster) -> HapError:
    """Why decisions that leave nothing do so: lines of which none may be left out, early ones rather than later ones.

    Cost: an elimination per set that is tried, some 2 log2(decisions) where few of them are to blame.
    """
    needed = list(found)
    size = max(1, len(needed) // 2)
    while size:  # whole blocks first: most lines have nothing to do with it
        for end in range(len(needed), 0, -size):
            without = needed[: max(0, end - size)] + needed[end:]
            if without and not _feasible(training, restrict(training, without), cluster):
                needed = without
        size //= 2
    if len(needed) == 1:
        return _alone(training, needed[0])
    places = [d.span.line for d in needed]
    lines = ", ".join(str(n) for n in sorted(set(places)))
    what = f"the lines {lines} can't all stand: no program does what they say of {_names(needed)}"
    return error("HAP603", what, needed[-1].span, "leave one of them to the search: `?`, or take it away", 1)


def _names(found: Iterable[Decision]) -> str:
    return " and ".join(dict.fromkeys(f"'{d.tensor}'" for d in found))


def _alone(training: TrainingGraph, d: Decision) -> HapError:
    """A line that by itself leaves nothing: legal perhaps, but no program of the search has it."""
    help = "leave its placements to the search: `?`"
    if d.kind == "call":
        node = training.nodes[training.producer[d.tensor]]
        rules = [r for r in node.rules if possible(training, node, r)]
        shown = ", ".join(f"{n}@{p}" for n, p in zip(node.inputs, rules[-1].inputs, strict=True)) if rules else ""
        help = f"the search reads {shown} here, for one" if shown else help
    return error("HAP605", f"the search has no program with '{d.tensor}' as this line makes it", d.span, help, 1)
