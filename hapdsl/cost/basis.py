"""What the prices of a program rest on: measured curves, what a cluster's text declares, or a guess."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.collectives import is_measured
from hapdsl.cost.compute import compute_dtype
from hapdsl.cost.evaluate import Cost
from hapdsl.graph.program import Program
from hapdsl.lang.amounts import in_seconds


@dataclass(frozen=True)
class Basis:
    """Seconds of a step, of each instruction its slowest device's: those from measured curves, all of them, and the part of collectives in both."""

    measured_s: float
    total_s: float
    measured_messages_s: float
    messages_s: float
    guessed: bool

    @property
    def words(self) -> str:
        """`prices: 93 % measured (messages 100 %, compute 91 %), the rest by formula from what the cluster declares`."""
        if self.guessed:
            return "prices: guessed from this machine's cores; `hapdsl profile` measures them"
        if not self.measured_s:
            return "prices: by formula from what the cluster declares, nothing measured"
        compute = self.total_s - self.messages_s
        parts = [
            f"{what} {_percent(part, whole)}"
            for what, part, whole in (
                ("messages", self.measured_messages_s, self.messages_s),
                ("compute", self.measured_s - self.measured_messages_s, compute),
            )
            if whole > 0
        ]
        rest = self.total_s - self.measured_s
        others = f"; {in_seconds(rest)} by formula" if rest > 0.005 * self.total_s else ""
        return f"prices: measured, {', '.join(parts)}{others}"

    def as_json(self) -> dict[str, Any]:
        kind = "guessed" if self.guessed else "measured" if self.measured_s else "declared"
        return {"kind": kind, "measured_s": self.measured_s, "total_s": self.total_s}


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %"


def basis(program: Program, cluster: Cluster, cost: Cost) -> Basis:
    """Sorts the seconds of `cost` by where they come from."""
    total = measured = messages = measured_messages = 0.0
    for instruction, seconds in zip(program.instructions, cost.per_instruction_s, strict=True):
        longest = float(seconds.max(initial=0.0))
        total += longest
        if instruction.is_collective:
            messages += longest
            if is_measured(instruction.op, instruction.method, cluster, program.layout.mesh[instruction.axis][1]):
                measured += longest
                measured_messages += longest
        elif instruction.node is not None:
            slowest = int(seconds.argmax())
            curves = cluster.reach(instruction.node.op, compute_dtype(instruction.node)).curves
            if any(slowest in devices for devices, _ in curves):
                measured += longest
    return Basis(measured, total, measured_messages, messages, cluster.guessed)
