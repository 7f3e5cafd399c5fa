"""From measurements to the tables of docs/performance.md."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks import reference
from benchmarks.cases import LIMIT, PLAN_CPU
from benchmarks.pages import markdown
from benchmarks.rows import Row  # the case's fields and, under "found", what was measured; or "failed"


def tables(rows: Sequence[Row], measured_on: str) -> str:
    """All tables, under a line that says on what they were measured."""
    by = {
        g: [r for r in rows if r["group"] == g]
        for g in ("layers", "devices", "models", "sketch", "methods", "baselines")
    }
    parts = [f"{measured_on}\n"] if measured_on else []
    if by["layers"]:
        parts.append(
            "### Layers: gpt on two_kinds (2 fast and 6 slow devices)\n\n"
            + plans(by["layers"], "layers", lambda r: r["settings"]["layers"])
        )
    if by["devices"]:
        parts.append(
            "### Devices: gpt, 24 layers, in four kinds (two of two)\n\n"
            + plans(by["devices"], "devices", lambda r: r["cluster"].split()[-1])
        )
    if by["models"]:
        parts.append(
            "### Models on two_kinds\n\n" + plans(by["models"], "model", label) + "\n" + released(by["models"])
        )
    if by["sketch"]:
        parts.append("### A sketch: one activation of the 24-layer plan pinned elsewhere\n\n" + sketches(by["sketch"]))
    if by["methods"]:
        parts.append(
            f"### Ways to search one space (shares by speed, plain SGD, {LIMIT:.0f} CPU s at most)\n\n"
            + methods(by["methods"])
        )
    if by["baselines"]:
        parts.append(
            "### Every example model on every example cluster, baselines kept out of the candidates\n\n"
            + against(by["baselines"])
        )
    return "\n".join(parts)


def label(row: Row) -> str:
    layers = row["settings"].get("layers")
    return f"{row['model']}, {layers} layers" if layers else str(row["model"])


def seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f} %"


def milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value * 1e3:.4g}"


def mib(value: float) -> str:
    return f"{value / 2**20:.0f}"


def plans(rows: Sequence[Row], what: str, name: Any) -> str:
    head = (
        what, "calls", "load, s", "first plan, s", "above the final", "within 5 %, s", "settled, s", "bound, s", "all, s", "CPU, s", "step, ms", "gap", "gap, any shares",
        "nodes", "MiB above Python", "above imports",
    )  # fmt: skip
    return markdown(head, (_plan(r, str(name(r))) for r in rows))


def _plan(row: Row, name: str) -> Sequence[str]:
    f = row.get("found")
    if f is None:
        return (name, row["failed"], *[""] * 14)
    return (
        name, str(f["calls"]), seconds(f["load_s"]), seconds(f["first_s"]), percent(f["first_above"]), seconds(f["near_s"]), seconds(f["settled_s"]),
        seconds(f["proven_s"]), seconds(f["search_s"]), seconds(f["search_cpu_s"]), milliseconds(f["cost_s"]), percent(f["gap"]), percent(f["gap_any_shares"]),
        f"{f['nodes']:,}", mib(f["above_interpreter_bytes"]), mib(f["above_imports_bytes"]),
    )  # fmt: skip


def released(rows: Sequence[Row]) -> str:
    """Ours beside HAP's released search, and the published times."""
    lines = []
    theirs = {(m, layers): (calls, alike, unlike) for m, layers, calls, _, alike, unlike in reference.RELEASED}
    for row in rows:
        if row["model"] in reference.BESIDE and "found" in row:
            calls, _, unlike = theirs[reference.BESIDE[row["model"]]]
            f = row["found"]
            ratio = f"{unlike / f['settled_cpu_s']:.1f} x" if f.get("settled_cpu_s") else "–"
            lines.append(
                (
                    label(row),
                    f"{calls} forward calls, {unlike} s",
                    f"{f['calls']} calls, {seconds(f.get('settled_cpu_s'))} s",
                    ratio,
                    seconds(f["search_cpu_s"]) + " s",
                )
            )
    head = (
        "model, 24 layers",
        "HAP's released search, CPU",
        "hapdsl, CPU, shares settled",
        "faster",
        "hapdsl, with its proof",
    )
    published = ", ".join(f"{n}: {s} s" for n, s in reference.PUBLISHED_VIT.items())
    return markdown(head, lines) + (
        "\nHAP's search covers the forward pass, has no bound, and ran on a machine like this one with 8 unequal devices at batch 256 (median of three);"
        f" ours covers forward, backward and Adam. The times published for ViT by number of layers (the authors' machine): {published}.\n"
    )


def sketches(rows: Sequence[Row]) -> str:
    head = ("open", "pinned", "search, s", "CPU, s", "above the plan", "gap")
    found = ((r, r["found"]) for r in rows if "found" in r)
    return markdown(
        head,
        (
            (
                r["method"],
                f["pin"],
                seconds(f["search_s"]),
                seconds(f["search_cpu_s"]),
                percent(f["above"]),
                percent(f["gap"]),
            )
            for r, f in found
        ),
    )


def methods(rows: Sequence[Row]) -> str:
    head = ("graph", "by", "calls", "s", "CPU, s", "bound, ms", "cost, ms", "nodes", "ended", "MiB above imports")
    found = ((r, r["found"]) for r in rows if "found" in r)
    return markdown(
        head,
        (
            (
                label(r), r["method"], str(f["calls"]), seconds(f["search_s"]), seconds(f["search_cpu_s"]), milliseconds(f.get("bound_s")), milliseconds(f.get("cost_s")),
                f"{f['nodes']:,}" if "nodes" in f else "–", {"gap": "done", "seconds": "out of time", "cancelled": "out of time"}.get(f["ended"], f["ended"]), mib(f["above_imports_bytes"]),
            )
            for r, f in found
        ),
    )  # fmt: skip


def against(rows: Sequence[Row]) -> str:
    """The plan's cost over the cheapest baseline's, by model and cluster; what is above 1 is a miss."""
    ratios: dict[str, dict[str, float | None]] = {}
    for row in rows:
        found = row.get("found")
        if found is not None:
            ratios.setdefault(row["model"], {})[row["cluster"]] = _ratio(found)
    clusters = list(dict.fromkeys(c for by in ratios.values() for c in by))
    lines = [(m, *(_shown(by, c) for c in clusters), _worst(by.values())) for m, by in ratios.items()]
    lines.append(
        (
            "worst",
            *(_worst(by.get(c) for by in ratios.values()) for c in clusters),
            _worst(r for by in ratios.values() for r in by.values()),
        )
    )
    every = [r for by in ratios.values() for r in by.values()]
    above = sum(r is not None and r > 1 + 1e-9 for r in every)
    cut = sum(bool(row.get("found", {}).get("cut")) for row in rows)
    failed = "".join(f"\n{row['model']} on {row['cluster']}: {row['failed']}." for row in rows if "failed" in row)
    spent = [r["found"]["search_cpu_s"] for r in rows if "found" in r and not r["found"].get("cut")]
    others = f"; the others took {statistics.median(spent):.1f} (median)" if spent else ""
    return markdown(("model", *clusters, "worst"), lines) + (
        f"\nOf {len(every)} cases the plan is above a baseline in {above}. \u2013: nothing fits, no baseline either. Each search had {PLAN_CPU:.0f} CPU seconds at most, which {cut} of them"
        f" used up{others}.{failed}\n"
    )


def _ratio(found: Row) -> float | None:
    """None where neither has a program that fits; infinite where only a baseline has."""
    if found["best_s"] is None:
        return None if found["cost_s"] is None else 0.0
    return math.inf if found["cost_s"] is None else float(found["cost_s"] / found["best_s"])


def _shown(by: dict[str, float | None], cluster: str) -> str:
    return "" if cluster not in by else _worst([by[cluster]])


def _worst(ratios: Iterable[float | None]) -> str:
    known = [r for r in ratios if r is not None]
    return f"{max(known):.3f}" if known else "\u2013"
