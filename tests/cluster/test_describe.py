"""What a profile has seen, as a cluster's text: little of it, too, since a person may have interrupted it."""

from __future__ import annotations

import pytest

from hapdsl.cluster import build
from hapdsl.cluster.describe import describe
from hapdsl.cluster.seen import MoveSample, OpSample, Sample, Seen
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.print import to_text
from tests.texts import cluster_in


def seen(*samples: Sample) -> Seen:
    """Two CPUs in one place."""
    return Seen(("here", "here"), (2.0**30, 2.0**30), ("cpu", "cpu"), list(samples))


def moved(size: float) -> OpSample:
    """A transposition at 8 GB/s, which takes no FLOP."""
    return OpSample("transpose", False, 0.0, size, (size / 8e9, size / 8e9))


def test_what_computes_nothing_says_nothing_of_speed() -> None:
    block = describe(seen(moved(1e6), moved(2e7)), "early")
    cluster = build(block)
    assert cluster_in(to_text(nodes.File((block,)))) == cluster
    device = cluster.devices[0]
    assert device.speed("f32") > 0 and device.bandwidth == pytest.approx(8e9, rel=0.01)
    assert device.curves["transpose"].curve.seconds(1e7) == pytest.approx(1e7 / 8e9, rel=0.01)


def test_messages_alone_make_a_cluster() -> None:
    samples = [MoveSample("all_reduce", "ring", size, size / 2, size / 1e9) for size in (1e6, 1e7)]
    cluster = build(describe(seen(*samples), "messages"))
    assert list(cluster.measured) == ["all_reduce_ring"] and len(cluster) == 2


def test_nothing_makes_none() -> None:
    with pytest.raises(HapError) as stop:
        describe(seen(), "nothing")
    assert [d.code for d in stop.value.diagnostics] == ["HAP428"] and stop.value.status == 1
