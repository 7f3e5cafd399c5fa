"""Shares of a program: the table with its shadow prices, units moved in it, and shares found anew for the same instructions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hapdsl.check.layout import largest_remainder
from hapdsl.check.write import shares as written
from hapdsl.cost.evaluate import evaluate
from hapdsl.explore.desk import Desk, Opened, on_one_axis
from hapdsl.explore.splicing import replaced, with_shares
from hapdsl.graph.program import Program
from hapdsl.search.readback import cut_classes, settled
from hapdsl.search.sharemodel import propose
from hapdsl.search.shares import Shares, Stages, descend, layout_of
from hapdsl.search.unitprices import unit_prices

Object = dict[str, Any]
MOVES = 60  # of single units that are tried after the linear program


def table(desk: Desk, request: Object) -> Object:
    """{devices, classes: [{class, units, shares}]} at once. Raises HapError for two axes, or what isn't proven."""
    opened = desk.opened(request)
    on_one_axis(opened.program, "the table of shares")
    shares = settled(opened.program, opened.cluster)
    classes = cut_classes(opened.program)
    busy = Stages(opened.program, opened.cluster).seconds(shares)[1]
    return {
        "devices": [d.name for d in opened.cluster.devices],
        "cost_s": opened.cost.sync_s,
        "busy": [float(s) for s in busy],
        "classes": [
            {"class": c, "units": opened.program.graph.classes[c].units, "shares": [int(n) for n in shares[c]]} for c in classes
        ],
    }  # fmt: skip


def prices(desk: Desk, request: Object) -> Object:
    """Shadow prices: per class and kind of device what one unit more and one less would cost."""
    opened = desk.opened(request)
    found = unit_prices(opened.program, opened.cluster)
    return {
        "prices": [
            {
                "class": p.cls, "devices": list(p.devices), "more_s": p.more_s, "more_from": p.more_from, "less_s": p.less_s, "less_to": p.less_to,
            }
            for p in found
        ]
    }  # fmt: skip


def move(desk: Desk, request: Object) -> Object:
    """The text with `device` having `units` of `class`, or `step` more.

    A step is taken from (given to) the device where that costs least, as far as there is something to take; any other change is dealt to the other devices in the proportion
    of what they have. Raises HapError as `table`.
    """
    opened = desk.opened(request)
    on_one_axis(opened.program, "the table of shares")
    shares = settled(opened.program, opened.cluster)
    cls, device = str(request["class"]), int(request["device"])
    total = opened.program.graph.classes[cls].units
    if "step" in request:
        moved = _stepped(opened, shares, cls, device, int(request["step"]))
    else:
        moved = _dealt(shares[cls], device, min(max(0, int(request["units"])), total), total)
    if moved is None:
        return {"failed": f"there is nothing of '{cls}' to move"}
    return _changed(desk, request, opened, {**shares, cls: moved})


def _stepped(opened: Opened, shares: Shares, cls: str, device: int, step: int) -> np.ndarray | None:
    """`step` units more for a device, or as many as another one has (as itself has, where they are taken away); None where there are none."""
    own = shares[cls]
    most = int(np.delete(own, device).max(initial=0)) if step > 0 else int(own[device])
    if not most:
        return None
    step = max(-most, min(step, most))
    stages = Stages(opened.program, opened.cluster)
    best: tuple[float, np.ndarray] | None = None
    for other in range(len(opened.cluster)):
        moved = shares[cls].copy()
        moved[device] += step
        moved[other] -= step
        if other == device or moved.min() < 0:
            continue
        seconds = stages.seconds({**shares, cls: moved})[0]
        if best is None or seconds < best[0]:
            best = (seconds, moved)
    return None if best is None else best[1]


def _dealt(now: np.ndarray, device: int, units: int, total: int) -> np.ndarray:
    weights = [0.0 if d == device else float(n) for d, n in enumerate(now)]
    if not any(weights):
        weights = [float(d != device) for d in range(len(now))]
    if len(now) == 1:
        return now
    found = largest_remainder(weights, total - units)
    found[device] = units
    return np.asarray(found, dtype=np.int64)


def optimise(desk: Desk, request: Object) -> Object:
    """The text with the best shares that were found for the same instructions: the linear program's proposals, then single moves."""
    opened = desk.opened(request)
    on_one_axis(opened.program, "the table of shares")
    program, cluster = opened.program, opened.cluster
    shares = settled(program, cluster)
    stages = Stages(program, cluster)
    roomy = bool((opened.cost.memory_bytes * 2 <= opened.cost.capacity_bytes).all())

    def price(candidate: Shares) -> float:
        if not roomy and not evaluate(_under(program, candidate), cluster).fits:
            return float("inf")
        return stages.seconds(candidate)[0]

    options = [shares, *propose(program, cluster, stages=stages, memory=None if roomy else opened.cost.memory)]
    costs = [price(s) for s in options]
    best = options[int(np.argmin(costs))]
    best, seconds = descend(best, min(costs), price, cut_classes(program), lambda s: stages.seconds(s)[1], MOVES)
    if seconds >= price(shares) * (1 - 1e-9):
        return {"failed": "no shares were found that are better for these instructions"}
    return {**_changed(desk, request, opened, best), "said": "shares found anew"}


def _under(program: Program, shares: Shares) -> Program:
    layout = layout_of(shares, program.layout.devices)
    return Program(program.name, program.graph, layout, program.instructions, program.cluster, program.model_args)


def _changed(desk: Desk, request: Object, opened: Opened, shares: Shares) -> Object:
    """The text under other shares, and its price."""
    program = _under(opened.program, shares)
    fresh = with_shares(opened.tree, written(program))
    text = replaced(desk.text(request), opened.tree, replace(fresh, leading=()))
    return {"text": text, "cost_s": evaluate(program, opened.cluster).sync_s}
