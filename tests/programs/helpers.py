"""Programs that people wrote, plans for devices of which one is quick, and any program beside one device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor

from hapdsl.check.verify import Checked, verify
from hapdsl.check.write import write
from hapdsl.cluster import Cluster
from hapdsl.cluster import build as build_cluster
from hapdsl.graph.build import build, operators
from hapdsl.graph.program import Instruction, Layout, Program, Value
from hapdsl.graph.training import LOADED, TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.load import load
from hapdsl.lang.print import to_text
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.inprocess import InProcess, gather
from hapdsl.run.reference import Reference, advance
from hapdsl.search.plan import Plan
from hapdsl.theory.instance import Instance
from hapdsl.theory.placements import R
from hapdsl.theory.rules import Rule, rules
from tests.texts import PROGRAMS, cluster_in, program_in

FOLDER = PROGRAMS / "plans"
WRITTEN = sorted(
    {f"{model}_{idea}" for model in ("mlp", "layer") for idea in ("data_parallel", "zero", "megatron", "sfb")}
    | {"mesh"}
)


@dataclass(frozen=True)
class Written:
    """A program of programs/plans with what it stands for."""

    text: str
    tree: nodes.Program
    graph: TrainingGraph
    cluster: Cluster
    checked: Checked

    @property
    def program(self) -> Program:
        return self.checked.program


@cache
def written(name: str) -> Written:
    path = FOLDER / f"{name}.hap"
    bundle = load(path)
    (tree,) = bundle.programs.values()
    args = {a.name or "": a.value.value for a in tree.args if isinstance(a.value, nodes.Number)}
    graph = build(bundle.models[tree.model], bundle.defs, operators(bundle.ops), args)
    assert tree.cluster is not None
    cluster = build_cluster(bundle.clusters[tree.cluster])
    return Written(path.read_text(encoding="utf-8"), tree, graph, cluster, verify(tree, graph, len(cluster)))


def of_params(graph: TrainingGraph) -> set[str]:
    return {graph.resolve(f"{t.name}.grad") for t in graph.of_kind("param")}


def compare(program: Program, graph: TrainingGraph, dtype: torch.dtype, tolerance: float, count: int = 3) -> None:
    """Each step's loss, every gradient and every updated parameter and state, against one device."""
    tensors = {**initial(graph, 3, torch.float64), **random_inputs(graph, 5)}
    tensors = {n: t.to(dtype) if t.is_floating_point() else t for n, t in tensors.items()}
    alone = Reference(graph, dtype)
    together = InProcess(program, dtype, keep_all=True)
    together.load(tensors)
    now: dict[str, Tensor] = dict(tensors)
    wanted = {graph.loss, *of_params(graph), *graph.updates.values()}
    for number in range(1, count + 1):
        expected = alone.step(now, number)
        made = together.step(now, number)
        assert wanted <= {v.tensor for v in made}
        for tensor in sorted({v.tensor for v in made} & set(expected)):
            ours, theirs = gather(program, made, tensor, tolerance), expected[tensor]
            assert ours.dtype == theirs.dtype
            assert torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance), (
                number,
                tensor,
                (ours - theirs).abs().max(),
            )
        now = advance(graph, now, expected)
    for old in graph.updates:  # what the devices hold now is what the next step starts from
        assert not torch.equal(now[old], tensors[old]), old


THREE = """
cluster three {{
    device quick {{ compute = 9 GFLOP/s, memory = 2 GiB, bandwidth = 80 GB/s }}
    device slow  {{ compute = 3 GFLOP/s, memory = 2 GiB, bandwidth = 30 GB/s }}
    node host = 1 * quick, 2 * slow over {{ bandwidth = {bandwidth}, latency = {latency} }}
}}"""


def three(bandwidth: str, latency: str = "0 us") -> Cluster:
    return cluster_in(THREE.format(bandwidth=bandwidth, latency=latency))


def reread(program: Program) -> Program:
    """Written as text, read again and proven."""
    tree = program_in(to_text(write(program)))
    checked = verify(tree, program.graph, program.layout.devices)
    assert checked.ok and not checked.sketch
    assert not list(checked.diagnostics), [d.message for d in checked.diagnostics]
    return checked.program


def shares(found: Plan, cls: str) -> list[int]:
    return [int(n) for n in found.program.layout.shares[cls][(0,)]]


def placed(instruction: Instruction) -> str:
    left, right = (", ".join(str(v.placement[0]) for v in side) for side in (instruction.inputs, instruction.outputs))
    return f"{left} -> {right}"


def falls_without(
    found: Plan, fresh: Callable[[], TrainingGraph], op: str, rule: str, patch: pytest.MonkeyPatch
) -> bool:
    """Is the plan's text refused by a theory that lacks one rule of one operator?"""
    text = to_text(write(found.program))

    def fewer(instance: Instance) -> tuple[Rule, ...]:
        return tuple(r for r in rules(instance) if instance.decl.name != op or said(r) != rule)

    patch.setattr("hapdsl.graph.training.rules", fewer)
    tree = program_in(text)
    errors = verify(tree, fresh(), found.program.layout.devices).diagnostics.errors
    return bool(errors) and all(op in d.message or op in str(d.help) for d in errors[:1])


def said(rule: Rule) -> str:
    return " -> ".join(", ".join(map(str, side)) for side in (rule.inputs, rule.outputs))


def replicated(made: TrainingGraph) -> Program:
    """Everything on every device."""

    def whole(names: Iterable[str]) -> tuple[Value, ...]:
        return tuple(Value(n, (R,)) for n in names)

    lines, have = [], set()
    for node in made.nodes:
        for name in node.inputs:
            if name not in made.producer and name not in have:
                have.add(name)
                own = (
                    node.repeat
                    if node.repeat and name.startswith(f"{node.repeat[-1][0]}.{node.repeat[-1][1]}.")
                    else ()
                )
                lines.append(Instruction(LOADED[made.tensors[name].kind], (), whole([name]), node.section, repeat=own))
        lines.append(
            Instruction(node.op, whole(node.inputs), whole(node.outputs), node.section, node, repeat=node.repeat)
        )
    return Program("whole", made, Layout((("devices", 2),), {}), lines)
