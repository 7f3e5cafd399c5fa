"""The roofline of single operators against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hapdsl.cluster import Curve, OpCurve
from hapdsl.cluster.hardware import lookup
from hapdsl.cost import compute_dtype, compute_seconds
from hapdsl.graph.training import Node, Tensor
from tests.cost import mlp_by_hand as hand
from tests.texts import cluster_in

GRAPH = hand.graph()
MATMUL = GRAPH.nodes[0]  # u[12, 8] = x[12, 6] w1[6, 8]
SHARES = np.array([6, 3, 3, 0])


def matmul_seconds(cluster, shares=SHARES, node: Node = MATMUL) -> np.ndarray:
    """x and u cut along the batch, w1 whole."""
    reads = shares * 6 * 4 + 6 * 8 * 4
    return compute_seconds(node, {"b.0": shares, "m": shares}, reads, shares * 8 * 4, cluster)


def test_flops_over_speed_where_memory_is_fast() -> None:
    cluster = hand.cluster([400, 200, 100, 100], bandwidth=1e9)
    seconds = compute_seconds(MATMUL, {"m": SHARES}, 0, 0, cluster)
    assert seconds == pytest.approx([2 * 6 * 6 * 8 / 400, 2 * 3 * 6 * 8 / 200, 2 * 3 * 6 * 8 / 100, 0])


def test_bytes_over_bandwidth_where_memory_is_slow() -> None:
    cluster = hand.cluster([1e9] * 4, bandwidth=10)
    expected = [(s * 6 * 4 + 6 * 8 * 4 + s * 8 * 4) / 10 for s in (6, 3, 3)]
    assert matmul_seconds(cluster) == pytest.approx([*expected, 0])


def test_a_launch_is_added_and_an_empty_share_is_not_launched() -> None:
    plain, launched = (matmul_seconds(hand.cluster([400] * 4, launch=s)) for s in (0, 2))
    assert launched - plain == pytest.approx([2, 2, 2, 0])


def test_an_empty_summed_index_is_not_launched_either() -> None:
    """w1.grad = x^T h.grad sums over the batch; whoever has no rows adds zeros without a kernel."""
    node = GRAPH.nodes[5]
    seconds = compute_seconds(node, {"m": SHARES}, 100, 100, hand.cluster([400] * 4, launch=1))
    assert seconds[3] == 0
    assert (seconds[:3] > 1).all()


@given(
    st.floats(1e-3, 1e6),
    st.lists(st.integers(0, 1000), min_size=4, max_size=4),
    st.lists(st.floats(1, 1e15), min_size=4, max_size=4),
)
@settings(deadline=None)
def test_k_times_the_speed_is_a_kth_of_the_time(k: float, shares: list[int], speeds: list[float]) -> None:
    slow, fast = hand.cluster(speeds, 1e6), hand.cluster([k * s for s in speeds], k * 1e6)
    held = np.array(shares)
    assert matmul_seconds(fast, held) == pytest.approx(matmul_seconds(slow, held) / k)


@given(st.integers(0, 1000), st.integers(0, 1000))
@settings(deadline=None)
def test_more_work_never_takes_less_time(a: int, b: int) -> None:
    cluster = hand.cluster([400] * 2)
    small, large = matmul_seconds(cluster, np.array(sorted((a, b))))
    assert small <= large


@pytest.mark.parametrize(
    ("dtype", "speed"), [("f32", 100.0), ("f16", 400.0), ("bf16", 100.0), ("f64", 50.0)], ids=lambda v: str(v)
)
def test_each_dtype_has_its_speed(dtype: str, speed: float) -> None:
    """f16 is listed; bf16 isn't and runs like f32, f64 at half of that."""
    device = replace(hand.cluster([100]).devices[0], flops={"f32": 100.0, "f16": 400.0})
    cluster = replace(hand.cluster([100]), devices=(device,))
    node = hand.graph(dtype=dtype).nodes[0]
    assert compute_dtype(node) == dtype
    assert compute_seconds(node, {}, 0, 0, cluster) == pytest.approx([2 * 12 * 6 * 8 / speed])


def test_integers_in_the_operands_don_t_set_the_dtype() -> None:
    tensors = {
        "ids": Tensor("ids", (5,), "i64"),
        "table": Tensor("table", (9, 3), "f16"),
        "e": Tensor("e", (5, 3), "f16"),
    }
    operands = [(o.name, t) for o, t in zip(hand.standard()["embedding"].operands, ("ids", "table"), strict=True)]
    assert compute_dtype(hand.call("embedding", operands, ["e"], tensors)) == "f16"


# -- what operators reach ------------------------------------------------------------------------


def reaching(efficiency: dict[str, float] | None = None, curves: dict[str, OpCurve] | None = None, launch: float = 0.0):
    """Two devices of 400 FLOP/s and 10 bytes/s: the first is a data sheet's, the second reaches what is said."""
    cluster = hand.cluster([400, 400], bandwidth=10, launch=launch)
    plain, other = cluster.devices
    return replace(cluster, devices=(plain, replace(other, efficiency=efficiency or {}, curves=curves or {})))


FLOPS, BYTES = 2 * 6 * 6 * 8, (6 * 6 + 6 * 8 + 6 * 8) * 4  # of six rows


def two(cluster, shares=(6, 6)) -> list[float]:
    held = np.array(shares)
    return matmul_seconds(cluster, held).tolist()


def test_an_operator_s_own_efficiency_slows_both_roofs() -> None:
    assert two(reaching({"matmul": 0.5})) == pytest.approx([BYTES / 10, BYTES / 5])
    fast = reaching({"matmul": 0.5})
    fast = replace(fast, devices=tuple(replace(d, bandwidth=1e9) for d in fast.devices))
    assert two(fast) == pytest.approx([FLOPS / 400, FLOPS / 200])


def test_general_efficiencies_hold_where_an_operator_has_none() -> None:
    assert two(reaching({"memory": 0.25, "compute": 0.5})) == pytest.approx([BYTES / 10, BYTES / 2.5])
    assert two(reaching({"compute": 0.001})) == pytest.approx([BYTES / 10, FLOPS / 0.4])
    assert two(reaching({"memory": 0.25, "matmul": 1.0})) == pytest.approx([BYTES / 10] * 2)


def test_names_go_from_the_longest_to_the_shortest() -> None:
    table = {"conv2d": 1, "conv2d_input": 2, "conv2d.f16": 3, "conv": 4}
    assert lookup(table, "conv2d", "f32") == 1
    assert lookup(table, "conv2d", "f16") == 3
    assert lookup(table, "conv2d_input_grad", "f16") == 2
    assert lookup(table, "conv2d_weight_grad", "f32") == 1
    assert lookup(table, "conv3d", "f32") is None
    assert lookup({}, "conv2d", "f32") is None


def test_a_measured_operator_costs_what_was_measured() -> None:
    """Its curve holds the launch; between two points a straight line, by FLOP or by bytes."""
    by_flop = OpCurve(Curve(((0.0, 100.0), (FLOPS / 2, 120.0), (FLOPS, 180.0))))
    cluster = reaching(curves={"matmul": by_flop}, launch=2)
    assert two(cluster) == pytest.approx([BYTES / 10 + 2, 180])
    assert two(cluster, (6, 3)) == pytest.approx([BYTES / 10 + 2, 120])
    assert two(cluster, (6, 0))[1] == 0
    by_bytes = OpCurve(Curve(((0.0, 100.0), (BYTES, 200.0))), bytes=True)
    assert two(reaching(curves={"matmul": by_bytes})) == pytest.approx([BYTES / 10, 200])
    assert two(reaching(curves={"matmul.f16": by_bytes})) == pytest.approx([BYTES / 10] * 2)


@given(
    st.dictionaries(st.sampled_from(["matmul", "matmul.f32", "compute", "memory", "relu"]), st.floats(1e-3, 1)),
    st.lists(st.floats(0, 1e3), min_size=2, max_size=2),
    st.integers(0, 12),
)
@settings(deadline=None)
def test_nothing_is_faster_than_the_peaks(efficiency: dict[str, float], times: list[float], rows: int) -> None:
    """The search's bounds are made of peaks."""
    curve = OpCurve(Curve(((1.0, min(times)), (1e3, max(times)))))
    for cluster in (reaching(efficiency), reaching(efficiency, {"matmul": curve})):
        peak, priced = two(cluster, (rows, rows))
        assert priced >= peak * (1 - 1e-12)


def test_efficiencies_and_operators_are_read_from_text() -> None:
    text = """
    cluster lab {
        device d { compute = 1 TFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s, efficiency = { matmul = 0.5, matmul.f16 = 0.25, memory = 0.8 }, interference = 0.25 }
        device e { compute = 1 TFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s, interference = { compute = 0.25, message = 0.75 } }
        node host = 2 * d, 1 * e over { bandwidth = 1 GB/s }
        measured matmul on d { 1 GFLOP = 3 ms, 2 GFLOP = 5 ms }
        measured softmax on d { 1 MiB = 2 ms, 3 MiB = 5 ms }
        measured all_reduce { 1 MiB = 3 ms, 2 MiB = 4 ms }
    }
    """
    cluster = cluster_in(text)
    d, _, e = cluster.devices
    assert (d.interference, e.interference) == ((0.25, 0.0), (0.25, 0.75))
    assert cluster.interferences.tolist() == [[0.25, 0.0], [0.25, 0.0], [0.25, 0.75]]
    assert d.efficiency == {"matmul": 0.5, "matmul.f16": 0.25, "memory": 0.8}
    assert d.curves == {
        "matmul": OpCurve(Curve(((1e9, 3e-3), (2e9, 5e-3)))),
        "softmax": OpCurve(Curve(((2**20, 2e-3), (3 * 2**20, 5e-3))), bytes=True),
    }
    assert (e.efficiency, e.curves, list(cluster.measured)) == ({}, {}, ["all_reduce"])
    assert d.reach("matmul_nt", "f16") == (1e12 * 0.25, 1e9 * 0.25)
    assert d.reach("relu", "f32") == (1e12, 1e9 * 0.8)
    assert [sorted(members) for members, _ in [(m.tolist(), c) for m, c in cluster.reach("matmul", "f32").curves]] == [
        [0, 1]
    ]
    assert cluster.kinds() == [[0, 1], [2]]


def test_what_fills_no_tile_costs_as_much_as_a_full_one() -> None:
    """64 channels to 17, 16 and 3: the last device's kernels take sixteen at a time, the one before it has a curve, the first no tiles."""
    text = """
    cluster lab {
        device plain { compute = 1 GFLOP/s, memory = 1 GiB, bandwidth = 1 TB/s }
        device curved { compute = 1 GFLOP/s, memory = 1 GiB, bandwidth = 1 TB/s, tile = { conv2d = 16 } }
        device tiled { compute = 1 GFLOP/s, memory = 1 GiB, bandwidth = 1 TB/s, tile = { conv2d = 16, conv2d_input_grad = 1 } }
        node host = 1 * plain, 1 * curved, 1 * tiled over { bandwidth = 1 GB/s }
        measured conv2d on curved { 1 kFLOP = 1 s, 1 GFLOP = 2 s }
    }
    """
    cluster = cluster_in(text)
    tensors = {n: Tensor(n, s, "f32") for n, s in (("x", (2, 64, 4, 4)), ("k", (51, 64, 1, 1)), ("y", (2, 51, 4, 4)))}
    node = hand.call("conv2d", [("x", "x"), ("k", "k")], ["y"], tensors, stride=1, pad=0, groups=1, dilation=1)

    def seconds(channels: list[int]) -> list[float]:
        return compute_seconds(node, {"o": np.array(channels)}, 0, 0, cluster).tolist()

    per_channel = 2.0 * 2 * 4 * 4 * 64
    on_curve = 1 + (per_channel * 32 - 1e3) / (1e9 - 1e3)
    assert seconds([17, 17, 17]) == pytest.approx([per_channel * 17 / 1e9, on_curve, per_channel * 32 / 1e9])
    assert seconds([16, 32, 16]) == pytest.approx([per_channel * 16 / 1e9, on_curve, per_channel * 16 / 1e9])
    assert seconds([3, 0, 3]) == pytest.approx([per_channel * 3 / 1e9, 0, per_channel * 16 / 1e9])
    assert [d.tiles for d in cluster.devices] == [{}, {"conv2d": 16}, {"conv2d": 16, "conv2d_input_grad": 1}]
    assert cluster.reach("conv2d_input_grad", "f32").tiles.tolist() == [1, 16, 1]
    assert cluster.reach("matmul", "f32").tiles is None


def test_channels_in_groups_fill_tiles_together() -> None:
    """Depthwise: 64 groups of one channel are four full tiles."""
    cluster = cluster_in(
        """
        cluster lab {
            device d { compute = 1 GFLOP/s, memory = 1 GiB, bandwidth = 1 TB/s, tile = { conv2d = 16 } }
            node host = 2 * d over { bandwidth = 1 GB/s }
        }
        """
    )
    tensors = {n: Tensor(n, s, "f32") for n, s in (("x", (2, 64, 4, 4)), ("k", (64, 1, 1, 1)), ("y", (2, 64, 4, 4)))}
    node = hand.call("conv2d", [("x", "x"), ("k", "k")], ["y"], tensors, stride=1, pad=0, groups=64, dilation=1)
    per_group = 2.0 * 2 * 4 * 4
    seconds = compute_seconds(node, {"groups": np.array([48, 8])}, 0, 0, cluster)
    assert seconds == pytest.approx(
        [per_group * 48 / 1e9, per_group * 8 * 2 * 2 / 1e9]
    )  # eight in, eight out: a half each


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 1000)), min_size=2, max_size=6),
    st.lists(st.floats(0, 1e4), min_size=1),
)
@settings(deadline=None)
def test_a_curve_at_many_sizes_is_that_at_each(steps: list[tuple[int, int]], sizes: list[float]) -> None:
    xs, ys = np.cumsum([s[0] for s in steps]), np.cumsum([s[1] for s in steps])
    curve = Curve(tuple(zip(map(float, xs), map(float, ys), strict=True)))
    assert curve.at(np.array(sizes)).tolist() == pytest.approx([curve.seconds(s) for s in sizes])
