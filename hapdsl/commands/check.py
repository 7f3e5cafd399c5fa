"""`hapdsl check FILE…`"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import click

from hapdsl.commands.options import About, files, nothing_about
from hapdsl.commands.output import Output, json_option
from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.lang.nodes import NOWHERE

if TYPE_CHECKING:
    from hapdsl.run.samples import Sample
    from hapdsl.theory.instance import Instance
    from hapdsl.theory.ops import OpDecl
    from hapdsl.workbench import Workbench


MOST_ATTRIBUTES = 4  # different attributes that an operator is tried with
LARGEST = 10_000  # elements of a model's call that is tried as it is: every rule runs it on several devices


@dataclass
class _Findings:
    """What one run of check found, each thing once."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    proven: list[str] = field(default_factory=list)
    numbers: bool = False  # was anything tried in numbers?

    def add(self, *found: Diagnostic) -> bool:
        """Keep what is new; True if an error is among what came."""
        known = {(d.code, d.span, d.message) for d in self.diagnostics}
        self.diagnostics.extend(d for d in found if (d.code, d.span, d.message) not in known)
        return any(d.severity == "error" for d in found)


@click.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=files)
@click.option(
    "--numeric",
    cls=About,
    about="complete programs",
    is_flag=True,
    help="Also run each complete program, small, beside one device.",
)
@click.option("--allow", multiple=True, metavar="MODULE", help="A module whose functions operators may name as kernels; may be repeated.")  # fmt: skip
@json_option
@click.pass_obj
def command(out: Output, files: tuple[str, ...], numeric: bool, allow: tuple[str, ...]) -> int:
    """Prove the programs of FILEs, or say what is wrong at which line and what would make it right.

    Models are elaborated, clusters read and operators looked at as well. A sketch is fine as long as its lines are.
    """
    from hapdsl.workbench import Workbench, status_of

    found = _Findings()
    for file in dict.fromkeys(files):
        try:
            bench = Workbench(file)
        except HapError as problem:
            found.add(*problem.diagnostics)
            continue
        _check(bench, found, numeric, frozenset(allow))
        found.texts.update(bench.files)
    out.diagnose(found.diagnostics, found.texts)
    errors = [d for d in found.diagnostics if d.severity == "error"]
    if not errors and not found.numbers:
        nothing_about(
            "complete programs",
            f"{', '.join(files)} has none; `hapdsl plan FILE -o OUT` writes one, `hapdsl plan FILE --program NAME` completes a sketch",
        )
    result = {"ok": not errors, "diagnostics": [d.as_json() for d in found.diagnostics], "proven": found.proven}
    out.data(result, "\n".join(found.proven))
    if errors and not out.json:
        out.say(f"{len(errors)} error{'s' * (len(errors) != 1)}")
    return status_of(errors)


def _check(bench: Workbench, found: _Findings, numeric: bool, allow: frozenset[str]) -> None:
    """Everything that one file's own blocks say."""
    from hapdsl.cluster import build as build_cluster
    from hapdsl.cluster import check_devices, check_operators, with_devices
    from hapdsl.lang import nodes
    from hapdsl.lang.diagnostics import Report

    name = bench.bundle.main.name
    try:
        ops = bench.ops
    except HapError as problem:
        found.add(*problem.diagnostics)
        return  # no model can be read without its operators
    # those of imported files too: what is proven below rests on them
    if declared := [name for name, op in bench.bundle.ops.items() if ops[name].span == op.span]:
        _operators(bench, declared, found, allow)
    devices = bench.bundle.of_main(nodes.Device)
    report = Report()
    if devices:
        check_devices(devices, bench.bundle.devices, report)
        found.add(*report)
        if not report.errors:
            found.proven.append(f"{name}: {len(devices)} device{'s' * (len(devices) != 1)}")
    with_operators: list[nodes.Cluster | nodes.Device] = [*devices]
    for cluster in bench.bundle.of_main(nodes.Cluster):
        try:
            block = with_devices(cluster, bench.bundle.devices)
            with_operators.append(block)
            built = build_cluster(block, report)
            found.add(*report)
            found.proven.append(f"{name}: cluster {cluster.name}, {len(built)} device{'s' * (len(built) != 1)}")
        except HapError as problem:
            found.add(*problem.diagnostics)
    report = Report()
    check_operators(with_operators, ops, report)
    found.add(*report)
    for model in bench.bundle.of_main(nodes.Model):
        if any(p.default is None for p in model.parameters):
            continue  # whoever uses it says what it is; programs do so below
        try:
            graph = bench.graph(model.name)
            parameters = sum(t.elements for t in graph.of_kind("param"))
            found.proven.append(
                f"{name}: model {model.name}, {len(graph.nodes)} operator calls, {parameters:,} parameters"
            )
        except HapError as problem:
            found.add(*problem.diagnostics)
    for program in bench.programs():
        _program(bench, program.name, found, numeric, allow)
    found.add(*bench.notes)


def _program(bench: Workbench, name: str, found: _Findings, numeric: bool, allow: frozenset[str]) -> None:
    program = bench.program(name)
    try:
        checked = bench.checked(program)
    except HapError as problem:
        found.add(*problem.diagnostics)
        return
    if found.add(*checked.diagnostics):
        return
    lines = len(checked.program.instructions)
    devices = checked.program.layout.devices
    what = "a sketch, nothing against it" if checked.sketch else f"{lines} instructions, proven"
    on = program.cluster or f"{devices} devices"
    if numeric and not checked.sketch:
        from hapdsl.run import numeric as trial

        found.numbers = True
        try:
            what += f", {trial.as_words(trial.compare(bench, program, allow=allow))}"
        except HapError as problem:
            if found.add(*trial.warning(problem)):
                return
    found.proven.append(f"{bench.bundle.main.name}: program {name} for {program.model} on {on}, {what}")


def _operators(bench: Workbench, names: list[str], found: _Findings, allow: frozenset[str]) -> None:
    """A rule follows from the declaration; numbers show whether the declaration says what the kernel does."""
    from hapdsl.run.validate import validate_op

    used = _in_use(bench)
    found.numbers = True
    for name in names:
        decl = bench.ops[name]
        trials = validate_op(decl, bench.ops, allow=allow, calls=_calls(decl, used.get(name, [])))
        once: dict[str, Diagnostic] = {}  # a wrong rule is wrong in every trial: the first is enough
        for trial in trials:
            once.setdefault(trial.message.partition(": it ")[0], trial)
        tried = [_tempered(d, decl, allow) for d in once.values()]
        if not found.add(*tried) and not tried:
            found.proven.append(f"{bench.bundle.main.name}: operator {name}, every rule and gradient tried in numbers")


def _in_use(bench: Workbench) -> dict[str, list[Instance]]:
    """Calls of each operator in the models at hand: a few, with different attributes."""
    used: dict[str, list[Instance]] = {}
    for model in bench.bundle.models.values():
        try:
            graph = bench.graph(model.name)
        except HapError:
            continue  # said elsewhere
        for node in graph.nodes:
            seen = used.setdefault(node.op, [])
            if node.instance.attributes not in [i.attributes for i in seen] and len(seen) < MOST_ATTRIBUTES:
                seen.append(node.instance)
    return used


def _calls(decl: OpDecl, used: list[Instance]) -> list[Sample] | None:
    """Sample calls with the operator's defaults and with the attributes in use; where no sample can be derived the calls in use themselves, if they
    aren't too large to try; None where there are none either."""
    from hapdsl.run.samples import of_instance, samples

    try:
        derived = samples(decl)
    except HapError:
        return [of_instance(i) for i in used if sum(math.prod(g.shape) for g in i.given) <= LARGEST] or None
    # attributes may decide shapes, so a sample that no longer fits is let go
    own = [
        replace(s, attributes={**s.attributes, **i.attributes}, tentative=True)
        for s in derived[:2]
        for i in used
        if i.attributes
    ]
    return derived + own


def _tempered(found: Diagnostic, decl: OpDecl, allow: frozenset[str]) -> Diagnostic:
    """A finding of a trial as a finding of the text.

    A kernel that isn't named, or lies in a module that nobody allowed, isn't run, and a call made up for the trial may not exist
    (it has no place in the text): none of these is a fault of the declaration. A function that torch doesn't have is.
    """
    if found.span == NOWHERE:
        return replace(found, span=decl.span, severity="warning")
    ours = decl.torch is not None and decl.torch.partition(".")[0] in ("torch", "hapdsl")
    return replace(found, severity="warning") if found.code == "HAP700" and not allow and not ours else found
