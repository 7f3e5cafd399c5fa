"""Cluster blocks: what they mean, and what each mistake is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hapdsl.cluster import Cluster, Hop, Host, Link, build, guess, with_devices
from hapdsl.cost import collective_seconds
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, Report
from hapdsl.lang.load import load
from hapdsl.lang.parse import parse
from tests.texts import PROGRAMS, REPOSITORY

SHIPPED = sorted(p for p in (PROGRAMS / "clusters").glob("*.hap") if p.stem != "hardware")

GOOD = """
cluster lab {
    device v100 { compute = 14 TFLOP/s, memory = 16 GiB, bandwidth = 900 GB/s, launch = 5 us }
    device a100 { compute = { f32 = 19.5 TFLOP/s, bf16 = 312 TFLOP/s }, memory = 40 GiB, bandwidth = 1555 GB/s }
    node big   = 2 * v100, 1 * a100, 1 * v100 over { bandwidth = 150 GB/s, latency = 5 us }
    node small = 1 * a100
    network 2 * big, 1 * small over { bandwidth = 10.4 Gbit/s, latency = 50 us }
    measured all_reduce { 1 MiB = 3 ms, 64 MiB = 140 ms }
}
"""


def clusters(text: str) -> list[nodes.Cluster]:
    return [item for item in parse(text, "lab.hap").items if isinstance(item, nodes.Cluster)]


def shipped(path: Path) -> list[nodes.Cluster]:
    """A file's clusters with the devices that they take from the library."""
    bundle = load(path)
    return [with_devices(c, bundle.devices) for c in bundle.of_main(nodes.Cluster)]


def lab(text: str = GOOD) -> Cluster:
    return build(clusters(text)[0])


# -- what a good one means ------------------------------------------------------------


def test_devices_are_named_after_their_node() -> None:
    assert [d.name for d in lab().devices] == [
        "big.0.v100.0", "big.0.v100.1", "big.0.a100.0", "big.0.v100.2",
        "big.1.v100.0", "big.1.v100.1", "big.1.a100.0", "big.1.v100.2",
        "small.a100.0",
    ]  # fmt: skip


def test_quantities_are_in_si_units() -> None:
    v100, a100 = lab().devices[0], lab().devices[2]
    assert (v100.flops["f32"], v100.memory, v100.bandwidth, v100.launch) == (14e12, 16 * 2**30, 900e9, 5e-6)
    assert (a100.flops["bf16"], a100.launch) == (312e12, 0)
    assert lab().network == Link(1.3e9, 50e-6)
    assert lab().measured["all_reduce"].points == ((2**20, 3e-3), (64 * 2**20, 0.14))


def test_a_dtype_that_is_not_listed_runs_like_f32_and_f64_at_half() -> None:
    a100 = lab().devices[2]
    assert [a100.speed(d) for d in ("f32", "bf16", "f16", "f64")] == [19.5e12, 312e12, 19.5e12, 9.75e12]
    assert lab().speeds("f64").tolist() == [d.speed("f64") for d in lab().devices]


def test_nodes_keep_their_devices_and_links() -> None:
    inside = Link(150e9, 5e-6)
    assert lab().nodes == (
        Host("big.0", (0, 1, 2, 3), inside),
        Host("big.1", (4, 5, 6, 7), inside),
        Host("small", (8,), None),
    )


def test_the_link_of_a_group_is_its_slowest_hop() -> None:
    cluster = lab()
    assert cluster.link([0, 1, 3]).ring == Hop(150e9, 5e-6)  # inside a node
    assert cluster.link([0, 8]).ring == Hop(1.3e9, 50e-6)  # across, one device a node
    assert cluster.link([0, 1, 4, 8]).ring == Hop(1.3e9, 50e-6)
    assert (cluster.link([0, 1, 4, 8]).most, cluster.link(range(9)).most) == (2, 4)  # behind one card
    assert cluster.link([3]).ring.bandwidth == float("inf")


def test_a_slow_node_slows_a_group_that_uses_its_link() -> None:
    cluster = lab(GOOD.replace("150 GB/s", "1 GB/s").replace("latency = 5 us", "latency = 1 ms"))
    assert cluster.link([0, 1, 8]).ring == Hop(1e9, 1e-3)
    assert cluster.link([0, 8]).ring == Hop(1.3e9, 50e-6)  # one device a node stays off it


def test_groups_that_leave_a_node_at_once_share_its_card() -> None:
    cluster = lab()
    assert [w.ring for w in cluster.links([[0, 4], [1, 5], [2, 6], [3, 7]])] == [Hop(1.3e9 / 4, 50e-6)] * 4
    assert [w.ring for w in cluster.links([[0, 1], [4, 8]])] == [Hop(150e9, 5e-6), Hop(1.3e9, 50e-6)]


def test_uplinks_and_switches_are_read() -> None:
    text = GOOD.replace("latency = 5 us }", "latency = 5 us, switch = 1 TB/s } uplink { bandwidth = 40 Gbit/s }", 1)
    cluster = lab(text.replace("latency = 50 us", "latency = 50 us, switch = 20 Gbit/s"))
    assert [h.uplink for h in cluster.nodes] == [5e9, 5e9, None]
    assert cluster.nodes[0].link == Link(150e9, 5e-6, 1e12)
    assert cluster.network == Link(1.3e9, 50e-6, 2.5e9)


def test_nodes_with_other_uplinks_are_of_another_kind() -> None:
    node = "node big   = 2 * v100, 1 * a100, 1 * v100 over { bandwidth = 150 GB/s, latency = 5 us }"
    text = GOOD.replace("2 * big", "1 * big, 1 * fast").replace(
        node, f"{node}\n{node.replace('big  ', 'fast ')} uplink {{ bandwidth = 9 GB/s }}"
    )
    assert lab(text).kinds() == [[0, 1, 3], [2], [4, 5, 7], [6], [8]]


def test_kinds_group_devices_that_nothing_tells_apart() -> None:
    """An a100 beside v100s is another kind than one that stands alone: its links differ."""
    assert lab().kinds() == [[0, 1, 3, 4, 5, 7], [2, 6], [8]]


def test_one_node_needs_no_network() -> None:
    text = "cluster c { device d { compute = 1 GFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s }\n node n = 1 * d }"
    cluster = lab(text)
    assert (len(cluster), cluster.network, cluster.devices[0].name) == (1, None, "n.d.0")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_clusters_build_without_a_warning(path: Path) -> None:
    found = shipped(path)
    report = Report()
    built = [build(c, report) for c in found]
    assert not list(report)
    assert all(len(c) >= 2 for c in built)
    assert path.stem == "gpus" or [c.name for c in built] == [path.stem]
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_the_clusters_that_others_rely_on() -> None:
    by_name = {p.stem: build(shipped(p)[0]) for p in SHIPPED if p.stem != "gpus"}
    assert set(by_name) >= {"digits", "two_kinds", "paper_hetero", "paper_homo", "paper_a100_p100"}
    speeds = {name: [d.flops["f32"] for d in c.devices] for name, c in by_name.items()}
    assert [s / speeds["digits"][-1] for s in speeds["digits"]] == [4, 2, 1, 1]
    assert [s / speeds["two_kinds"][-1] for s in speeds["two_kinds"]] == pytest.approx([1.8] * 2 + [1] * 6)
    assert (len(speeds["paper_hetero"]), len(speeds["paper_homo"]), len(speeds["paper_a100_p100"])) == (64, 32, 4)
    assert speeds["paper_hetero"][15] / speeds["paper_hetero"][16] == pytest.approx(1.8, abs=0.01)


# -- this machine -----------------------------------------------------------------------


def test_a_guess_describes_this_machine_and_says_so() -> None:
    cluster = guess()
    assert cluster.guessed
    assert len(cluster) >= 1
    assert len(cluster.kinds()) == 1
    assert all(d.memory > 2**20 and d.flops["f32"] > 1e9 for d in cluster.devices)
    assert not lab().guessed


def test_clusters_and_costs_start_without_torch() -> None:
    code = (
        "import sys, hapdsl.cluster, hapdsl.cost; hapdsl.cluster.guess(); print({'torch', 'scipy'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == "set()", ran.stderr


# -- what is wrong, one by one ------------------------------------------------------------

DEVICE = "device d { compute = 1 TFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s }"
NODE = f"{DEVICE}\nnode n = 1 * d"
TABLE = "1 KiB = 1 ms, 2 KiB = 2 ms"
OVER = "over { bandwidth = 1 GB/s, latency = 1 us }"


def device(more: str = "", **changed: str | None) -> str:
    """A device with some settings changed, or left out (None), or some text more; and a node that has one."""
    settings = {"compute": "1 TFLOP/s", "memory": "1 GiB", "bandwidth": "1 GB/s"} | changed
    listed = [f"{name} = {value}" for name, value in settings.items() if value is not None]
    return f"device d {{ {', '.join(listed)}{more} }}\nnode n = 1 * d"


def network(settings: str) -> str:
    return f"{DEVICE}\nnode n = 2 * d over {{ {settings} }}"


def measured(points: str, kind: str = "all_reduce") -> str:
    return f"{DEVICE}\nnode n = 2 * d {OVER}\nmeasured {kind} {{ {points} }}"


# body of the cluster -> code, line within the body, what the column points at, words of the message
WRONG = {
    "nothing at all": ("", "HAP401", 0, "cluster", "no devices"),
    "devices but no node": (DEVICE, "HAP401", 0, "cluster", "no devices"),
    "unknown device": (f"{DEVICE}\nnode n = 2 * e {OVER}", "HAP402", 2, "2 * e", "no device 'e'"),
    "unknown node": (f"{NODE}\nnetwork 1 * n, 2 * m {OVER}", "HAP402", 3, "2 * m", "no node 'm'"),
    "a device in the network": (f"{NODE}\nnetwork 1 * n, 1 * d {OVER}", "HAP402", 3, "1 * d", "no node 'd'"),
    "device twice": (f"{DEVICE}\n{NODE}", "HAP403", 2, "device", "'d' is declared twice"),
    "node twice": (f"{NODE}\nnode n = 1 * d", "HAP403", 3, "node", "'n' is declared twice"),
    "node named as a device": (f"{DEVICE}\nnode d = 1 * d", "HAP403", 2, "node", "'d' is declared twice"),
    "two networks": (f"{NODE}\nnetwork 1 * n\nnetwork 1 * n", "HAP403", 4, "network", "two networks"),
    "measured twice": (measured(TABLE) + f"\nmeasured all_reduce {{ {TABLE} }}", "HAP403", 4, "measured", "twice"),
    "no compute": (device(compute=None), "HAP404", 1, "device", "compute"),
    "no memory": (device(memory=None), "HAP404", 1, "device", "memory"),
    "no bandwidth": (device(bandwidth=None), "HAP404", 1, "device", "bandwidth"),
    "no f32": (device(compute="{ f16 = 1 TFLOP/s }"), "HAP404", 1, "compute", "f32"),
    "no link bandwidth": (network("latency = 1 us"), "HAP404", 2, "node", "bandwidth"),
    "unknown setting": (device(", colour = 3"), "HAP405", 1, "colour", "colour"),
    "unknown dtype": (device(compute="{ f32 = 1 TFLOP/s, f23 = 1 TFLOP/s }"), "HAP405", 1, "f23", "f23"),
    "unknown link setting": (network("bandwidth = 1 GB/s, speed = 3"), "HAP405", 2, "speed", "speed"),
    "setting twice": (device(", memory = 2 GiB"), "HAP406", 1, "memory = 2", "twice"),
    "no unit": (device(compute="14"), "HAP407", 1, "14", "needs a unit"),
    "a table for memory": (device(memory="{ f32 = 1 GiB }"), "HAP407", 1, "memory", "must be a quantity"),
    "speed zero": (device(compute="0 TFLOP/s"), "HAP408", 1, "0 TFLOP", "out of range"),
    "one dtype's speed zero": (device(compute="{ f32 = 1 TFLOP/s, f16 = 0 FLOP/s }"), "HAP408", 1, "0 FLOP", "(f16)"),
    "negative speed": (device(compute="-1 TFLOP/s"), "HAP408", 1, "-1 TFLOP", "out of range"),
    "absurd speed": (device(compute="1e30 FLOP/s"), "HAP408", 1, "1e30", "out of range"),
    "infinite speed": (device(compute="1e308 TFLOP/s"), "HAP492", 1, "1e308", "finite"),
    "no memory at all": (device(memory="0 GiB"), "HAP408", 1, "0 GiB", "out of range"),
    "bandwidth zero": (network("bandwidth = 0 GB/s"), "HAP408", 2, "0 GB/s", "out of range"),
    "negative latency": (network("bandwidth = 1 GB/s, latency = -1 us"), "HAP408", 2, "-1 us", "out of range"),
    "a day of latency": (network("bandwidth = 1 GB/s, latency = 24 h"), "HAP408", 2, "24 h", "out of range"),
    "bandwidth as speed": (device(compute="14 GB/s"), "HAP491", 1, "14 GB/s", "computing speed"),
    "memory as bandwidth": (device(bandwidth="1 GB"), "HAP491", 1, "1 GB", "bandwidth"),
    "unknown unit": (device(compute="1 TFLOPS"), "HAP490", 1, "1 TFLOPS", "unit"),
    "two nodes, no network": (f"{NODE}\nnode m = 1 * d", "HAP409", 0, "cluster", "no network"),
    "out of reach": (f"{NODE}\nnode m = 1 * d\nnetwork 2 * n {OVER}", "HAP410", 3, "node", "'m' isn't reached"),
    "devices over nothing": (f"{DEVICE}\nnode n = 2 * d", "HAP411", 2, "node", "2 devices over nothing"),
    "nodes over nothing": (f"{NODE}\nnetwork 2 * n", "HAP411", 3, "network", "2 nodes over nothing"),
    "no times a device": (f"{DEVICE}\nnode n = 0 * d {OVER}", "HAP412", 2, "0 * d", "how many"),
    "too many devices": (f"{DEVICE}\nnode n = 999999999 * d {OVER}", "HAP412", 2, "999999999", "too many"),
    "too many together": (
        f"{DEVICE}\nnode n = 10000 * d {OVER}\nnetwork 10000 * n {OVER}", "HAP412", 3, "network", "100000000 devices"
    ),
    "a virtual device": (f"{DEVICE}\nnode n = 2 * d virtual {OVER}", "HAP413", 2, "2 * d", "one device already"),
    "some virtual": (f"{NODE}\nnode m = 1 * d\nnetwork 2 * n virtual, 1 * m {OVER}", "HAP413", 4, "1 * m", "isn't virtual"),
    "unequal virtual": (
        f"{NODE}\nnode m = 2 * d {OVER}\nnetwork 2 * n virtual, 1 * m virtual {OVER}", "HAP413", 4, "network", "n has 1, m has 2"
    ),
    "one point": (measured("1 MiB = 3 ms"), "HAP414", 3, "measured", "1 of the two points"),
    "no point": (measured(""), "HAP414", 3, "measured", "0 of the two points"),
    "sizes that shrink": (measured("2 MiB = 3 ms, 1 MiB = 4 ms"), "HAP414", 3, "1 MiB", "sizes must grow"),
    "the same size twice": (measured("1 MiB = 3 ms, 1 MiB = 4 ms"), "HAP414", 3, "1 MiB = 4", "sizes must grow"),
    "times that shrink": (measured("1 MiB = 3 ms, 2 MiB = 2 ms"), "HAP414", 3, "2 ms", "less time"),
    "a negative size": (measured("-1 MiB = 3 ms, 2 MiB = 4 ms"), "HAP408", 3, "-1 MiB", "out of range"),
    "a negative time": (measured("1 MiB = -3 ms, 2 MiB = 4 ms"), "HAP408", 3, "-3 ms", "out of range"),
    "a time as size": (measured("1 ms = 3 ms, 2 MiB = 4 ms"), "HAP491", 3, "1 ms", "memory"),
    "a size as time": (measured("1 MiB = 3 MiB, 2 MiB = 4 ms"), "HAP491", 3, "3 MiB", "time"),
    "memory in bits": (device(memory="16 Gbit"), "HAP418", 1, "16 Gbit", "in bytes"),
    "memory's bandwidth in bits": (device(bandwidth="900 Gbit/s"), "HAP418", 1, "900 Gbit", "in bytes"),
    "a measured size in bits": (measured("1 Mbit = 3 ms, 2 MiB = 4 ms"), "HAP418", 3, "1 Mbit", "in bytes"),
    "switch zero": (network("bandwidth = 1 GB/s, switch = 0 GB/s"), "HAP408", 2, "0 GB/s", "out of range"),
    "switch as an amount": (network("bandwidth = 1 GB/s, switch = 1 GB"), "HAP491", 2, "1 GB", "bandwidth"),
    "an uplink to nowhere": (f"{NODE} uplink {{ bandwidth = 1 GB/s }}", "HAP419", 2, "bandwidth", "leads nowhere"),
    "an uplink's latency": (
        f"{NODE} uplink {{ bandwidth = 1 GB/s, latency = 1 us }}\nnetwork 2 * n {OVER}", "HAP405", 2, "latency", "latency"
    ),

    "unknown collective": (measured(TABLE, "all_gossip"), "HAP415", 3, "measured", "all_gossip"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_each_mistake_has_its_code_and_place(name: str) -> None:
    body, code, line, pointed, words = WRONG[name]
    text = f"cluster c {{\n{body}\n}}"
    with pytest.raises(HapError) as raised:
        build(clusters(text)[0])
    found = [d for d in raised.value.diagnostics if d.severity == "error"]
    assert [d.code for d in found] == [code]
    wrong = found[0]
    assert wrong.span.file == "lab.hap"
    assert wrong.span.line == line + 1
    source = text.split("\n")[line]
    assert source[wrong.span.column - 1 :].startswith(pointed), source[wrong.span.column - 1 :]
    assert words in wrong.message
    assert wrong.help
    assert raised.value.status == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_tree_with_numbers_that_text_can_t_hold_is_refused(value: float) -> None:
    settings = tuple(
        nodes.Setting(name=n, value=nodes.Quantity(value=value, unit=u))
        for n, u in (("compute", "FLOP/s"), ("memory", "B"), ("bandwidth", "B/s"))
    )
    host = nodes.HostNode(name="n", parts=(nodes.Part(count=1, name="d"),))
    with pytest.raises(HapError) as raised:
        build(nodes.Cluster(name="c", body=(nodes.Device(name="d", settings=settings), host)))
    assert [d.code for d in raised.value.diagnostics] == ["HAP492"] * 3


@pytest.mark.parametrize("count", [1.5, -1, True])
def test_a_tree_with_counts_that_text_can_t_hold_is_refused(count: float) -> None:
    body = clusters(f"cluster c {{\n{DEVICE}\n}}")[0].body
    host = nodes.HostNode(name="n", parts=(nodes.Part(count=count, name="d"),))
    with pytest.raises(HapError) as raised:
        build(nodes.Cluster(name="c", body=(*body, host)))
    assert [d.code for d in raised.value.diagnostics] == ["HAP412"]


def test_several_mistakes_are_told_at_once() -> None:
    text = "cluster c {\ndevice d { compute = 0 TFLOP/s, bandwidth = 1 GB, colour = 2 }\nnode n = 2 * e\n}"
    report = Report()
    with pytest.raises(HapError) as raised:
        build(clusters(text)[0], report)
    assert {d.code for d in report.errors} == {"HAP402", "HAP404", "HAP405", "HAP408", "HAP411", "HAP491"}
    assert set(raised.value.diagnostics) == set(report)


def test_findings_of_other_blocks_don_t_break_a_good_cluster() -> None:
    report = Report()
    report.add("HAP201", "something else")
    assert len(build(clusters(GOOD)[0], report)) == 9
    assert len(report) == 1


def test_a_device_that_no_node_has_is_a_warning() -> None:
    report = Report()
    built = build(
        clusters(f"cluster c {{\n{DEVICE}\n{DEVICE.replace('device d', 'device e')}\nnode n = 1 * d\n}}")[0], report
    )
    assert len(built) == 1
    assert [(d.code, d.severity, d.span.line) for d in report] == [("HAP416", "warning", 3)]


# -- tables by skew ------------------------------------------------------------------------


def grouped(tables: str) -> Cluster:
    return lab(f"cluster lab {{\n{DEVICE}\nnode n = 4 * d {OVER}\n{tables}\n}}")


def test_a_method_measured_at_several_skews_is_priced_between_them() -> None:
    even = "measured all_gather_grouped { 1 MB = 1 ms, 3 MB = 3 ms }"
    cluster = grouped(f"{even}\nmeasured all_gather_grouped at 3 {{ 1 MB = 2 ms, 3 MB = 5 ms }}")

    def price(shares: list[float]) -> float:
        return collective_seconds("all_gather", "grouped", shares, sum(shares), cluster)

    assert price([5e5] * 4) == pytest.approx(2e-3)
    assert price([1.5e6, 5e5, 0, 0]) == pytest.approx(3.5e-3)  # 3 times an even share
    assert price([1e6, 1e6, 0, 0]) == pytest.approx((2e-3 + 3.5e-3) / 2)  # halfway
    assert price([2e6, 0, 0, 0]) == pytest.approx(3.5e-3)  # nothing was measured beyond
    curve = cluster.measured["all_gather_grouped"]
    sizes = np.geomspace(1e4, 1e9, 50)
    assert all(curve.seconds(s) <= min(c.seconds(s) for _, c in curve.tables) + 1e-15 for s in sizes)


def test_what_bounds_count_is_below_each_skew_where_a_line_comes_to_nothing_too() -> None:
    """Below its first point the first table goes down to nothing at 900 kB, between two points of the other one."""
    even = "measured all_gather_grouped { 1 MB = 1 ms, 2 MB = 11 ms }"
    cluster = grouped(f"{even}\nmeasured all_gather_grouped at 3 {{ 1 KB = 2 ms, 990 KB = 5 ms, 3 MB = 7 ms }}")
    curve = cluster.measured["all_gather_grouped"]
    assert [c.start for _, c in curve.tables] == [pytest.approx(900e3), pytest.approx(1e3 - 2 / 3 * 989e3)]
    sizes = np.geomspace(1, 1e8, 500)
    assert all(curve.seconds(s) <= min(c.seconds(s) for _, c in curve.tables) + 1e-15 for s in sizes)


@pytest.mark.parametrize(
    ("tables", "code"),
    [
        (f"measured all_gather_grouped at 0.5 {{ {TABLE} }}", "HAP408"),
        (f"measured all_gather_grouped at 2 {{ {TABLE} }}\nmeasured all_gather_grouped at 2 {{ {TABLE} }}", "HAP403"),
        (f"measured all_reduce at 2 {{ {TABLE} }}", "HAP415"),
        (f"measured matmul on d at 2 {{ {TABLE} }}", "HAP415"),
    ],
)
def test_a_skew_that_can_t_be(tables: str, code: str) -> None:
    with pytest.raises(HapError) as stop:
        grouped(tables)
    assert [d.code for d in stop.value.diagnostics] == [code]


def test_an_operator_measured_by_flop_and_by_bytes_costs_the_larger() -> None:
    cluster = grouped(
        "measured matmul on d { 1 MFLOP = 1 ms, 2 MFLOP = 2 ms }\nmeasured matmul on d { 1 MB = 3 ms, 2 MB = 4 ms }"
    )
    curve = cluster.devices[0].curves["matmul"]
    assert curve.at(np.array([1e6, 1e7]), np.array([1e6, 1e6])).tolist() == pytest.approx([3e-3, 1e-2])
    with pytest.raises(HapError):
        grouped("\n".join(f"measured matmul on d {{ 1 MFLOP = {k} ms, 2 MFLOP = 2 ms }}" for k in (1, 2)))


def test_levels_that_aren_t_there_cost_what_was_measured_without() -> None:
    """Four devices in one node: a hierarchical message is a padded one, and its table holds; else it would look cheaper than what was measured."""
    cluster = grouped(
        "measured all_gather_padded { 1 MB = 30 ms, 3 MB = 90 ms }\nmeasured all_reduce_ring { 1 MB = 50 ms, 2 MB = 60 ms }"
    )
    for kind, plain, size in (("all_gather", "padded", 2e6), ("all_reduce", "ring", 15e5)):
        prices = [collective_seconds(kind, m, [size / 4] * 4, size, cluster) for m in (plain, "hierarchical")]
        assert prices == pytest.approx([60e-3, 60e-3] if kind == "all_gather" else [55e-3, 55e-3])
