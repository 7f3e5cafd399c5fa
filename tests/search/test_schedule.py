"""What schedules of one graph share changes none of them: each against one that nothing was drawn for before."""

from __future__ import annotations

import numpy as np
import pytest

from hapdsl.cost.evaluate import evaluate
from hapdsl.search.schedule import Scheduler
from hapdsl.search.shares import layout_of
from hapdsl.search.space import Space
from hapdsl.search.structure import Structure

from .small import CLUSTERS, MODELS, cluster, cuts, everything, training


def test_a_scheduler_remembers_each_way_once() -> None:
    """However many choices are put into order: it grows with what there is to choose, not with how often."""
    graph, machines = training(MODELS["bias"]), cluster(CLUSTERS["pair"])
    space = Space(graph, layout_of(cuts(graph, machines)["even"], len(machines)), machines)
    scheduler, rng = Scheduler(space.conversions), np.random.default_rng(0)
    for _ in range(30):
        scheduler.numbered(space.choice(next(everything(space.graph, rng))))
    ways = [(name, source, offer) for (name, *_), (source, offer, _) in scheduler._waits.items()]
    assert len(set(ways)) == len(ways) > 20


@pytest.mark.parametrize("model", MODELS)
def test_schedules_made_before_change_nothing(model: str) -> None:
    """Some choices under all shares, in turn: lines, methods and both costs are those of a scheduler by itself, and of the evaluator."""
    graph, machines = training(MODELS[model]), cluster(CLUSTERS[min(CLUSTERS)])
    shared = Structure(graph)
    rng = np.random.default_rng(len(model))
    spaces = [
        Space(graph, layout_of(shares, len(machines)), machines, structure=shared)
        for shares in cuts(graph, machines).values()
    ]
    chosen = [a for _, a in zip(range(3), everything(spaces[0].graph, rng), strict=False)]
    assert chosen
    for bucket in (1, 25 * 2**20):
        for _ in range(2):
            for space in spaces:
                scheduler = Scheduler(space.conversions, bucket)
                fresh = Space(graph, space.layout, machines)
                for assignment in chosen:
                    choice = space.choice(assignment)
                    alone = Scheduler(fresh.conversions, bucket).program(choice)
                    program = scheduler.program(choice)
                    assert program.instructions == alone.instructions
                    cost = evaluate(alone, machines)
                    assert scheduler.seconds(choice, "sync") == cost.sync_s
                    assert evaluate(program, machines, space.pricer).overlap_s == cost.overlap_s
