"""What a search answers with: a program, its shares, its cost and its bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hapdsl.cost.evaluate import Cost
from hapdsl.graph.program import Instruction, Program
from hapdsl.search.astar import relative_gap
from hapdsl.search.choices import Choice

BASELINES = ("dp_even", "dp_proportional", "zero", "tensor_parallel")


@dataclass(frozen=True)
class Candidate:
    """A program and what it costs on the cluster it was made for; the choices that made it, where a search did."""

    program: Program
    cost: Cost
    choice: Choice | None = None

    def seconds(self, objective: str) -> float:
        """What a step costs under an objective, "sync" or "overlap"."""
        return self.cost.seconds(objective)


@dataclass(frozen=True)
class Progress:
    """News from a running search: what it is doing, and the best so far (seconds; None before the first)."""

    doing: str
    best_s: float | None = None
    bound_s: float | None = None
    make: Callable[[], Candidate] | None = None

    @property
    def candidate(self) -> Candidate | None:
        """The best so far as a program; it is written out only for those who ask."""
        return None if self.make is None else self.make()


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Plan:
    """A synthesised program with its proof of quality.

    `cost_s` is that of the objective ("sync" or "overlap"). `bound_s` is proven for what `bound_scope` says, and
    `gap = (cost_s - bound_s) / cost_s`. `nodes` counts the search's expansions. `baselines` has an entry for each of
    BASELINES, None where it doesn't fit into memory or doesn't exist; none at all where time ran out before them. Baselines stand in their
    best order, as the program does. `written` tells the lines that keep their order among each other.
    """

    program: Program
    cost: Cost
    objective: str
    bound_s: float
    bound_scope: str
    bound_any_shares_s: float | None
    search_s: float
    nodes: int
    baselines: Mapping[str, Candidate | None] = field(default_factory=dict)
    written: Callable[[Instruction], bool] | None = field(default=None, repr=False, compare=False)

    @property
    def cost_s(self) -> float:
        return self.cost.seconds(self.objective)

    @property
    def gap(self) -> float:
        return relative_gap(self.cost_s, self.bound_s)
