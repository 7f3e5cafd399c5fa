"""Devices left out: what the smaller clusters are, and that a plan on one is the plan of that very cluster."""

from __future__ import annotations

import pickle

import pytest

from hapdsl.cluster import build
from hapdsl.cluster.fewer import fewer
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.lang.print import to_text
from hapdsl.search.astar import FalseBound
from hapdsl.search.fewer import or_fewer, plan_or_fewer
from hapdsl.search.planner import plan
from tests.search.planned import example, machines
from tests.texts import PROGRAMS, block_in, cluster_in

TEXT = """cluster three {
    device quick { compute = 9 TFLOP/s, memory = 16 GiB, bandwidth = 900 GB/s }
    device other { compute = 5 TFLOP/s, memory = 16 GiB, bandwidth = 900 GB/s }
    device snail { compute = 1 TFLOP/s, memory = 16 GiB, bandwidth = 100 GB/s }
    node mixed = 1 * quick, 2 * snail over { bandwidth = 10 GB/s, latency = 2 us }
    node plain = 2 * other over { bandwidth = 20 GB/s, latency = 2 us }
    node slow = 4 * snail over { bandwidth = 20 GB/s, latency = 2 us }
    network 2 * mixed, 1 * plain, 3 * slow over { bandwidth = 1 GB/s, latency = 50 us }
}
"""
ONE = "cluster c { device d { compute = 1 TFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s }\n node n = 1 * d }"


def test_a_false_bound_is_not_taken_for_devices_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What doesn't fit on fewer devices is no better there; a fault of our own is told, also when it comes from another process."""
    graph, made = example("mlp"), machines("two_kinds")
    tree = block_in((PROGRAMS / "clusters" / "two_kinds.hap").read_text(encoding="utf-8"), nodes.Cluster)
    found = plan(graph, made, baselines=False)

    def failing(problem: HapError) -> None:
        def plan(*_: object, **__: object) -> None:
            raise pickle.loads(pickle.dumps(problem))

        monkeypatch.setattr("hapdsl.search.fewer.plan", plan)

    failing(error("HAP601", "no room"))
    assert or_fewer(graph, found, fewer(tree, made)) == (found, None)
    failing(FalseBound(1.0, 2.0))
    with pytest.raises(FalseBound, match=r"HAP690: .* 1\.0 s, below its proven bound of 2\.0 s"):
        or_fewer(graph, found, fewer(tree, made))


def test_without_the_slowest_kinds_and_alone() -> None:
    tree = block_in(TEXT, nodes.Cluster)
    found = list(fewer(tree, build(tree)))
    assert [f.left_out for f in found] == ["16 snail", "2 other, 16 snail", "all but one quick"]
    assert [[d.kind for d in f.cluster.devices] for f in found] == [
        ["quick", "quick", "other", "other"],
        ["quick", "quick"],
        ["quick"],
    ]
    first, second, alone = (f.cluster for f in found)
    assert [len(n.devices) for n in first.nodes] == [1, 1, 2] and first.network is not None
    assert second.network is not None and second.network.bandwidth == 1e9 and alone.network is None
    for each in found:  # what is printed declares what was planned for
        assert cluster_in(to_text(nodes.File((each.block,)))) == each.cluster


def test_the_uplink_of_the_last_node_goes_with_the_network() -> None:
    tree = block_in(
        TEXT.replace(
            "plain = 2 * other over { bandwidth = 20 GB/s, latency = 2 us }",
            "plain = 2 * other over { bandwidth = 20 GB/s } uplink { bandwidth = 2 GB/s }",
        ).replace("1 * quick, ", ""),
        nodes.Cluster,
    )
    first, *_ = fewer(tree, build(tree))
    assert (first.left_out, first.cluster.network, first.cluster.nodes[0].uplink) == ("16 snail", None, None)


def test_one_kind_and_one_device() -> None:
    tree = block_in(ONE, nodes.Cluster)
    assert not list(fewer(tree, build(tree)))


@pytest.mark.parametrize(("model", "left_out"), [("mlp", "6 slow"), ("gpt", None)])
def test_faster_with_fewer(model: str, left_out: str | None) -> None:
    """Eight small messages of 20 us cost the little MLP more than six devices bring; a bound says so for all eight."""
    made = machines("two_kinds")
    tree = block_in((PROGRAMS / "clusters" / "two_kinds.hap").read_text(encoding="utf-8"), nodes.Cluster)
    found, on = plan_or_fewer(example(model), made, fewer(tree, made), baselines=False)
    whole = plan(example(model), made, baselines=False)
    assert found.cost_s <= whole.cost_s
    if on is None:
        assert left_out is None and found.cost_s == whole.cost_s
    else:
        assert found.program.layout.devices == len(on.cluster) < len(made)
        assert found.cost_s == plan(example(model), on.cluster, baselines=False).cost_s
