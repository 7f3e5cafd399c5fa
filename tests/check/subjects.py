"""The programs that tests of the verifier mutate, each at a small size with what one device makes of the same step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import torch

from hapdsl.check.split import split
from hapdsl.check.verify import Checked, is_sketch, verify
from hapdsl.check.write import write
from hapdsl.graph.program import Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import Report
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.inprocess import InProcess, gather
from hapdsl.run.reference import Reference
from hapdsl.search.planner import plan
from hapdsl.workbench import Workbench
from tests.check.across import across
from tests.check.random_programs import random_program
from tests.texts import PROGRAMS, REFERENCE

PLANS = sorted((PROGRAMS / "plans").glob("*.hap"))
TOLERANCE = 1e-9
SMALL = {
    "mlp": {"batch": 12, "d": 6, "hidden": 10, "classes": 3},
    "layer": {"batch": 6, "d": 8, "heads": 4, "ffn": 10, "classes": 3},
    "rezero": {"batch": 4, "seq": 3, "d": 6, "heads": 3, "ffn": 10, "vocab": 12},
    "gpt": {"batch": 3, "seq": 4, "d": 8, "heads": 4, "ffn": 10, "vocab": 12, "layers": 3},
}


@dataclass
class Subject:
    """A program with its graph at a small size, the tensors of one step, and what one device makes of them."""

    name: str
    tree: nodes.Program
    graph: TrainingGraph
    tensors: dict[str, torch.Tensor]
    expected: dict[str, torch.Tensor]


def subject(name: str, tree: nodes.Program, graph: TrainingGraph) -> Subject:
    tensors = {**initial(graph, 3, torch.float64), **random_inputs(graph, 5)}
    return Subject(name, tree, graph, tensors, Reference(graph, torch.float64).step(tensors))


def small(tree: nodes.Program) -> nodes.Program:
    """Shares as weights of a smaller model, in whole units again: `ratio`."""
    body = tuple(nodes.Ratio(s.cls, s.values, s.axis) if isinstance(s, nodes.Shares) else s for s in tree.body)
    return replace(tree, body=body)


def in_units(tree: nodes.Program, graph: TrainingGraph) -> nodes.Program:
    """The same program with its shares as integers, written back from what the verifier made of it."""
    head = [s for s in write(verify(tree, graph).program).body if isinstance(s, nodes.Shares)]
    kept = [s for s in tree.body if not isinstance(s, nodes.Shares | nodes.Ratio | nodes.Fingerprint)]
    mesh = [s for s in kept if isinstance(s, nodes.Mesh)]
    return replace(tree, body=(*mesh, *head, *(s for s in kept if not isinstance(s, nodes.Mesh))))


def written(path: Path) -> Subject:
    """The hand-written program of a file, complete: sketches beside it are left out."""
    bench = Workbench(path)
    (program,) = (p for p in bench.programs() if not is_sketch(p))
    if program.model not in SMALL:
        raise KeyError(f"say in SMALL how large '{program.model}' is to be here")
    graph = bench.graph(program.model, SMALL[program.model])
    return subject(f"{path.stem}/{program.name}", in_units(small(program), graph), graph)


def synthesised(model: str) -> Subject:
    """What the planner makes of an MLP or of a transformer with layers, rolled. Only these need the search."""
    bench = Workbench(REFERENCE)
    graph = bench.graph(model, SMALL[model])
    program = plan(graph, bench.cluster("box"), baselines=False, time_limit=20).program
    return subject(f"plan/{model}", without_fingerprint(write(program)), graph)


def two_axes(path: Path) -> Subject:
    """A hand-written program spread data-parallel over a second axis; where both axes cut the batch, with rows of shares."""
    bench = Workbench(path)
    program = bench.program()
    graph = bench.graph(program.model, SMALL[program.model])
    checked = verify(small(program), graph)
    batch = graph.classes["batch"].units
    nested = any(len(v.placement) == 1 and v.tensor in ("x", "image") and v.placement[0].kind == "S" for i in checked.program.instructions for v in i.outputs)  # fmt: skip
    outer = {} if nested else {"batch": [batch - 2, 2]}
    rows = {"batch": [[batch - 4, 1, 0, 1], [1, 1, 0, 0]]} if nested else {}
    return subject(f"across/{path.stem}", without_fingerprint(write(across(checked.program, outer, rows))), graph)


def layered(seed: int) -> Subject:
    """A program at random in which some layers cut heads and ffn otherwise than the rest."""
    graph = Workbench(REFERENCE).graph("gpt", SMALL["gpt"])
    none = nodes.Items(())
    some = [
        nodes.Shares(c, none, None, nodes.Layers("layer", *turns)) for c, turns in (("heads", (0, 1)), ("ffn", (1, 3)))
    ]
    apart = split(nodes.Program("apart", "gpt", (), None, tuple(some)), graph, Report())
    program = random_program(apart, (("devices", 4),), seed)
    return subject(f"layered/{seed}", without_fingerprint(write(program)), graph)


def without_fingerprint(tree: nodes.Program) -> nodes.Program:
    return replace(tree, body=tuple(s for s in tree.body if not isinstance(s, nodes.Fingerprint)))


MAKERS: dict[str, Callable[[], Subject]] = {
    **{f"written/{path.stem}": partial(written, path) for path in [*PLANS, REFERENCE]},
    **{
        f"across/{p.stem}": partial(two_axes, p)
        for p in PLANS
        if p.stem in ("layer_megatron", "layer_zero", "mlp_zero")
    },
    **{f"layered/{seed}": partial(layered, seed) for seed in (2, 5)},
    **{f"plan/{model}": partial(synthesised, model) for model in ("mlp", "gpt")},
}


@cache
def made(name: str) -> Subject:
    """The subject of this name in MAKERS."""
    return MAKERS[name]()


def agrees(checked: Checked, subject: Subject) -> bool:
    """Does the program give one device's loss and updates, each update in the placement its parameter is held in?"""
    program: Program = checked.program
    executor = InProcess(program, torch.float64, keep_all=True)
    executor.load(subject.tensors)
    held = {v.tensor: v for v in executor.held}
    made = executor.step(subject.tensors, 1)
    for name in (subject.graph.loss, *subject.graph.updates.values()):
        assert name is not None
        if not any(v.tensor == name for v in made):
            return False
        if not torch.allclose(
            gather(program, made, name, TOLERANCE), subject.expected[name], rtol=TOLERANCE, atol=TOLERANCE
        ):
            return False
    return all(
        old in held and any(v.tensor == new and v.placement == held[old].placement for v in made)
        for old, new in subject.graph.updates.items()
    )


SIZES = {
    **SMALL,
    "rezero": {**SMALL["rezero"], "layers": 2},
    "encoder": {"batch": 4, "d": 8, "heads": 2, "ffn": 6, "classes": 3},
    "decoder": {"batch": 3, "seq": 4, "d": 8, "heads": 2, "ffn": 6, "vocab": 9},
    "cnn": {"batch": 4, "channels": 3, "features": 4, "hidden": 5, "classes": 3},
    "gpt": {**SMALL["gpt"], "layers": 4},
}
ONE = (("devices", 4),)
TWO = (("nodes", 2), ("devices", 2))


@cache
def model(name: str) -> Subject:
    graph = Workbench(PROGRAMS / "models" / f"{name}.hap").graph(name, SIZES[name])
    empty = nodes.Program("none", name, (), None, ())
    return subject(name, empty, graph)
