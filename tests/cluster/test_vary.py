"""One quantity of a cluster changed, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hapdsl.cluster import Cluster, Curve, Device, Host, Link, OpCurve
from hapdsl.cluster.vary import quantities, vary
from hapdsl.lang.diagnostics import HapError
from hapdsl.sweep import read_range

DEVICES = (
    Device("a", "quick", {"f32": 4e9, "f16": 16e9}, 1e9, 1e9),
    *(Device(n, "slow", {"f32": 1e9}, 1e9, 1e9) for n in "bc"),
)
TWO = Cluster(
    "two",
    DEVICES,
    (Host("l", (0,)), Host("r", (1, 2), Link(1e9, 1e-6), 5e8)),
    Link(2e9, 3e-6),
    {"all_reduce": Curve(((0, 0), (1, 1)))},
)
ONE = Cluster("one", DEVICES, (Host("l", (0, 1, 2), Link(1e9, 1e-6, 5e9)),))


def test_what_there_is_to_change() -> None:
    assert quantities(TWO) == {
        "quick": "compute",
        "slow": "compute",
        "network": "bandwidth",
        "latency": "time",
        "link": "bandwidth",
    }
    assert "network" not in quantities(ONE)
    alone = Cluster("alone", DEVICES[:1], (Host("l", (0,)),))
    assert quantities(alone) == {"quick": "compute"}  # nothing to wait for, and nothing that waits


def test_the_network_is_every_card() -> None:
    varied = vary(TWO, "network", 7e9)
    assert varied.network == Link(7e9, 3e-6)
    assert varied.link(range(3)).ring.bandwidth == 1e9  # the node's own link is the slowest now
    assert varied.link([0, 1]).ring.bandwidth == 7e9
    assert (varied.devices, varied.measured) == (TWO.devices, {})


def test_latency_and_links() -> None:
    assert vary(TWO, "latency", 9e-6) == replace(TWO, network=Link(2e9, 9e-6), measured={})
    assert vary(ONE, "latency", 9e-6).nodes[0].link == Link(1e9, 9e-6, 5e9)
    assert vary(ONE, "link", 3e9).nodes[0].link == Link(3e9, 1e-6, 5e9)
    assert vary(TWO, "link", 3e9).nodes == (TWO.nodes[0], Host("r", (1, 2), Link(3e9, 1e-6), 5e8))


def test_one_kind_of_device_keeps_its_ratios() -> None:
    varied = vary(TWO, "quick", 2e9)
    assert varied.devices[0].flops == {"f32": 2e9, "f16": 8e9}
    assert varied.devices[1:] == TWO.devices[1:]
    assert varied.measured == TWO.measured  # links are as they were


def test_what_was_measured_of_a_device_gets_faster_with_it() -> None:
    """By FLOP; what was measured by bytes waits for memory."""
    by_flop, by_bytes = Curve(((1e6, 1e-3), (1e9, 1.0))), Curve(((1e6, 2e-3), (1e9, 2.0)))
    curves = {
        "matmul": OpCurve(by_flop, other=OpCurve(by_bytes, bytes=True)),
        "relu": OpCurve(by_bytes, bytes=True),
    }
    cluster = replace(TWO, devices=(replace(DEVICES[0], curves=curves), *DEVICES[1:]))
    varied = vary(cluster, "quick", 16e9).devices[0].curves
    faster = Curve(((1e6, 0.25e-3), (1e9, 0.25)))
    assert varied == {
        "matmul": OpCurve(faster, other=OpCurve(by_bytes, bytes=True)),
        "relu": OpCurve(by_bytes, bytes=True),
    }
    assert vary(cluster, "quick", 4e9) == cluster


@pytest.mark.parametrize(
    ("text", "low", "high", "unit"),
    [
        ("network=1..100Gbit/s", 0.125e9, 12.5e9, "Gbit/s"),
        ("latency = 10us .. 1ms", 1e-5, 1e-3, "ms"),
        ("quick=1..2.5GFLOP/s", 1e9, 2.5e9, "GFLOP/s"),
        ("link=1e-1..1GB/s", 1e8, 1e9, "GB/s"),
    ],
)
def test_ranges(text: str, low: float, high: float, unit: str) -> None:
    found = read_range(text, TWO)
    assert (found.low, found.high, found.unit) == (pytest.approx(low), pytest.approx(high), unit)
    values = found.values(5)
    assert values[[0, -1]] == pytest.approx([low, high])
    assert values[1:] / values[:-1] == pytest.approx([(high / low) ** 0.25] * 4)
    assert found.written(high).endswith(unit)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("network", "HAP426"), ("network=1Gbit/s", "HAP426"), ("network=1..Gbit/s", "HAP426"), ("bus=1..2GB/s", "HAP426"), ("=1..2GB/s", "HAP426"),
        ("network=2..1Gbit/s", "HAP426"), ("network=1..1Gbit/s", "HAP426"), ("network=0..1Gbit/s", "HAP426"), ("network=-1..1Gbit/s", "HAP426"),
        ("network=1..1e20Gbit/s", "HAP426"), ("network=1..1e300Gbit/s", "HAP492"), ("network=1..1e999Gbit/s", "HAP492"), ("network=1.2.3..5Gbit/s", "HAP426"), ("network=1..2", "HAP426"),
        ("network=1..100Gbit", "HAP491"), ("network=1..100Gbps", "HAP490"), ("latency=1..2GB/s", "HAP491"), ("slow=1..2GB/s", "HAP491"),
    ],
)  # fmt: skip
def test_what_is_no_range(text: str, code: str) -> None:
    with pytest.raises(HapError) as raised:
        read_range(text, TWO)
    assert [d.code for d in raised.value.diagnostics] == [code]
    assert raised.value.diagnostics[0].message
    with pytest.raises(HapError):
        read_range("network=1..2Gbit/s", ONE)
