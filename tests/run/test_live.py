"""The most bytes of tensors that each rank holds, beside what the cost model predicts, for every hand-written program."""

from __future__ import annotations

import pytest

from hapdsl.run.distributed import Rank
from hapdsl.run.initial import Initial, random_inputs
from hapdsl.run.launch import launch
from hapdsl.run.live import peak_bytes
from hapdsl.workbench import Workbench
from tests.run.test_train import PLANS


def held(reporter, programs):
    for name, program in programs.items():
        rank = Rank(program)
        rank.load(Initial(program.graph, 0))
        reporter.send("held", name=name, peak=peak_bytes(rank, rank.feed(random_inputs(program.graph))))


@pytest.fixture(scope="module")
def peaks():
    programs, predicted, measured = {}, {}, {}
    for path in PLANS:
        bench = Workbench(path)
        for tree in bench.programs():
            if tree.cluster is not None:
                checked, _, cost = bench.cost(tree)
                programs[tree.name], predicted[tree.name] = checked.program, cost.memory.peak
    by_devices: dict[int, dict] = {}
    for name, program in programs.items():
        by_devices.setdefault(program.layout.devices, {})[name] = program
    for devices, group in by_devices.items():
        launch(
            held,
            devices,
            (group,),
            lambda rank, h, _: measured.setdefault(h["name"], {}).update({rank: h["peak"]}),
            method="fork",
        )
    return predicted, measured


def test_ranks_hold_what_is_predicted(peaks):
    """Never more than a tenth above. Below it only where a message's operands end when it is packed: the prediction has them beside what arrives
    (layer_sfb's fast device: 13 %)."""
    predicted, measured = peaks
    assert len(measured) >= 10
    ratios = {
        (name, rank): peak / predicted[name][rank] for name, ranks in measured.items() for rank, peak in ranks.items()
    }
    assert max(ratios.values()) <= 1.10, max(ratios, key=lambda k: ratios[k])
    assert min(ratios.values()) >= 0.85, min(ratios, key=lambda k: ratios[k])
    assert sum(0.9 <= r for r in ratios.values()) >= len(ratios) - 1
