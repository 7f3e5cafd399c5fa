"""What the runner watches and how it runs: gradients in f16, their norm, replicas, shares of data, the environment of torchrun."""

from __future__ import annotations

import json
import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hapdsl.graph.program import Layout, Program
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.resources import programs_folder
from hapdsl.run.actions import scheduled
from hapdsl.run.compiled import available
from hapdsl.run.data import open_feed
from hapdsl.run.distributed import Rank
from hapdsl.run.gradients import Gradients
from hapdsl.run.how import How
from hapdsl.run.initial import initial
from hapdsl.run.launch import launch
from hapdsl.run.lower import Exchange, lower
from hapdsl.run.replicas import check, fingerprint
from hapdsl.run.report import Line
from hapdsl.run.train import train
from hapdsl.search.planner import plan
from hapdsl.search.restriction import Restriction
from hapdsl.theory.placements import R
from hapdsl.workbench import Workbench
from tests.graph.helpers import graph_of
from tests.run.programs import HALF, by_hand, program_of, randomly
from tests.texts import PROGRAM, TINY

DRIFT = """
op drifting(x[*i]) -> y[*i] { linear x; grad x = y.grad; torch "tests.run.drift.drifting" }
model m(batch = 8, d = 6) {
    input x : f32[batch, d]
    param w : f32[d] init normal(std = 0.5)
    param v : f32[d] init normal(std = 0.5)
    y = drifting(mul(w, v))
    loss = sum(mul(mul(x, y), y), dims = [0, 1])
    train loss with sgd(lr = 0.01)
}
"""


# -- gradients --------------------------------------------------------------------------


@pytest.mark.parametrize(("clip", "scale"), [("", 2.0**16), ("clip 0.2", 2.0**20)])
def test_f16_trains_as_with_torchs_scaler(clip, scale):
    """Four uneven ranks against one process with autograd; the large scale overflows f16 in the first steps, which then change nothing."""
    graph = graph_of(HALF.replace("CLIP", clip))
    losses, norms, skipped = by_hand(graph, 8 * [8], 0.2 if clip else None, scale)
    result = train(randomly(graph, 5), 4, 8, how=How(scale=scale))
    assert result is not None
    np.testing.assert_allclose(result.loss, losses, rtol=2e-3)
    found = [(line.get("grad_norm"), line["skipped"]) for line in result.lines]
    assert found[-1][1] == skipped and (skipped > 0) == (scale > 2.0**16)
    for (norm, _), wanted in zip(found, norms, strict=True):
        assert (norm is None and not np.isfinite(wanted)) or norm == pytest.approx(wanted, rel=5e-3)
    if skipped:
        assert result.loss[0] == result.loss[1], "the first step changed nothing"
    assert losses[-1] < losses[0]


def test_a_scale_keeps_what_f16_would_lose():
    """Gradients below f16's smallest number: without a scale nothing is learned."""
    graph = graph_of(HALF.replace("CLIP", ""), scale=1e-8)
    without = train(randomly(graph, 5), 4, 1, how=How(scale="off"))
    scaled = train(randomly(graph, 5), 4, 1)
    assert without is not None and scaled is not None
    wanted = by_hand(graph, [8], None, 2.0**16)[1][0]
    assert scaled.grad_norm == pytest.approx(wanted, rel=1e-2) and without.grad_norm == 0


@pytest.mark.parametrize("name", ["mlp_data_parallel", "mlp_zero", "mesh"])
def test_the_norm_is_that_of_all_gradients(name):
    program = program_of(name)
    start, batch = initial(program.graph, 0, torch.float64), open_feed("digits", program.graph).batch(1)
    params = {n: start[n].requires_grad_(True) for n in ("w1", "b1", "w2")}
    loss = F.cross_entropy(torch.relu(batch["x"].double() @ params["w1"] + params["b1"]) @ params["w2"], batch["label"])
    loss.backward()
    result = train(program, 4, 1, "digits", how=How(dtype="f64"))
    assert result is not None
    wanted = torch.stack([p.grad.norm() for p in params.values()]).norm()
    assert result.grad_norm == pytest.approx(float(wanted), rel=1e-10)
    assert result.samples_s == pytest.approx(len(batch["label"]) / result.step_s)


def test_a_gradient_counts_once_however_it_is_cut_before_it_is_clipped():
    """Clipping may read a gradient in another placement than its norm did: what it leaves isn't one more gradient."""
    graph = graph_of(HALF.replace("CLIP", "clip 0.2"))
    moved = 0
    for seed in range(12):
        gradients = Gradients(lower(program := randomly(graph, seed), (0,)), 0, torch.device("cpu"))
        assert sorted(v.tensor for v in gradients.counted.values()) == ["w1.master.grad", "w2.master.grad"]
        read = [i for i in program.instructions if i.op in ("sum_squares", "clip")]
        moved += len({i.inputs[0] for i in read}) > 2
    assert moved, "the case is among them"


def test_optimizer_state_is_never_f16():
    with pytest.raises(HapError) as stop:
        train(program_of("mlp_zero"), 4, 1, how=How(dtype="f16"))
    (found,) = stop.value.diagnostics
    assert found.code == "HAP722" and "w1.m" in found.message and "master f32" in found.help


@cache
def without_state(dtype):
    """A run of sgd, which has no state, in one dtype."""
    text = HALF.replace("f16[", "f32[").replace(" master f32", "").replace("to = f16", "to = f32").replace("CLIP", "")
    graph = graph_of(text.replace("adamw(lr = 0.01, weight_decay = 0.1)", "sgd(lr = 0.5)"))
    found = train(randomly(graph, 9), 4, 5, how=How(dtype=dtype))
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_every_dtype_trains_alike(dtype):
    """Close to f64 by what the dtype can hold."""
    exact, result = without_state("f64"), without_state(dtype)
    np.testing.assert_allclose(result.loss, exact.loss, rtol={"f32": 1e-5, "bf16": 3e-2, "f16": 4e-3}[dtype])
    assert result.loss[-1] < 0.8 * result.loss[0]


# -- replicas ---------------------------------------------------------------------------


def drifter(text: str = DRIFT) -> Program:
    """Every device computes everything for itself."""
    cluster = Workbench(programs_folder() / "clusters" / "digits.hap").cluster("digits")
    alone = Restriction(
        lambda node, rule: all(p == R for p in (*rule.inputs, *rule.outputs)), lambda param, placement: placement == R
    )
    return plan(graph_of(text), cluster, restriction=alone, baselines=False).program


def test_replicas_that_drift_are_seen_and_brought_together():
    program = drifter()
    apart = train(program, 4, 4, allow={"tests.run.drift"}, collect=False)
    assert apart is not None and "drift" not in apart.as_json()
    result = train(program, 4, 4, allow={"tests.run.drift"}, how=How(check_replicas=2), collect=True)
    assert result is not None
    drift = result.as_json()["drift"]
    assert {d["step"] for d in drift} <= {2, 4} and drift
    assert all(2 in d["devices"] and 0 not in d["devices"] and 0 < d["gap"] < 1e-3 for d in drift)
    assert {d["tensor"] for d in drift} == {"w", "v"}
    # the last step's drift was mended before the parameters were collected, which compares replicas
    assert set(result.final) >= {"w", "v"}


def together(reporter, program):
    rank = Rank(program)
    rank.load(initial(program.graph, 0))
    replicated = [v for v in rank.held if v.placement[0].kind == "R"]
    assert not check(rank)
    for k, value in enumerate(replicated):
        if rank.rank == 1 + k % 3 and rank.held[value].numel():
            rank.held[value].view(-1)[-1] += 0.5
    found = check(rank)
    reporter.send(
        "found",
        drift=[[d.tensor, list(d.devices), d.gap] for d in found],
        again=len(check(rank)),
        values=[v.tensor for v in replicated],
    )


@pytest.mark.parametrize("name", ["mlp_data_parallel", "mesh"])
def test_the_first_device_holds(name):
    """On two mesh axes too: whoever differs is named, and takes over the value of the first along its replicated axes."""
    program, seen = program_of(name), []
    launch(together, 4, (program,), lambda rank, header, tensor: seen.append(header), method="fork")
    assert seen[0] == seen[1] == seen[2] == seen[3] and seen[0]["again"] == 0
    assert [d[0] for d in seen[0]["drift"]] == seen[0]["values"] and all(
        d[1] and d[2] == pytest.approx(0.5, rel=1e-4) for d in seen[0]["drift"]
    )


def test_a_report_is_json_whatever_its_numbers():
    """A replica may hold no number where another one does."""
    drift = [{"tensor": "w", "devices": [1], "gap": math.inf}]
    line = Line(3, math.nan, math.inf, 0.5, None, {"m": math.nan, "n": 1.0}, drift=drift)
    assert json.loads(json.dumps(line.as_json(), allow_nan=False)) == {
        "step": 3,
        "loss": None,
        "grad_norm": None,
        "step_s": 0.5,
        "metrics": {"m": None, "n": 1.0},
        "drift": [{"tensor": "w", "devices": [1], "gap": None}],
    }


def test_a_fingerprint_sees_any_bit():
    for dtype, n in ((torch.float32, 5), (torch.bfloat16, 3), (torch.int64, 4), (torch.bool, 9)):
        x = (torch.arange(n) % 2).to(dtype)
        prints = {int(fingerprint(x))}
        for at in range(n * x.element_size()):
            for bit in range(8 if dtype != torch.bool else 1):
                other = x.clone()
                other.view(torch.uint8)[at] ^= 1 << bit
                prints.add(int(fingerprint(other)))
        assert len(prints) == 1 + n * x.element_size() * (8 if dtype != torch.bool else 1)


# -- how ------------------------------------------------------------------------------


def test_without_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(HapError, match="no-such-compiler") as stop:
        available()
    assert stop.value.diagnostics[0].code == "HAP723"


def test_what_stands_between_collectives_is_one_function(monkeypatch):
    """Compiled by a compiler that compiles nothing (the real one takes a minute): the same numbers from fewer, longer actions."""
    made = []
    monkeypatch.setattr(torch, "compile", lambda function, **settings: made.append(function) or function)
    program = program_of("mlp_zero")
    plain, compiled = (train(program, 4, 4, "digits", how=How(compiled=c), collect=True) for c in (False, True))
    assert plain is not None and compiled is not None
    assert plain.loss == compiled.loss and all(torch.equal(t, compiled.final[n]) for n, t in plain.final.items())


def timed(context, x):
    return x * context.step


def test_a_function_of_one_s_own_is_not_compiled(monkeypatch):
    """Nothing is known of it: this one reads the clock, which in a graph would stand still."""
    monkeypatch.setattr(torch, "compile", lambda function, **settings: function)
    program = drifter(DRIFT.replace("tests.run.drift.drifting", f"{__name__}.timed"))
    plain, compiled = (train(program, 4, 4, allow={__name__}, how=How(compiled=c)) for c in (False, True))
    assert plain is not None and compiled is not None and plain.loss == compiled.loss


def test_a_conversion_between_calls_is_part_of_their_function(monkeypatch):
    """It looks at no numbers and reads no clock."""
    monkeypatch.setattr(torch, "compile", lambda function, **settings: function)
    bench = Workbench("t.hap", TINY + PROGRAM.replace("h@S(0)      = relu(u@S(0))", "w2@S(1)     = slice(w2@R)\n        h@S(0)      = relu(u@S(0))"))  # fmt: skip
    program, seen = bench.proven(bench.program()).program, []
    launch(segmented, 2, (program,), lambda rank, header, tensor: seen.append(header), method="fork")
    for found in seen:
        assert found["plain"].count("convert") == 1 and "convert" not in found["compiled"]
    plain, compiled = (train(program, 2, 3, how=How(compiled=c), collect=True) for c in (False, True))
    assert plain is not None and compiled is not None and plain.loss == compiled.loss
    assert all(torch.equal(t, compiled.final[n]) for n, t in plain.final.items())


def segmented(reporter, program):
    plain, compiled = Rank(program), Rank(program, compiled=True)
    reporter.send("found", plain=[a.kind for a in plain.loop], compiled=[a.kind for a in compiled.loop])


def test_segments_end_at_collectives():
    seen = []
    launch(segmented, 4, (program_of("mlp_zero"),), lambda rank, header, tensor: seen.append(header), method="fork")
    found = seen[0]
    rest = [k for k in found["plain"] if k not in ("compute", "convert")]
    assert [k for k in found["compiled"] if k not in ("compute", "convert")] == rest and "start" in rest
    assert len(found["compiled"]) < len(found["plain"])


def test_layouts_are_used():
    """Guard: the random programs above really are uneven."""
    graph = graph_of(HALF.replace("CLIP", ""))
    program = randomly(graph, 5)
    assert isinstance(program.layout, Layout)
    assert any(len(set(map(int, s))) > 1 for cuts in program.layout.shares.values() for s in cuts.values())


# -- where collectives are waited for ---------------------------------------------------


@pytest.mark.parametrize("phased", [False, True])
def test_collectives_are_under_way_until_they_are_needed(phased):
    steps = lower(program_of("layer_zero"), [0]).steps
    moves = {k: SimpleNamespace(phased=phased) for k, s in enumerate(steps) if isinstance(s.work, Exchange)}
    under, most, behind = {}, 0, 0
    order = list(scheduled(range(len(steps)), steps, moves))
    assert [k for what, k in order if what != "finish"] == list(range(len(steps)))
    assert sorted(k for what, k in order if what == "finish") == sorted(moves)
    for what, k in order:
        if what == "start":
            under[k] = 0
        elif what == "finish":
            behind += under.pop(k) > 0
        else:
            touched = {*steps[k].inputs, *steps[k].outputs}
            assert not any(touched & set(steps[other].outputs) for other in under), "read before it is there"
            under = {other: n + 1 for other, n in under.items()}
        most = max(most, len(under))
    assert not under and behind >= 2 and (most == 1 if phased else most >= 2)
