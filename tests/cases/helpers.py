"""A model and a program as text, run on all devices at once in float64, beside numbers from torch itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hapdsl.check.verify import Checked, verify
from hapdsl.graph.build import build, operators
from hapdsl.graph.program import Value
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.load import load_text
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.inprocess import InProcess, Locals, gather
from hapdsl.theory.placements import Placement, Placements
from hapdsl.workbench import evaluates


@dataclass
class Case:
    """A text's only model and only program."""

    graph: TrainingGraph
    tree: nodes.Program
    checked: Checked

    @property
    def codes(self) -> list[tuple[str, int]]:
        """Codes and lines of what the verifier found."""
        return [(d.code, d.span.line) for d in self.checked.diagnostics]

    @property
    def helps(self) -> str:
        return " ".join(d.help for d in self.checked.diagnostics)


def case(text: str) -> Case:
    """Read, build and verify. `text` is counted in lines from its first that isn't blank."""
    bundle = load_text(text.lstrip("\n"))
    (model,) = bundle.models.values()
    (program,) = bundle.programs.values()
    graph = build(model, bundle.defs, operators(bundle.ops), {}, train=not evaluates(program))
    return Case(graph, program, verify(program, graph))


@dataclass
class Ran:
    """One step of an accepted program: what each device held of every value, and the whole tensors it started from."""

    case: Case
    whole: dict[str, torch.Tensor]
    made: Locals

    def __getitem__(self, tensor: str) -> torch.Tensor:
        """The whole tensor, put together from the last value of it; replicas must agree exactly."""
        return gather(self.case.checked.program, self.made, tensor)

    def locals(self, tensor: str, *placement: str) -> list[torch.Tensor]:
        return self.made[Value(tensor, placements(*placement))]


def run(text: str, whole: dict[str, torch.Tensor] | None = None) -> Ran:
    """Run a program that must be accepted. Tensors that `whole` doesn't give are drawn at random."""
    found = case(text)
    assert found.checked.ok and not found.checked.sketch, [
        (d.code, d.span.line, d.message, d.help) for d in found.checked.diagnostics
    ]
    tensors = {
        **initial(found.graph, 1, torch.float64),
        **random_inputs(found.graph, 2, torch.float64),
        **(whole or {}),
    }
    executor = InProcess(found.checked.program, torch.float64, keep_all=True)
    executor.load(tensors)
    return Ran(found, tensors, executor.step(tensors, 1))


def placements(*written: str) -> Placements:
    """`placements("S0", "R")` is (S(0), R)."""
    return tuple(Placement(w[0], int(w[1:]) if w[0] == "S" else -1) for w in written)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-12, atol=1e-12)
