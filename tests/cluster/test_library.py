"""Devices of a file, of its imports, and made from others; the library that comes with hapdsl."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from hapdsl.cluster import Cluster, Device, build, check_devices, with_devices
from hapdsl.cluster.settings import read_device
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, Report
from hapdsl.lang.load import load, load_text
from hapdsl.lang.print import to_text
from hapdsl.workbench import Workbench
from tests.texts import PROGRAMS, block_in

HARDWARE = PROGRAMS / "clusters" / "hardware.hap"
OVER = "over { bandwidth = 1 GB/s }"
FAST = "device fast { compute = { f32 = 9 TFLOP/s, f16 = 70 TFLOP/s }, memory = 16 GiB, bandwidth = 900 GB/s, launch = 5 us }"


def whole(text: str) -> nodes.Cluster:
    """The last cluster of a text with its devices."""
    bundle = load_text(text, "lab.hap")
    found = bundle.of_main(nodes.Cluster)[-1]
    assert isinstance(found, nodes.Cluster)
    return with_devices(found, bundle.devices)


def lab(text: str) -> Cluster:
    return build(whole(text))


# -- looking names up ---------------------------------------------------------------------


def test_a_file_s_device_serves_all_its_clusters() -> None:
    first = lab(f"{FAST}\ncluster a {{ node n = 1 * fast }}")
    assert first.devices[0].speed("f16") == 70e12
    assert first == lab(f"cluster a {{\n{FAST}\nnode n = 1 * fast }}")


def test_a_device_takes_from_its_base_what_it_does_not_say() -> None:
    cluster = lab(
        f"{FAST}\ncluster a {{\ndevice tired = fast {{ compute = 4 TFLOP/s }}\nnode n = 1 * fast, 1 * tired {OVER} }}"
    )
    fast, tired = cluster.devices
    assert (tired.kind, tired.memory, tired.bandwidth, tired.launch) == ("tired", fast.memory, fast.bandwidth, 5e-6)
    assert tired.flops == {"f32": 4e12}  # a setting replaces the whole setting


def test_a_cluster_may_change_a_library_device_under_its_own_name() -> None:
    text = f"{FAST}\ncluster a {{\ndevice fast = fast {{ memory = 8 GiB }}\ndevice half = fast {{ launch = 9 us }}\nnode n = 1 * fast, 1 * half {OVER} }}"
    cluster = lab(text)
    assert [d.memory for d in cluster.devices] == [8 * 2**30] * 2  # `half` is made from the cluster's own
    assert lab(text + "\ncluster b { node n = 1 * fast }").devices[0].memory == 16 * 2**30


def test_bases_of_bases() -> None:
    text = f"{FAST}\ndevice b = fast {{ memory = 2 GiB }}\ndevice c = b {{ launch = 1 us }}\ncluster a {{ node n = 1 * c }}"
    (device,) = lab(text).devices
    assert (device.memory, device.launch, device.bandwidth) == (2 * 2**30, 1e-6, 900e9)


def test_what_comes_back_stands_alone() -> None:
    """Its text, read without the library, is the same cluster."""
    found = whole(
        'import "std/hardware.hap"\ncluster a {\ndevice slow = v100 { compute = 4 TFLOP/s }\n'
        + f"node n = 2 * slow, 1 * h200 {OVER} }}"
    )
    again = block_in(to_text(nodes.File((found,))), nodes.Cluster)
    assert build(again) == build(found)
    assert [d.kind for d in build(again).devices] == ["slow", "slow", "h200"]


def test_a_cluster_that_has_all_of_it_comes_back_as_it_is() -> None:
    block = block_in(f"cluster a {{\n{FAST}\nnode n = 1 * fast }}", nodes.Cluster)
    assert with_devices(block, load(HARDWARE).devices) is block


@pytest.mark.parametrize(
    ("text", "code", "line", "words"),
    [
        ("cluster a {\ndevice x = nothing { launch = 1 us }\nnode n = 1 * x }", "HAP402", 2, "no device 'nothing'"),
        (
            "device x = y { launch = 1 us }\ndevice y = x { memory = 1 GiB }\ncluster a { node n = 1 * x }",
            "HAP417",
            1,
            "x -> y -> x",
        ),
        ("device x = x { launch = 1 us }\ncluster a { node n = 1 * x }", "HAP417", 1, "x -> x"),
        (
            f"{FAST}\ncluster a {{\ndevice x = fast {{ memory = 1 GiB, memory = 2 GiB }}\nnode n = 1 * x }}",
            "HAP406",
            3,
            "twice",
        ),
        (f"{FAST}\ndevice x = fast {{ memory = 0 GiB }}\ncluster a {{ node n = 1 * x }}", "HAP408", 2, "out of range"),
        ("device x { memory = 1 GiB, bandwidth = 1 GB/s }\ncluster a { node n = 1 * x }", "HAP404", 1, "compute"),
    ],
)
def test_what_is_wrong_is_told_where_it_stands(text: str, code: str, line: int, words: str) -> None:
    with pytest.raises(HapError) as raised:
        lab(text)
    (found,) = raised.value.diagnostics
    assert (found.code, found.span.line) == (code, line)
    assert words in found.message
    assert found.help


def test_an_imported_device_s_fault_points_into_its_file(tmp_path: Path) -> None:
    (tmp_path / "cards.hap").write_text("device d { compute = 0 TFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s }\n")
    (tmp_path / "lab.hap").write_text('import "cards.hap"\ncluster lab { node n = 1 * d }\n')
    with pytest.raises(HapError) as raised:
        Workbench(tmp_path / "lab.hap").cluster()
    assert Path(raised.value.diagnostics[0].span.file).name == "cards.hap"


def test_two_devices_of_one_name_in_one_bundle() -> None:
    with pytest.raises(HapError) as raised:
        load_text(f"{FAST}\n{FAST}")
    assert [d.code for d in raised.value.diagnostics] == ["HAP132"]


# -- the library ----------------------------------------------------------------------------

# What the chips are made of: f32 units, FLOP a clock in each (2: one fused multiply-add), boost clock in GHz; memory bus in bits, Gbit/s a pin.
CHIPS = {
    "p100": (3584, 2, 1.303, 4096, 1.43),
    "p100_sxm": (3584, 2, 1.480, 4096, 1.43),
    "v100": (5120, 2, 1.530, 4096, 1.754),
    "v100_32": (5120, 2, 1.530, 4096, 1.754),
    "v100_pcie": (5120, 2, 1.380, 4096, 1.754),
    "t4": (2560, 2, 1.590, 256, 10.0),
    "a100": (6912, 2, 1.410, 5120, 2.43),
    "a100_80": (6912, 2, 1.410, 5120, 3.186),
    "l4": (7424, 2, 2.040, 192, 12.5),
    "h100": (16896, 2, 1.980, 5120, 5.23),
    "h200": (16896, 2, 1.980, 6144, 6.25),
    "b200": (18944, 2, 1.965, 8192, 7.8),
    "mi300x": (304, 256, 2.100, 8192, 5.2),
    "rtx3090": (10496, 2, 1.695, 384, 19.5),
    "rtx4090": (16384, 2, 2.520, 384, 21.0),
    "rtx5090": (21760, 2, 2.407, 512, 28.0),
}


@cache
def library() -> dict[str, Device]:
    bundle = load(HARDWARE)
    report = Report()
    text = "\n".join(f"node n{k} = 1 * {name}" for k, name in enumerate(bundle.devices))
    joined = ", ".join(f"1 * n{k}" for k in range(len(bundle.devices)))
    block = block_in(f"cluster all {{\n{text}\nnetwork {joined} {OVER}\n}}", nodes.Cluster)
    built = build(with_devices(block, bundle.devices), report)
    assert not list(report)
    return {d.kind: d for d in built.devices}


def test_every_card_of_the_library_is_one_of_these() -> None:
    assert set(library()) == set(CHIPS)


@pytest.mark.parametrize("name", CHIPS)
def test_peaks_are_those_of_the_chips(name: str) -> None:
    """Units × FLOP a clock × clock, bus width × rate: within 2 % of the data sheet."""
    units, each, clock, bus, rate = CHIPS[name]
    device = library()[name]
    assert device.flops["f32"] == pytest.approx(units * each * clock * 1e9, rel=0.02)
    assert device.bandwidth == pytest.approx(bus / 8 * rate * 1e9, rel=0.025)


def test_half_precision_is_never_slower_and_double_never_faster() -> None:
    for device in library().values():
        assert device.speed("f16") > device.speed("f32") >= device.speed("f64")


def test_each_source_is_noted() -> None:
    """Above every card that says its own compute or memory stands the sheet that says so."""
    for source in load(HARDWARE).sources:
        noted = ""
        for device in source.tree.items:
            noted = device.leading[-1] if device.leading else noted
            assert "data sheet" in noted or "white paper" in noted, device


def test_the_paper_s_testbeds_are_built_from_it() -> None:
    """Its measured speeds, the data sheets' memory."""
    for name, kinds in {
        "paper_hetero": ("v100", "p100"),
        "paper_homo": ("p100",),
        "paper_a100_p100": ("a100", "p100"),
    }.items():
        built = Workbench(HARDWARE.with_name(f"{name}.hap")).cluster()
        for device in built.devices:
            listed = library()[device.kind]
            assert device.kind in kinds
            assert (device.memory, device.bandwidth) == (listed.memory, listed.bandwidth)
            assert device.flops["f32"] < listed.flops["f32"]


def test_check_reads_devices_without_a_cluster(tmp_path: Path) -> None:
    bundle = load_text(
        "device d { compute = 0 TFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s }\ndevice e = f { launch = 1 us }"
    )
    report = Report()
    check_devices(bundle.of_main(nodes.Device), bundle.devices, report)
    assert [d.code for d in report.errors] == ["HAP408", "HAP402"]
    assert read_device(load(HARDWARE).devices["v100"], Report()) is not None


def test_a_fault_that_other_devices_take_over_is_told_once() -> None:
    """Of the device that has it, though one of the file and one of the cluster take it over, and the cluster uses these alone."""
    bundle = load_text(
        "device base { compute = 9 TFLOP/s, memory = 0 GiB, bandwidth = 900 GB/s, colour = 3 }\n"
        "device tired = base { compute = 5 TFLOP/s }\n"
        f"cluster lab {{\n device own = tired {{ launch = 1 us }}\n node n = 1 * tired, 1 * own {OVER}\n}}\n",
        "lab.hap",
    )
    report, (block,) = Report(), bundle.of_main(nodes.Cluster)
    assert isinstance(block, nodes.Cluster)
    check_devices(bundle.of_main(nodes.Device), bundle.devices, report)
    with pytest.raises(HapError) as wrong:
        build(with_devices(block, bundle.devices), report)
    assert list(wrong.value.diagnostics) == list(report)
    assert [(d.code, d.span.line, "'base'" in d.message) for d in report] == [("HAP405", 1, True), ("HAP408", 1, True)]
