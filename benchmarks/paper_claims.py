"""What has to hold of the simulated rows: no point above any baseline, and VGG19's margins over data parallelism."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks import paper_reference as paper
from benchmarks.paper_cases import SIZES, VIRTUAL
from benchmarks.rows import Row

ROUNDING = 1e-9
# Beside VGG19 on the heterogeneous testbed: our baselines, and the paper's systems whose ratio to HAP a plan must reach.
RIVALS = (("dp_even", "DP-EV"), ("dp_proportional", "DP-CP"))


def shortfalls(rows: Sequence[Row]) -> Iterator[str]:
    """In words what doesn't hold, in synchronous seconds of the plan on all devices, and which cases failed. What wasn't measured isn't missed."""
    for row in rows:
        if "failed" in row:
            yield f"{row['name']}: {row['failed']}"
        if row["kind"] != "point" or "found" not in row:
            continue
        found = row["found"]
        costs = {name: both[0] for name, both in found["baselines"].items() if both is not None}
        if not costs:
            yield f"{row['name']}: no baseline was priced"
        for name, seconds in costs.items():
            if found["plan_s"] > seconds * (1 + ROUNDING):
                yield f"{row['name']}: {found['plan_s']:.4f} s, above {name}'s {seconds:.4f} s"
        if (
            (row["testbed"], row["model"]) == ("paper_hetero", "vgg19")
            and row["nodes"] != VIRTUAL
            and not row["settings"]
        ):
            yield from _margins(row, costs)


def _margins(row: Row, costs: dict[str, float]) -> Iterator[str]:
    theirs = paper.FIGURES["paper_hetero", "vgg19"]
    at = SIZES["paper_hetero"].index(row["devices"])
    for name, system in RIVALS:
        other, hap = theirs[system][at], theirs["HAP"][at]
        assert other is not None and hap is not None
        ours = costs.get(name, 0.0) / row["found"]["plan_s"]
        if ours < other / hap:
            yield f"{row['name']}: {system} takes {ours:.2f} times as long, the paper has {other / hap:.2f}"
