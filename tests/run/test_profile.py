"""Profiles: curves that fit, a block that says what was seen, real processes, and the command line around them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from hapdsl.cli import main
from hapdsl.cluster import Cluster, build
from hapdsl.cluster.describe import describe, word
from hapdsl.cluster.fit import NEAR, monotone
from hapdsl.cluster.hardware import Curve, Device
from hapdsl.cluster.seen import Figures, LinkSample, MoveSample, OpSample, Seen, packed, unpacked
from hapdsl.cost import collective_seconds
from hapdsl.graph.program import METHODS
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.lang.load import load
from hapdsl.lang.print import to_text
from hapdsl.run import profile as module
from hapdsl.run.measuring import Extent
from hapdsl.run.probes import ESSENTIAL, ladder
from hapdsl.run.profile import Profile, profile
from hapdsl.theory.library import standard
from tests.texts import block_in

SIZES = [1024.0 * 4**k for k in range(8)]


# -- curves --------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(SIZES), st.floats(1e-6, 10)), min_size=2, max_size=30))
def test_a_fit_is_isotonic_regression_of_logarithms_but_for_the_points_left_out(
    samples: list[tuple[float, float]],
) -> None:
    points = monotone(samples)
    if len({x for x, _ in samples}) < 2:
        assert points == ()
        return
    xs, ys = np.array(samples).T
    wanted = IsotonicRegression().fit(np.log(xs), np.log(ys))
    assert all(a < b for (a, _), (b, _) in pairwise(points))
    assert all(a <= b for (_, a), (_, b) in pairwise(points))
    for x in sorted(set(xs)):
        y = float(np.exp(wanted.predict([np.log(x)])[0]))
        assert Curve(points).seconds(x) == pytest.approx(y, rel=NEAR * 1.001)


def test_a_line_needs_two_points() -> None:
    assert [x for x, _ in monotone([(x, 1e-3 + x / 1e9) for x in SIZES])] == [SIZES[0], SIZES[-1]]


# -- what a block says -----------------------------------------------------------------------

LAB = """
cluster lab {
    device fast { compute = 40 GFLOP/s, memory = 4 GiB, bandwidth = 8 GB/s, launch = 4 us }
    device slow { compute = 10 GFLOP/s, memory = 4 GiB, bandwidth = 2 GB/s, launch = 16 us }
    node a = 2 * fast over { bandwidth = 1 GB/s, latency = 100 us }
    node b = 2 * slow over { bandwidth = 1 GB/s, latency = 100 us } uplink { bandwidth = 50 MB/s }
    network 1 * a, 1 * b over { bandwidth = 125 MB/s, latency = 200 us }
}
"""


def block(text: str) -> nodes.Cluster:
    found = block_in(text, nodes.Cluster)
    return found


def looked_at(lab: Cluster) -> Seen:
    """What an exact profile of `lab` would see, with some noise."""
    noise = random.Random(3)
    seen = Seen(("one", "one", "two", "two"), tuple(d.memory for d in lab.devices), ("cpu",) * 4)
    seen.samples += [
        Figures("launches", tuple(d.launch for d in lab.devices)),
        Figures("copies", tuple(d.bandwidth for d in lab.devices)),
        Figures("interference", (0.0, 0.0, 0.5, 0.7)),
    ]
    for n in (32, 64, 128, 256, 512, 1024):
        flops, moved = 2.0 * n**3, 12.0 * n**2
        seen.samples.append(
            OpSample(
                "matmul",
                True,
                flops,
                moved,
                tuple(d.launch + flops / d.flops["f32"] * noise.uniform(0.99, 1.01) for d in lab.devices),
            )
        )
    for size in SIZES:
        seen.samples.append(
            OpSample("add", False, size / 12, size, tuple(d.launch + size / d.bandwidth for d in lab.devices))
        )
        for kind, methods in METHODS.items():
            for method in methods:
                for part in (0.25,) if kind == "all_reduce" else (0.25, 0.5):
                    shares = [part * size, *[(1 - part) / 3 * size] * 3]
                    seconds = collective_seconds(kind, method, shares, size, lab) * noise.uniform(0.99, 1.01)
                    seconds *= 1.5 if method == "grouped" and part > 0.25 else 1.0
                    seen.samples.append(MoveSample(kind, method, size, max(shares), seconds))
    for a, b, bandwidth, latency in ((0, 1, 1e9, 1e-4), (2, 3, 1e9, 1e-4), (0, 2, 5e7, 2e-4)):
        seen.samples += [LinkSample(a, b, s, latency + s / bandwidth) for s in (SIZES[0], SIZES[-1])]
    seen.samples.append(Figures("delay", (0.0, 0.0, 0.4, 0.2)))
    return seen


def test_a_profile_of_a_known_cluster_prices_like_it() -> None:
    lab = build(block(LAB))
    made = describe(looked_at(lab), "my lab", "seen")
    assert block(to_text(nodes.File((made,)))) == made
    found = build(made)
    assert (found.name, [d.kind for d in found.devices]) == ("my_lab", ["cpu_1", "cpu_1", "cpu_2", "cpu_2"])
    assert [len(n.devices) for n in found.nodes] == [2, 2]
    for mine, own in zip(found.devices, lab.devices, strict=True):
        assert (mine.memory, mine.launch) == (own.memory, pytest.approx(own.launch))
        assert mine.interference == ((0.0, 0.0) if own.kind == "fast" else (0.6, 0.3))
        for n in (48, 200, 900):
            wanted = own.launch + 2 * n**3 / own.flops["f32"]
            assert float(mine.curves["matmul"].at(np.array([2.0 * n**3]), np.zeros(1))[0]) == pytest.approx(
                wanted, rel=0.06
            )
    for kind, methods in METHODS.items():
        for method in methods:
            for size in (3e3, 5e5, 9e6):
                even = [size / 4] * 4
                priced = collective_seconds(kind, method, even, size, found)
                assert priced == pytest.approx(collective_seconds(kind, method, even, size, lab), rel=0.06), (
                    kind,
                    method,
                    size,
                )
    skewed = [4e5, 4e5 / 3, 4e5 / 3, 4e5 / 3]
    priced = collective_seconds("all_gather", "grouped", skewed, 8e5, found)
    assert priced == pytest.approx(1.5 * collective_seconds("all_gather", "grouped", skewed, 8e5, lab), rel=0.06)
    pair = collective_seconds("all_reduce", "ring", [1e6] * 2, 1e6, found, [0, 1])  # no whole cluster: by formula
    assert pair == pytest.approx(collective_seconds("all_reduce", "ring", [1e6] * 2, 1e6, lab, [0, 1]), rel=0.02)


LENGTHS = (4, 8, 16, 32, 48)


def convolutions(d: Device, tile: int) -> list[tuple[float, tuple[int, int], float]]:
    """(FLOP, channels, seconds) of calls on a device that takes `tile` channels at a time: of growing size, and with few channels."""
    sizes = [((32, 32), n) for n in (1, 4, 32)] + [(c, 8) for n in LENGTHS for c in ((n, 64), (64, n))]
    found = []
    for (i, o), rows in sizes:
        work = 2.0 * 9 * 256 * rows
        found.append((work * i * o, (i, o), d.launch + work * -(-i // tile) * -(-o // tile) * tile**2 / d.flops["f32"]))
    return found


@pytest.mark.parametrize(("tile", "said"), [(1, {}), (16, {"conv2d": 16}), (32, {"conv2d": 32})])
def test_tiles_are_seen_in_calls_with_few_channels(tile: int, said: dict[str, int]) -> None:
    lab = build(block(LAB))
    seen = looked_at(lab)
    for calls in zip(*(convolutions(d, tile) for d in lab.devices), strict=True):
        flops, channels, _ = calls[0]
        seen.samples.append(OpSample("conv2d", True, flops, 1e3, tuple(s for *_, s in calls), channels))
    made = describe(seen, "lab")
    assert block(to_text(nodes.File((made,)))) == made
    found = build(made)
    assert [d.tiles for d in found.devices] == [said] * 4
    whole = 2.0 * 9 * 256 * 16 * 64 * 64
    for mine, own in zip(found.devices, lab.devices, strict=True):  # by FLOP of whole tiles
        wanted = own.launch + whole / own.flops["f32"]
        assert float(mine.curves["conv2d"].at(np.array([whole]), np.zeros(1))[0]) == pytest.approx(wanted, rel=0.06)


def test_calls_that_are_all_launch_tell_of_no_tiles() -> None:
    lab = build(block(LAB))
    seen = looked_at(lab)
    for n in LENGTHS:
        seconds = tuple(1.01 * d.launch for d in lab.devices)
        seen.samples.append(OpSample("conv2d", True, 1e3 * n, 1e3, seconds, (n, 64)))
    assert [d.tiles for d in build(describe(seen, "lab")).devices] == [{}] * 4


def test_a_small_message_that_was_held_up_makes_no_link_infinite() -> None:
    seen = looked_at(build(block(LAB)))
    seen.samples = [replace(s, seconds=1.0) if isinstance(s, LinkSample) and s.source == 0 else s for s in seen.samples]
    found = build(describe(seen, "lab"))
    # A tenth of a second, in four digits.
    assert found.nodes[0].link is not None and found.nodes[0].link.bandwidth <= 10.01 * SIZES[-1]


def test_what_is_missing_is_left_to_formulas() -> None:
    seen = looked_at(build(block(LAB)))
    with pytest.raises(HapError) as stop:
        describe(Seen(seen.nodes, seen.memory, seen.kinds, seen.samples[:3]), "lab")
    assert [d.code for d in stop.value.diagnostics] == ["HAP428"]
    some = build(describe(Seen(seen.nodes, seen.memory, seen.kinds, seen.samples[:5]), "lab"))
    assert (len(some), some.measured, set(some.devices[0].curves)) == (4, {}, {"matmul"})
    assert [unpacked(json.loads(json.dumps(packed(s)))) for s in seen.samples] == seen.samples
    assert [word(t) for t in ("NVIDIA H100 80GB", "3 ways", "häp")] == ["NVIDIA_H100_80GB", "c_3_ways", "h_p"]


# -- measuring ---------------------------------------------------------------------------------


def test_nearly_every_operator_can_be_measured() -> None:
    """Sizes grow, and those of products come by FLOP and by bytes."""
    without = [name for name, decl in standard().items() if not list(ladder(decl, 2**18, 8.0))]
    assert len(without) < len(standard()) / 20, without
    assert not set(ESSENTIAL) & set(without)
    for name, decl in standard().items():
        for by_flop in (True, False):
            sizes = [(p.flops, p.moved)[not by_flop] for p in ladder(decl, 2**18, 8.0) if p.by_flop == by_flop]
            assert sizes == sorted(set(sizes)), name
        assert all(p.moved <= 2**20 for p in ladder(decl, 2**19, 8.0)), name
    assert {p.by_flop for p in ladder(standard()["matmul_tn"], 2**18, 8.0)} == {True, False}


def test_two_processes_measure_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int, float]] = []
    found = Profile(lambda done, of, left, label: told.append((done, of, left)))
    assert profile(found, 2, Extent(4096, True, ("matmul", "relu")))
    assert found.complete and not found.failed and found.seen is not None
    assert [done for done, _, _ in told] == list(range(1, found.points + 1))
    assert told[-1][2] == 0 and all(left > 0 for _, _, left in told[:-1])
    cluster = build(describe(found.seen, "here"))
    assert set(cluster.measured) == {
        f"{k}_{m}" for k, methods in METHODS.items() for m in methods if m != "hierarchical"
    }
    assert set(cluster.devices[0].curves) == {"matmul", "matmul.f64", "matmul.bf16", "matmul.f16", "relu"}
    assert {"f32", "f64", "bf16", "f16"} == set(cluster.devices[0].flops)

    def interrupted(into: Profile, *_: object) -> bool:
        into.seen, into.done, into.points = found.seen, 30, 90
        raise KeyboardInterrupt

    def broken(into: Profile, *_: object) -> bool:
        into.seen, into.done, into.points = found.seen, 30, 90
        raise error("HAP720", "process 1 failed: it was ended by signal 9 (SIGKILL)", status=1)

    out = tmp_path / "half.hap"
    monkeypatch.setattr(module, "profile", broken)
    assert main(["profile", "-o", str(out), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert ([d["code"] for d in told["diagnostics"]], told["done"], out.is_file()) == (["HAP720"], 30, True)
    monkeypatch.setattr(module, "profile", interrupted)
    assert main(["profile", "-o", str(out), "--quick"]) == 130
    captured = capsys.readouterr()
    assert "60 points are missing" in captured.out and "Traceback" not in captured.err
    assert len(build(next(iter(load(out).clusters.values())))) == 2
    assert "broken off" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["-o", "c.hap", "--max-size", "16"], "HAP429"),
        (["-o", "c.hap", "--max-size", "1KiB"], "HAP429"),
        (["-o", "c.hap", "--max-size", "4GB/s"], "HAP429"),
        (["-o", "none/c.hap"], "HAP852"),
        (["-o", "."], "HAP852"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_measured(
    arguments: list[str], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "profile", None)
    assert main(["profile", *arguments, "--json"]) == 2
    assert [d["code"] for d in json.loads(capsys.readouterr().out)["diagnostics"]] == [code]
