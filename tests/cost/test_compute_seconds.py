"""The roofline of single operators against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import mlp_by_hand as hand
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hapdsl.cost import compute_dtype, compute_seconds
from hapdsl.graph.training import Node, Tensor

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
