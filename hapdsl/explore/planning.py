"""Planning for the explorer: baselines first, then the search, each plan told as soon as there is one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hapdsl.check.write import write
from hapdsl.cluster.fewer import Fewer, fewer
from hapdsl.explore.analyse import analyse, finding
from hapdsl.explore.session import GAP
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError
from hapdsl.search.baselines import baselines
from hapdsl.search.fewer import plan_or_fewer
from hapdsl.search.plan import Candidate, Progress
from hapdsl.standalone import standalone
from hapdsl.virtual import over_all, plan_over
from hapdsl.workbench import Workbench

Object = dict[str, Any]
EVERY = 0.5  # seconds between two texts of the best so far


def plan(request: Object, say: Callable[[Object], None]) -> None:
    """Answers: `started`; for each plan `plan` (its name), `text`, `analysis`; `doing` in between; at the end `done`.

    A plan that replaces an earlier one has its name. What can't be planned ends with `findings`.
    """
    path = request["path"]
    try:
        _Planning(request, say).run()
        say({"done": True})
    except HapError as stop:
        say({"findings": [finding(d, path) for d in stop.diagnostics], "done": True})


class _Planning:
    def __init__(self, request: Object, say: Callable[[Object], None]) -> None:
        self.say, self.path = say, Path(request["path"])
        self.bench = Workbench(self.path, request["text"])
        self.node = self.model(request.get("model"), request.get("program"))
        self.settings: dict[str, Any] = dict(request.get("settings") or {})
        self.graph = self.bench.graph(self.node.name, self.settings)
        on = request.get("cluster") or self.cluster(request.get("program"))
        self.block = self.bench.cluster_block(on)
        self.hardware = self.bench.cluster(on)
        self.objective = request.get("objective") or "sync"
        self.gap = float(request.get("gap") or GAP)
        self.told = (0.0, float("inf"))  # when a text was last told, and its cost

    def model(self, name: str | None, program: str | None) -> nodes.Model:
        """The model that was named, else the file's only one, else that of the program on the screen, else the first."""
        if name is not None:
            return self.bench.model(name)
        own = self.bench.bundle.of_main(nodes.Model) or list(self.bench.bundle.models.values())
        if len(own) != 1 and program in self.bench.bundle.programs:
            return self.bench.model(self.bench.program(program).model)
        return own[0] if own else self.bench.model()

    def cluster(self, program: str | None) -> str | None:
        """The cluster of the program on the screen, if it is declared."""
        if program not in self.bench.bundle.programs:
            return None
        name = self.bench.program(program).cluster
        return name if name in self.bench.bundle.clusters else None

    def run(self) -> None:
        self.say({
            "started": True, "model": self.node.name, "cluster": self.block.name, "devices": len(self.hardware), "guessed": self.hardware.guessed,
        })  # fmt: skip
        self.say({"doing": "baselines"})
        virtual = self.hardware.virtual
        seen = self.hardware.outer() if virtual else self.hardware
        beside = baselines(self.graph, seen, self.objective)
        for name, candidate in beside.items():
            if candidate is not None:
                self.tell(name, over_all(candidate, self.hardware, self.objective), f"{name}: a baseline")
        wishes: dict[str, Any] = {
            "objective": self.objective,
            "gap": self.gap,
            "progress": self.progress,
            "name": self.name,
            "baselines": beside,
        }
        on: Fewer | None = None
        if virtual:  # as `hapdsl plan`: two searches over nodes, and a baseline where its expansion is the fastest
            found = plan_over(self.graph, self.hardware, **wishes)
        else:
            smaller = fewer(self.block, self.hardware)
            found, on = plan_or_fewer(self.graph, self.hardware, smaller, **wishes)
        if on is not None:
            self.block = on.block
        proof = {
            "bound_s": found.bound_s,
            "gap": found.gap,
            "scope": found.bound_scope,
            "search_s": found.search_s,
            "nodes": found.nodes,
        }
        note = f"planned for the {self.objective} objective"
        self.tell(
            "plan",
            Candidate(found.program, found.cost),
            note,
            {**proof, "left_out": on.left_out if on is not None else ""},
        )

    @property
    def name(self) -> str:
        return f"{self.node.name}_plan"

    def progress(self, news: Progress) -> None:
        self.say({"doing": news.doing, "best_s": news.best_s, "bound_s": news.bound_s})
        now = time.monotonic()
        if (
            news.best_s is not None
            and news.best_s < self.told[1]
            and now - self.told[0] > EVERY
            and news.make is not None
        ):
            self.told = (now, news.best_s)
            self.tell("plan", over_all(news.make(), self.hardware, self.objective), "the best so far")

    def tell(self, name: str, candidate: Candidate, note: str, proof: Object | None = None) -> None:
        """A plan as text, with what the checker says of that very text."""
        candidate.program.model_args = self.settings
        candidate.program.cluster = self.block.name
        title = self.name if name == "plan" else candidate.program.name
        text = standalone(self.bench, write(candidate.program), self.block, note)
        path = str(self.path.with_name(f"{self.node.name}.{name}.hap"))
        self.say(
            {
                "plan": name,
                "program": title,
                "path": path,
                "text": text,
                "analysis": analyse(text, path),
                **(proof or {}),
            }
        )
