"""What a profile measures, in which order, and how long it goes on: calls of operators, messages for which there is room, series that take too long."""

from __future__ import annotations

import pytest
import torch

from hapdsl.cluster.seen import Figures, LinkSample, MoveSample, OpSample, Seen
from hapdsl.graph.program import METHODS
from hapdsl.run import measuring, timing
from hapdsl.run.backends import GLOO
from hapdsl.run.launch import launch
from hapdsl.run.measuring import Extent, measure
from hapdsl.run.probes import NARROW, WIDE, ladder, narrow, probe
from hapdsl.run.profile import Profile, work
from hapdsl.run.samples import INTEGERS
from hapdsl.run.timing import STAGE, Timing
from hapdsl.theory.library import standard

CPU = torch.device("cpu")


# -- calls of operators ------------------------------------------------------------------


def test_rows_that_are_looked_up_are_there():
    """Several sets of operands, to be taken in turns: of the numbers each is below what is read by it, and not all are small."""
    found = probe(standard()["embedding"], 200)
    assert found is not None
    sets = found.operands(CPU)
    assert len(sets) > 1
    for operands in sets:
        given = {g.operand: tensor for g, tensor in zip(found.given, operands, strict=True)}
        table, ids = given["table"], given["ids"]
        assert ids.dtype == torch.int64 and 2 <= int(ids.max()) < len(table)
        (rows,) = found.call(operands)
        assert torch.equal(rows, table[ids])
    for name, integers in INTEGERS.items():
        one = probe(standard()[name], 3)
        assert one is not None, name
        given = zip(one.given, one.operands(CPU)[0], strict=True)
        assert {g.operand for g, t in given if t.dtype == torch.int64} <= set(integers), name  # a mask may be left out
        one.call(one.operands(CPU)[0])


def test_dims_that_are_computed_in_tiles_are_short_one_at_a_time():
    found = [p.tiled for p in narrow(standard()["conv2d"])]
    assert sorted(found) == sorted([(n, WIDE) for n in NARROW] + [(WIDE, n) for n in NARROW])
    assert not list(narrow(standard()["matmul"]))


# -- what is measured --------------------------------------------------------------------


def test_a_series_ends_where_it_takes_too_long(monkeypatch):
    """Of one process, which has nobody to talk to: of each kind of thing the first point is taken, the others are said to be missing."""
    monkeypatch.setattr(measuring, "TOO_LONG_S", 0.0)  # whatever it takes
    left = []
    found = Profile(lambda done, of, left_s, label: left.append(left_s))
    launch(work, 1, (Extent(only=("conv2d",)), GLOO), found.receive, method="fork")
    assert found.complete and found.seen is not None and len(found.seen) == 1
    assert [s.name for s in found.seen.samples if isinstance(s, Figures)] == ["launches", "copies"]
    assert sorted(s.table for s in found.seen.ops) == ["conv2d", "conv2d.bf16", "conv2d.f16", "conv2d.f64"]
    assert len(found.seen.samples) == 6 and len(found.failed) == found.points - 6
    asked = list(narrow(standard()["conv2d"]))
    for dtype in ("f32", "f64", "bf16", "f16"):
        most = Extent().most / (1 if dtype == "f32" else 8)
        asked += ladder(standard()["conv2d"], most, 8.0, dtype)
    assert found.points == 2 + len(asked)
    assert not any(left)  # what won't be measured takes no time


def with_little_memory(reporter, memory):
    seen = Seen(("here", "here"), (memory, 100 * memory), ("cpu", "cpu"))
    left = []
    measure(seen, Extent(4096, True, ("add",)), GLOO, lambda done, of, left_s, label, sample: left.append(left_s))
    moves = [(s.kind, s.method, s.total) for s in seen.samples if isinstance(s, MoveSample)]
    others = {type(s).__name__ for s in seen.samples}
    reporter.send("seen", moves=moves, others=sorted(others), left=left)


def test_messages_are_as_large_as_there_is_room_for():
    """Padded, a message holds the largest share once per rank, and some copies of that: of two even shares of 512 bytes 8 KiB, of three quarters on
    one device 12 KiB, and of 4 KiB four times as much."""
    told = []
    launch(with_little_memory, 2, (10_000.0,), lambda rank, header, tensor: told.append(header), method="fork")
    flat = [(kind, method) for kind, methods in METHODS.items() for method in methods if method != "hierarchical"]
    for header in told:
        assert sorted(map(tuple, header["moves"])) == sorted((kind, method, 1024.0) for kind, method in flat)
        kinds = (Figures, LinkSample, MoveSample, OpSample)
        assert header["others"] == sorted(kind.__name__ for kind in kinds)
        assert header["left"][-1] == 0 and all(s > 0 for s in header["left"][:-1])


# -- how long is measured ----------------------------------------------------------------


def timed(reporter):
    """By a clock that what is measured moves on."""
    with pytest.MonkeyPatch.context() as patch:
        now, calls = [0.0], {"act": 0, "compute": 0}
        patch.setattr(timing.time, "perf_counter", lambda: now[0])
        timer = Timing(CPU, 0.04, 5)
        tired = [False]

        def act(seconds, more=0.0):
            def one():
                now[0] += seconds + more * tired[0]
                calls["act"], tired[0] = calls["act"] + 1, False

            return one

        def compute():
            now[0] += STAGE * timer.batch_s
            calls["compute"], tired[0] = calls["compute"] + 1, True

        def said(kind, seconds):
            reporter.send(kind, seconds=seconds, **calls)
            calls.update(act=0, compute=0)

        said("long", timer.together(act(3.0)))
        said("much", timer.behind(compute, act(1.0)))
        said("little", timer.behind(compute, act(0.001, 0.002)))


def test_what_takes_long_is_not_done_again_and_again():
    """Messages of three seconds are sent twice: connections are made at the first. One of a second is much beside a batch, so nothing is computed
    before it; what is waited for longer behind computing counts as that."""
    told = {}
    launch(timed, 1, (), lambda rank, header, tensor: told.update({header["kind"]: header}), method="fork")
    assert (told["long"]["seconds"], told["long"]["act"]) == (3.0, 2)
    assert (told["much"]["seconds"], told["much"]["compute"]) == (1.0, 0)
    assert told["little"]["seconds"] == pytest.approx(0.003) and told["little"]["compute"] > 0
