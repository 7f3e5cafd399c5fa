"""`hapdsl cost --sweep`: prices against `hapdsl cost` on clusters written by hand, changes against the crossing of two straight lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from hapdsl.sweep import read_range, sweep
from hapdsl.workbench import Workbench
from tests.cli.conftest import Run
from tests.texts import PROGRAM, TINY

# All on every device: no message, more work. Against `by_batch`, which exchanges gradients.
WHOLE = PROGRAM.replace("by_batch", "whole").replace("S(0)", "R").replace("@P", "@R").replace(
    "        w2.grad@R, w1.grad@R = all_reduce(w2.grad@R, w1.grad@R)\n", ""
).replace("    shares batch = [12, 4]\n", "")  # fmt: skip
BIG = "tiny(batch = 2048, d = 64)"


def two(path: Path, bandwidth: str = "1 GB/s") -> Path:
    text = TINY.replace("1 GB/s, latency", f"{bandwidth}, latency") + (PROGRAM + WHOLE).replace(
        "for tiny", f"for {BIG}"
    )
    path.write_text(text.replace("[12, 4]", "[1536, 512]"))
    return path


def test_points_are_priced_as_clusters_written_by_hand(hapdsl: Run, tmp_path: Path) -> None:
    found = hapdsl(
        "cost",
        two(tmp_path / "m.hap"),
        "--sweep",
        "link=0.01..1GB/s",
        "--points",
        "3",
        "--program",
        "by_batch",
        "--json",
    )
    assert found.status == 0
    swept = found.object
    assert swept["values"] == pytest.approx([1e7, 1e8, 1e9])
    (plan,) = swept["plans"]
    for bandwidth, seconds in zip(("0.01 GB/s", "0.1 GB/s", "1 GB/s"), plan["seconds"], strict=True):
        alone = hapdsl("cost", two(tmp_path / "other.hap", bandwidth), "--program", "by_batch", "--json").object
        assert seconds == pytest.approx(alone["sync_s"])
    assert (swept["best"], swept["changes"]) == (["A"] * 3, [])


def test_the_best_changes_where_the_lines_cross(hapdsl: Run, tmp_path: Path) -> None:
    """`by_batch` costs s + k / bandwidth, `whole` nothing in messages: from two prices comes the bandwidth at which they are equal."""
    path = two(tmp_path / "m.hap")

    def price(bandwidth: str) -> tuple[float, float]:
        listed = hapdsl("cost", two(tmp_path / "other.hap", bandwidth), "--json").object["programs"]
        return listed[0]["sync_s"], listed[1]["sync_s"]

    (slow, whole), (fast, _) = price("1 MB/s"), price("1 GB/s")
    k = (slow - fast) / (1 / 1e6 - 1 / 1e9)
    crossing = k / (whole - (fast - k / 1e9))
    swept = hapdsl(
        "cost",
        path,
        "--sweep",
        "link=0.01MB/s..1GB/s",
        "--points",
        "5",
        "--set",
        "batch=2048",
        "--set",
        "d=64",
        "--json",
    ).object
    assert [p["program"] for p in swept["plans"][:2]] == ["by_batch", "whole"]
    # the search may know better than both; between the two alone the lines cross where their prices say
    (change,) = _changes_of_two(path)
    assert change == (pytest.approx(crossing, rel=0.01), 1, 0)
    lowest = [min(p["seconds"][i] for p in swept["plans"]) for i in range(5)]
    assert [swept["plans"][ord(b) - ord("A")]["seconds"][i] for i, b in enumerate(swept["best"])] == lowest


def _changes_of_two(path: Path) -> list[tuple[float, int, int]]:
    bench = Workbench(path)
    programs = [bench.proven(p).program for p in bench.programs()]
    return sweep(bench.cluster(), read_range("link=0.01MB/s..1GB/s", bench.cluster()), 5, programs).changes


def test_a_model_is_planned_where_the_best_changes(hapdsl: Run, model: Path) -> None:
    found = hapdsl(
        "cost",
        model,
        "--sweep",
        "link=0.1MB/s..100GB/s",
        "--points",
        "5",
        "--set",
        "batch=2048",
        "--set",
        "d=64",
        "--json",
    ).object
    assert len(found["plans"]) > 1
    assert found["changes"]
    for change in found["changes"]:
        assert found["values"][0] < change["at"] < found["values"][-1]
    # never worse than what is planned there
    for i in (0, 4):
        text = model.read_text().replace(
            "bandwidth = 1 GB/s, latency", f"bandwidth = {found['values'][i]} B/s, latency"
        )
        there = model.with_name("there.hap")
        there.write_text(text)
        planned = hapdsl("plan", there, "--all-devices", "--set", "batch=2048", "--set", "d=64", "--json").object
        assert min(p["seconds"][i] for p in found["plans"]) <= planned["cost_s"] * 1.01


def test_words(hapdsl: Run, tmp_path: Path) -> None:
    said = hapdsl("cost", two(tmp_path / "m.hap"), "--sweep", "link=0.1MB/s..1GB/s", "--program", "by_batch")
    assert "the best is A all the way" in said.out
    assert "all_reduce ring" in said.out
    assert said.out.count(" MB/s  A") == 0 and said.out.count(" GB/s  A") == 9


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--sweep", "network=1..100Gbit/s"), "HAP426"),
        (("--sweep", "link=1..100Gbit"), "HAP491"),
        (("--sweep", "link=1..100GB/s", "--points", "1"), "HAP850"),
        (("--sweep", "link=1..100GB/s", "--program", "none"), "HAP582"),
        (("--set", "batch=3"), "HAP850"),
    ],
)
def test_what_can_t_be_swept(arguments: tuple[str, ...], code: str, hapdsl: Run, tiny: Path) -> None:
    found = hapdsl("cost", tiny, *arguments, "--json")
    assert (found.status, found.codes) == (2, [code])


def test_over_virtual_devices_plans_are_those_of_plan(hapdsl: Run, tmp_path: Path) -> None:
    """Where nodes are virtual devices, what is planned along the way keeps to them as `plan` does."""
    node = "    node host = 1 * quick, 1 * slow over { bandwidth = 1 GB/s, latency = 1 us }\n"
    text = TINY.replace(node, node + "    network 2 * host virtual over { bandwidth = BAND, latency = 10 us }\n")
    low, high = (tmp_path / f"{name}.hap" for name in ("low", "high"))
    low.write_text(text.replace("BAND", "1 MB/s"))
    high.write_text(text.replace("BAND", "1 GB/s"))
    found = hapdsl("cost", low, "--sweep", "network=1MB/s..1GB/s", "--points", "3", "--json").object
    for at, there in ((0, low), (-1, high)):
        planned = hapdsl("plan", there, "--json").object
        best = min(found["plans"], key=lambda p: p["seconds"][at])
        assert best["seconds"][at] <= planned["cost_s"] * 1.01
        assert planned["cost_s"] < 1.3 * best["seconds"][at]
