"""Clusters drawn, and the chain of instructions that a step waits for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hapdsl.cli import main
from hapdsl.cluster import Interference
from hapdsl.cost.evaluate import evaluate
from hapdsl.draw.critical import critical_path
from hapdsl.draw.topology import cluster_dot
from hapdsl.workbench import Workbench
from tests.cost import mlp_by_hand as hand
from tests.texts import PROGRAMS

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["paper_hetero", "digits"])
def test_golden(name: str) -> None:
    found = cluster_dot(Workbench(PROGRAMS / "clusters" / f"{name}.hap").cluster())
    assert found == (GOLDEN / f"{name}.dot").read_text(encoding="utf-8")


def test_equal_nodes_are_drawn_once_and_others_are_not() -> None:
    text = (
        "cluster mixed {\n    device a { compute = 1 TFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s }\n"
        "    node two = 2 * a over { bandwidth = 3 GB/s, latency = 1 us }\n    node one = 1 * a\n"
        "    network 3 * two, 1 * one over { bandwidth = 1 GB/s, latency = 5 us, switch = 2 GB/s }\n}\n"
    )
    found = cluster_dot(Workbench("mixed.hap", text).cluster())
    assert "two  ×3" in found and "7 devices of 1 kind in 4 nodes" in found
    assert "all together 2 GB/s" in found and found.count("link of each device") == 1


def test_a_file_of_clusters_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c.dot"
    assert main(["draw", str(PROGRAMS / "clusters" / "two_kinds.hap"), "-o", str(out)]) == 0
    assert "two_kinds" in out.read_text(encoding="utf-8")
    assert main(["draw", str(PROGRAMS / "clusters" / "two_kinds.hap"), "-o", str(tmp_path / "c.json")]) == 2
    assert "HAP812" in capsys.readouterr().err


@pytest.mark.parametrize("late", [(0.0, 0.0), (0.5, 0.0), (0.3, 0.5)], ids=["beside", "slower", "late"])
@pytest.mark.parametrize("name", ["mlp_megatron", "mlp_zero", "layer_megatron", "layer_sfb", "mesh"])
def test_a_critical_path_has_no_gaps(name: str, late: tuple[float, float]) -> None:
    """Whatever computing and messages take from each other."""
    bench = Workbench(PROGRAMS / "plans" / f"{name}.hap")
    checked, cluster, _ = bench.cost(bench.program(None))
    devices = tuple(replace(d, interference=Interference(*late)) for d in cluster.devices)
    cost = evaluate(checked.program, replace(cluster, devices=devices))
    path = critical_path(checked.program, cost)
    spent = [cost.ends_s[k] - cost.starts_s[k] for k in path]
    # Nothing else explains the whole step.
    assert float(np.sum([s.max() for s in spent])) >= cost.overlap_s * (1 - 1e-6)
    assert float(cost.ends_s[path[-1]].max()) == pytest.approx(cost.overlap_s)
    assert path == sorted(path) and float(cost.starts_s[path[0]].min()) == 0.0


@pytest.mark.parametrize("shares", [[6, 3, 3, 0], [0, 12, 0, 0]])
def test_a_critical_path_goes_back_to_the_start_where_others_have_no_share(shares: list[int]) -> None:
    """Who computes nothing has always just begun; the path is that of those who compute."""
    program = hand.data_parallel(hand.graph(), shares)
    cost = evaluate(program, hand.cluster([400, 200, 100, 100]))
    path = critical_path(program, cost)
    assert path[0] == next(k for k, i in enumerate(program.instructions) if i.is_compute)
    assert np.sum([(cost.ends_s[k] - cost.starts_s[k]).max() for k in path]) >= cost.overlap_s * (1 - 1e-9)
