"""`hapdsl why FILE [TENSOR]`"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from hapdsl.commands.options import About, Real, files, nothing_about
from hapdsl.commands.output import Output, json_option
from hapdsl.commands.settings import read_settings
from hapdsl.commands.units import shares, table
from hapdsl.lang.amounts import in_seconds
from hapdsl.lang.diagnostics import error

if TYPE_CHECKING:
    from hapdsl.cluster import Cluster
    from hapdsl.cost.comparison import Change
    from hapdsl.graph.program import Program
    from hapdsl.search.alternatives import Alternative, Alternatives, Answer
    from hapdsl.search.closecalls import Call
    from hapdsl.search.questions import Option, Question
    from hapdsl.search.unitprices import UnitPrice
    from hapdsl.theory.placements import Placement

SHOWN = 3  # differences of a program in words; --json has all
CALLS = 10
KINDS = {
    "call": "is made by",
    "read": "is read by",
    "held": "is held as",
    "offered": "is offered to readers as",
    "carried": "for the backward pass is",
}
SHORT = {"call": "made", "read": "read by {} as", "held": "held", "offered": "offered", "carried": "carried:"}
SIGNS = {"more": "+", "less": "-", "other": "~"}


@click.command("why")
@click.argument("file", metavar="FILE", shell_complete=files)
@click.argument("tensor", metavar="[TENSOR]", required=False)
@click.option("--program", "program", metavar="NAME", help="This one of FILE's programs.")
@click.option("--model", cls=About, about="planning", metavar="NAME", help="Plan this model of FILE, and explain that plan.")  # fmt: skip
@click.option(
    "--cluster", metavar="FILE[:NAME]", shell_complete=files, help="Another cluster: a NAME in FILE, or another file's."
)
@click.option(
    "--set",
    "settings",
    cls=About,
    about="planning",
    multiple=True,
    metavar="K=V",
    help="Set a parameter of the model that is planned; may be repeated.",
)
@click.option(
    "--gap",
    cls=About,
    about="planning",
    type=Real(0, 1),
    metavar="FRACTION",
    default=0.01,
    show_default=True,
    help="Planning stops this close to the bound.",
)
@click.option("--time-limit", cls=About, about="planning", type=Real(0), metavar="S", help="Planning stops after so many seconds.")  # fmt: skip
@click.option("--objective", type=click.Choice(["sync", "overlap"]), default="sync", show_default=True, help="sync: stage by stage. overlap: communication beside compute.")  # fmt: skip
@click.option("--all-devices", cls=About, about="planning", is_flag=True, help="Planning leaves no device out, even where it is faster without.")  # fmt: skip
@json_option
@click.pass_obj
def command(
    out: Output,
    file: str,
    tensor: str | None,
    program: str | None,
    model: str | None,
    cluster: str | None,
    settings: tuple[str, ...],
    gap: float,
    time_limit: float | None,
    objective: str,
    all_devices: bool,
) -> int:
    """Why a plan makes TENSOR as it does: every other choice, with the best program found that takes it.

    TENSOR is a name, or a value like h@S(0). Without it: the lines whose best alternative costs least and most, and what one
    unit more or less on each kind of device would cost. FILE holds a program, or a model, which is planned first.
    """
    from hapdsl.cluster.fewer import fewer
    from hapdsl.search.alternatives import Alternatives
    from hapdsl.search.closecalls import close_calls
    from hapdsl.search.fewer import plan_or_fewer
    from hapdsl.search.questions import tensor_named
    from hapdsl.search.unitprices import unit_prices
    from hapdsl.workbench import Workbench

    bench = Workbench(file)
    name, placement = _value(tensor) if tensor is not None else (None, None)
    if program is not None or (bench.programs() and model is None and not settings):
        tree = bench.program(program)
        nothing_about(
            "planning", f"program '{tree.name}' is explained as it stands; --model NAME without --program plans anew"
        )
        hardware = bench.cluster_of(tree, cluster) or bench.cluster()
        found = bench.proven(tree, cluster).program
    else:
        node = bench.model(model)
        graph = bench.graph(node.name, read_settings(node, settings))
        hardware = bench.cluster(cluster)
        if hardware.virtual:
            raise error(
                "HAP604",
                f"a plan on '{hardware.name}', whose nodes are virtual devices, has two axes",
                help="the search, and so what it knows of other choices, is on one axis",
                status=1,
            )
        if name is not None:
            tensor_named(graph, name)  # said before the search, not after it
        if not out.json:
            out.say(f"planning {node.name} on {hardware.name}")
        smaller = () if all_devices else fewer(bench.cluster_block(cluster), hardware)
        wishes: dict[str, Any] = {
            "objective": objective,
            "gap": gap,
            "time_limit": time_limit,
            "name": f"{node.name}_plan",
        }
        made, on = plan_or_fewer(graph, hardware, smaller, **wishes)
        found, hardware = made.program, hardware if on is None else on.cluster
    if name is not None:
        name = tensor_named(found.graph, name)
        if placement is not None:
            _possible(found, name, placement)
    known = Alternatives(found, hardware, objective)
    head = {
        "program": found.name,
        "model": found.graph.model,
        "cluster": hardware.name,
        "guessed": hardware.guessed,
        "objective": objective,
        "cost_s": known.cost_s,
        "written_s": known.written_s,
        "bound_s": known.bound_s,
    }
    words = _head(known, hardware)
    if name is not None:
        answers = _asked(known.of(name), placement)
        out.data(
            {**head, **_object(name, answers, known)}, "\n\n".join([words, *(_answer_words(a, known) for a in answers)])
        )
        return 0
    near, far = close_calls(known, CALLS)
    prices = unit_prices(found, hardware, objective)
    calls = {"close": [_call_object(c, known) for c in near], "decided": [_call_object(c, known) for c in far]}
    units = [_price_object(p, found, hardware) for p in prices]
    out.data(
        {**head, "tensor": None, **calls, "unit_prices": units},
        "\n\n".join([words, *_overview(near, far, prices, known, hardware)]),
    )
    return 0


# -- what is asked ----------------------------------------------------------------------


def _value(text: str) -> tuple[str, Placement | None]:
    """`h` or `h@S(0)`."""
    from hapdsl.theory.placements import P, R, S

    name, at, written = text.partition("@")
    if not at:
        return name.strip(), None
    match = re.fullmatch(r"(R)|(P)|S\((\d{1,3})\)", written.strip())
    if match is None or not name.strip():
        raise click.UsageError(f"'{text}' is no value: write a tensor's name, or with a placement h@R, h@P or h@S(0)")
    return name.strip(), R if match[1] else P if match[2] else S(int(match[3]))


def _possible(program: Program, name: str, placement: Placement) -> None:
    """Raises HAP521 or HAP522 for a placement that a tensor can't have."""
    from hapdsl.check.values import pattern_of
    from hapdsl.lang import nodes
    from hapdsl.theory.placements import to_nodes

    pattern_of(
        nodes.Value(name, to_nodes((placement,) * len(program.layout.mesh))), None, program.graph, program.layout
    )


def _asked(answers: Sequence[Answer], placement: Placement | None) -> list[Answer]:
    """Where a value is asked for that the plan doesn't have, only what would bring it about."""
    from dataclasses import replace

    if placement is None or any(placement in a.chosen.option.placements for a in answers):
        return list(answers)
    return [
        replace(a, alternatives=tuple(o for o in a.alternatives if placement in o.option.placements)) for a in answers
    ]


# -- one tensor -------------------------------------------------------------------------


def _object(name: str, answers: Sequence[Answer], known: Alternatives) -> dict[str, Any]:
    every = [_alternative_object(a.question, o, known) for a in answers for o in a.alternatives]
    every.sort(key=lambda o: (o["cost_s"] is None, o["cost_s"]))
    choices = [{**_alternative_object(a.question, a.chosen, known), "kept_s": a.kept_s} for a in answers]
    return {"tensor": name, "chosen": choices[0], "alternatives": every, "choices": choices}


def _alternative_object(question: Question, a: Alternative, known: Alternatives) -> dict[str, Any]:
    return {
        "choice": question.kind,
        "tensor": question.tensor,
        "call": question.of,
        "placement": a.option.shown,
        "instruction": a.option.text,
        "cost_s": a.cost_s,
        "delta_s": None if a.cost_s is None else a.cost_s - known.cost_s,
        "communication_s": a.communication_s,
        "compute_s": a.compute_s,
        "bound_s": a.bound_s,
        "bound_delta_s": a.bound_s - known.bound_s,
        "changes": [
            {"kind": c.kind, "how": c.how, "line": c.text, "tensors": list(c.tensors), "delta_s": c.delta_s}
            for c in a.changes
        ],
    }


def _head(known: Alternatives, cluster: Cluster) -> str:
    p = known.program
    kind = "synchronous" if known.objective == "sync" else "overlapped"
    parts = [
        f"{p.name} for {p.graph.model} on {cluster.name}: {in_seconds(known.cost_s)} a step ({kind}), bound {in_seconds(known.bound_s)} for these shares"
    ]
    if abs(known.written_s - known.cost_s) > 1e-9 * known.cost_s:
        parts.append(
            f"  in the order in which it is written {in_seconds(known.written_s)}; all programs here are in the search's own order"
        )
    return "\n".join(parts)


def _answer_words(answer: Answer, known: Alternatives) -> str:
    question = answer.question
    title = f"{question.tensor} {KINDS[question.kind]}"
    rows = [
        (
            _option(question, answer.chosen.option),
            *["+0 s"] * 3,
            _signed(answer.chosen.bound_s - known.bound_s, known),
            "",
        )
    ]
    for a in answer.alternatives:
        if a.cost_s is None:
            rows.append(
                (
                    _option(question, a.option),
                    "-",
                    "",
                    "",
                    _signed(a.bound_s - known.bound_s, known),
                    "doesn't fit into memory",
                )
            )
            continue
        deltas = (a.cost_s - known.cost_s, a.communication_s, a.compute_s, a.bound_s - known.bound_s)
        changes = [_change(c) for c in a.changes[:SHOWN]] or ["takes the same time" if a.differs else "the same lines"]
        rows.append((_option(question, a.option), *(_signed(d, known) for d in deltas), changes[0]))
        rows += [("", "", "", "", "", change) for change in changes[1:]]
    head = (title, "difference", "communication", "compute", "by the bound", "most of it")
    parts = [table(head, rows, right=(1, 2, 3, 4))]
    if not answer.alternatives:
        parts.append("  there is no other choice")
    if answer.kept_s < known.cost_s * (1 - 1e-9):
        parts.append(f"  a program that does the same here and takes {in_seconds(answer.kept_s)} was found: plan again")
    return "\n".join(parts)


def _option(question: Question, option: Option) -> str:
    return option.text if question.kind in ("call", "read") else option.shown


def _change(change: Change) -> str:
    many = f" ({len(change.tensors)} times)" if len(change.tensors) > 1 else ""
    return f"{SIGNS[change.how]} {change.short} {_plain_signed(change.delta_s)}{many}"


def _signed(seconds: float, known: Alternatives) -> str:
    """`+3.1 ms`; what is rounding beside the step is zero."""
    return "+0 s" if abs(seconds) <= 1e-9 * known.cost_s else _plain_signed(seconds)


def _plain_signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{in_seconds(abs(seconds))}"


# -- the whole plan ---------------------------------------------------------------------


def _call_object(call: Call, known: Alternatives) -> dict[str, Any]:
    found = _alternative_object(call.questions[0], call.alternative, known)
    lines = [{"choice": q.kind, "tensor": q.tensor, "call": q.of} for q in call.questions]
    return {**found, "chosen": call.chosen.shown, "lines": lines}


def _price_object(p: UnitPrice, program: Program, cluster: Cluster) -> dict[str, Any]:
    def name(device: int | None) -> str | None:
        return None if device is None else cluster.devices[device].name

    return {
        "class": p.cls,
        "units": program.graph.classes[p.cls].units,
        "devices": [name(d) for d in p.devices],
        "shares": list(p.shares),
        "more_s": p.more_s,
        "more_to": name(p.more_to),
        "more_from": name(p.more_from),
        "less_s": p.less_s,
        "less_from": name(p.less_from),
        "less_to": name(p.less_to),
    }


def _overview(
    near: Sequence[Call], far: Sequence[Call], prices: Sequence[UnitPrice], known: Alternatives, cluster: Cluster
) -> list[str]:
    parts = []
    if not known.exact:
        parts.append("the tables of all lines would be too wide: name a tensor")
    for title, calls in (("close calls", near), ("most decided", far)):
        found = []
        for call in calls:
            a = call.alternative
            more = f" and {len(call.questions) - 1} more" if len(call.questions) > 1 else ""
            what = f"{call.questions[0].tensor}{more}"
            seconds = "-" if a.cost_s is None else _signed(a.cost_s - known.cost_s, known)
            split = ("", "") if a.cost_s is None else (_signed(a.communication_s, known), _signed(a.compute_s, known))
            did = SHORT[call.questions[0].kind].format(call.questions[0].of)
            found.append(
                (
                    what,
                    f"{did} {call.chosen.shown}",
                    a.option.shown,
                    seconds,
                    *split,
                    _signed(a.bound_s - known.bound_s, known),
                )
            )
        if found:
            head = (title, "now", "instead", "difference", "communication", "compute", "by the bound")
            parts.append(table(head, found, right=(3, 4, 5, 6)))
    units = []
    for p in prices:
        first = cluster.devices[p.devices[0]].name
        devices = first if len(p.devices) == 1 else f"{first} and {len(p.devices) - 1} more"
        gain = ("-", "") if p.more_s is None else (_signed(p.more_s, known), cluster.devices[p.more_from or 0].name)
        loss = ("-", "") if p.less_s is None else (_signed(p.less_s, known), cluster.devices[p.less_to or 0].name)
        units.append((p.cls, devices, shares(p.shares), *gain, *loss))
    if units:
        parts.append(table(("class", "devices", "units", "one more", "from", "one less", "to"), units, right=(3, 5)))
    return parts
