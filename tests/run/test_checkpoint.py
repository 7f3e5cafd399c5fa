"""Checkpoints: a run that goes on equals one that was never interrupted, under the same program or another."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from hapdsl.cli import main
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.resources import programs_folder
from hapdsl.run import checkpoint_read, checkpoint_state, lock
from hapdsl.run.checkpoint import find, steps
from hapdsl.run.checkpoint_state import state_dict, write_whole
from hapdsl.run.checkpoint_write import Saving, write_tensors
from hapdsl.run.course import Course, same_settings, settle
from hapdsl.run.data import open_feed
from hapdsl.run.how import How
from hapdsl.run.initial import initial
from hapdsl.run.launch import launch
from hapdsl.run.train import train
from hapdsl.workbench import Workbench
from tests.graph.helpers import graph_of
from tests.run.damage import forged
from tests.run.programs import HALF, on_two, program_of, randomly

F64 = torch.float64
LAST, AT = 7, 4


@pytest.fixture(scope="module")
def whole():
    """A run that nothing interrupts."""
    torch.set_num_threads(1)
    return train(program_of("mlp_zero"), 4, LAST, "digits", dtype=F64)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The checkpoints of the same run, ended at step 4."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("checkpoints")
    train(program_of("mlp_zero"), 4, AT, "digits", dtype=F64, saving=Saving(folder, 2, 5))
    return folder


@pytest.fixture
def copy(base, tmp_path):
    """Checkpoints of one's own to spoil."""
    return shutil.copytree(base, tmp_path / "copy")


def test_the_same_program_goes_on_bit_by_bit(base, whole):
    assert steps(base) == [2, 4]
    for at in (base, base / "step-00000002"):
        found = train(program_of("mlp_zero"), 4, LAST, "digits", dtype=F64, resume=at)
        assert found.first_step == find(at).manifest.step + 1
        assert found.loss == whole.loss[found.first_step - 1 :]
        assert set(found.final) == set(whole.final) and len(found.final) == 9
        assert all(torch.equal(t, whole.final[n]) for n, t in found.final.items())


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("mlp_megatron", None),
        ("mesh", None),
        ("mlp_zero", {"batch": [10, 54], "hidden": [128, 0]}),
    ],
)
def test_another_program_goes_on_as_closely_as_floats_allow(base, whole, name, shares):
    program = program_of(name)
    if shares is not None:
        program = on_two(program, shares)
    found = train(program, program.layout.devices, LAST, "digits", dtype=F64, resume=base, reference=True)
    torch.testing.assert_close(found.loss, whole.loss[AT:], rtol=1e-9, atol=0)
    for key, tensor in found.final.items():
        torch.testing.assert_close(tensor, whole.final[key], rtol=1e-9, atol=1e-12)
    assert found.loss_diff < 1e-12


def test_the_scale_of_f16_goes_on(tmp_path):
    """The first steps are too large for f16 and change nothing: scale and count of steps are state too."""
    program, how = program_of("mlp_zero"), How(scale=2.0**22)
    whole = train(program, 4, LAST, "digits", dtype=torch.float16, how=how)
    train(program, 4, AT, "digits", dtype=torch.float16, how=how, saving=Saving(tmp_path, 2, 5))
    extra = find(tmp_path).manifest.extra
    assert 0 < extra["skipped"] < AT and extra["scale"] < 2.0**22
    found = train(program, 4, LAST, "digits", dtype=torch.float16, how=How(), resume=tmp_path)
    assert found.loss == whole.loss[AT:]
    for name, tensor in found.final.items():  # Adam's squares are too small for f16, so some of it is no number
        torch.testing.assert_close(tensor, whole.final[name], rtol=0, atol=0, equal_nan=True)


def test_what_shares_memory_is_saved_all_the_same(tmp_path):
    """At one precision a parameter is its master copy, and a shard may be a view of the whole."""
    program = randomly(graph_of(HALF.replace("CLIP", "")), 3, 2)
    whole = train(program, 2, 4, dtype=F64)
    train(program, 2, 2, dtype=F64, saving=Saving(tmp_path, 2))
    found = train(program, 2, 4, dtype=F64, resume=tmp_path)
    assert found.loss == whole.loss[2:] and all(torch.equal(t, whole.final[n]) for n, t in found.final.items())
    w = torch.arange(12.0).reshape(4, 3)
    own = {"w@R": w, "w@S(0)": w[1:3], "w.master@R": w}
    write_tensors(tmp_path / "w.safetensors", own)
    held = load_file(tmp_path / "w.safetensors")
    assert held.keys() == own.keys() and all(torch.equal(held[n], t) for n, t in own.items())


def test_whole_tensors_are_saved_in_one_piece_or_not_at_all(tmp_path, monkeypatch):
    """What an attempt that was ended has left is in nobody's way, and one that fails leaves nothing."""
    graph = program_of("mlp_zero").graph
    (tmp_path / ".step-00000000.partial").mkdir()
    assert write_whole(tmp_path, graph, initial(graph)).manifest.step == 0

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint_state, "complete", full)
    with pytest.raises(HapError, match="No space left on device") as stop:
        write_whole(tmp_path, graph, initial(graph), 1)
    assert stop.value.diagnostics[0].code == "HAP754"
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000000"]


def test_ranks_without_a_share_save_what_they_hold(tmp_path):
    """Of what is cut by the hidden dim the second rank has nothing to write."""
    program = on_two(program_of("mlp_megatron"), {"batch": [10, 54], "hidden": [128, 0]})
    whole = train(program, 2, 4, "digits", dtype=F64)
    done = train(program, 2, 2, "digits", dtype=F64, saving=Saving(tmp_path, 2))
    found = find(tmp_path)
    for name, tensor in checkpoint_read.tensors(found).items():
        assert torch.equal(tensor, done.final[name])
    cut = [c for t in found.manifest.tensors.values() for c in t.copies if "@S" in c.value]
    assert cut and all([p.rank for p in c.pieces] == [0] for c in cut)
    again = train(program, 2, 4, "digits", dtype=F64, resume=tmp_path)
    assert again.loss == whole.loss[2:] and all(torch.equal(t, whole.final[n]) for n, t in again.final.items())


EVALUATES = """
import "../models/mlp.hap"
import "../clusters/digits.hap"
program looks for mlp(batch = 64, d = 64, hidden = 128) on digits {
    shares batch = [20, 20, 20, 4]
    forward {
        x@S(0), label@S(0) = input()
        w1@R, b1@R, w2@R = param()
        u@S(0) = matmul(x@S(0), w1@R)
        a@S(0) = add(u@S(0), b1@R)
        h@S(0) = relu(a@S(0))
        z@S(0) = matmul(h@S(0), w2@R)
        loss@P = cross_entropy(z@S(0), label@S(0))
    }
}
"""


def test_a_program_that_evaluates_takes_the_weights(base):
    """It counts its own steps: those are batches to look at."""
    bench = Workbench(programs_folder() / "plans" / "looks.hap", EVALUATES)
    program = bench.proven(bench.program()).program
    found = train(program, 4, 3, "digits", dtype=F64, resume=base, reference=True)
    weights, feed = state_dict(find(base)), open_feed("digits", program.graph)
    for step in (1, 2, 3):
        batch = feed.batch(step)
        z = torch.relu(batch["x"].double() @ weights["w1"] + weights["b1"]) @ weights["w2"]
        assert found.loss[step - 1] == pytest.approx(
            float(torch.nn.functional.cross_entropy(z, batch["label"])), rel=1e-12
        )
    assert found.first_step == 1 and found.loss_diff < 1e-12


def rewritten(manifest, **changes):
    """A manifest that says something else, with a checksum that is right; `a__0__b` is where it says so."""

    def change(found):
        for key, value in changes.items():
            spot = found
            *path, last = key.split("__")
            for part in path:
                spot = spot[int(part) if isinstance(spot, list) else part]
            spot[int(last) if isinstance(spot, list) else last] = value

    forged(manifest.parent, change)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-2])


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 4
    path.write_bytes(raw)


W1 = "tensors__w1__copies__0__pieces__0"
SPOILT = {
    "file shorter": (lambda at: cut_short(at / "rank-1.safetensors"), "HAP751", "rank-1.safetensors"),
    "file missing": (lambda at: (at / "rank-2.safetensors").unlink(), "HAP751", "rank-2.safetensors"),
    "one bit": (lambda at: flip(at / "rank-3.safetensors"), "HAP751", "rank-3.safetensors"),
    "manifest shorter": (lambda at: cut_short(at / "manifest.json"), "HAP751", "manifest.json"),
    "manifest changed": (lambda at: flip(at / "manifest.json"), "HAP751", "manifest.json"),
    "no manifest": (lambda at: (at / "manifest.json").unlink(), "HAP751", "manifest.json"),
    "nothing in it": (lambda at: (at / "manifest.json").write_text("{}"), "HAP752", "manifest.json"),
    "a list": (lambda at: (at / "manifest.json").write_text("[[[["), "HAP751", "manifest.json"),
    "later version": (lambda at: rewritten(at / "manifest.json", version=2), "HAP752", "version 2"),
    "outside": (lambda at: rewritten(at / "manifest.json", files__0__name="../rank-0.safetensors"), "HAP751", "manifest.json"),
    "huge": (lambda at: rewritten(at / "manifest.json", tensors__w1__shape=[2**40, 2**20]), "HAP753", "w1"),
    "huge piece": (lambda at: rewritten(at / "manifest.json", tensors__w1__shape=[2**40, 128], **{W1 + "__lengths": [2**40, 64]}), "HAP751", "manifest"),
    "beyond": (lambda at: rewritten(at / "manifest.json", **{W1 + "__offsets": [1, 0]}), "HAP751", "manifest.json"),
    "negative": (lambda at: rewritten(at / "manifest.json", **{W1 + "__offsets": [-1, 0]}), "HAP751", "manifest.json"),
    "a gap": (lambda at: rewritten(at / "manifest.json", **{W1[:-3]: []}), "HAP751", "w1"),
    "another rank's": (lambda at: rewritten(at / "manifest.json", tensors__b1__copies__0__value="w2@S(0)"), "HAP751", "rank-"),
}  # fmt: skip


@pytest.mark.parametrize("how", SPOILT)
def test_what_is_damaged_is_named_and_not_used(copy, how):
    """Read as a whole model; what a rank does is the same and is tried once, below."""
    spoil, code, words = SPOILT[how]
    spoil(copy / "step-00000004")
    with pytest.raises(HapError) as stop:
        found = find(copy / "step-00000004")
        checkpoint_read.fits(found, program_of("mlp_zero").graph)
        dict(checkpoint_read.tensors(found))
    (said,) = stop.value.diagnostics
    assert said.code == code and words in said.message, said
    if code == "HAP751":
        assert "step-00000002" in said.help
        assert not find(copy / "step-00000002").verify()


def test_a_rank_that_finds_damage_ends_the_run(copy):
    flip(copy / "step-00000004" / "rank-3.safetensors")
    with pytest.raises(HapError) as stop:
        train(program_of("mlp_zero"), 4, LAST, "digits", dtype=F64, resume=copy)
    (said,) = stop.value.diagnostics
    assert said.code == "HAP751" and "rank-3.safetensors" in said.message and "step-00000002" in said.help


def test_what_was_not_there_to_begin_with(tmp_path, base):
    for path, words in (
        (tmp_path / "no", "no such folder"),
        (tmp_path, "it holds none"),
        (base / "lock", "it is no folder"),
    ):
        with pytest.raises(HapError, match=words) as stop:
            find(path)
        assert stop.value.diagnostics[0].code == "HAP750"


def test_another_model_is_refused(base):
    for name in ("layer_zero", "rezero"):
        with pytest.raises(HapError) as stop:
            train(program_of(name), 4, LAST, resume=base)
        assert stop.value.diagnostics[0].code == "HAP753"


def test_nothing_is_overwritten(copy):
    program = program_of("mlp_zero")
    for resume, at in ((None, "step 4"), (copy / "step-00000002", "later")):
        with pytest.raises(HapError, match=at) as stop:
            train(program, 4, LAST, "digits", dtype=F64, resume=resume, saving=Saving(copy, 1))
        assert stop.value.diagnostics[0].code == "HAP756"
    with pytest.raises(HapError, match="none is left") as stop:
        train(program, 4, AT, "digits", dtype=F64, resume=copy)
    assert stop.value.diagnostics[0].code == "HAP719"
    assert steps(copy) == [2, 4]
    (copy / ".step-00000005.partial").mkdir()
    train(program, 4, LAST, "digits", dtype=F64, resume=copy, saving=Saving(copy, 1, 2))
    assert sorted(p.name for p in copy.iterdir()) == ["lock", "step-00000006", "step-00000007"]


def test_seed_and_data_are_the_checkpoints(base):
    found = find(base)
    assert settle(found, None, None) == (0, "digits") and settle(found, 0, "random") == (0, "random")
    with pytest.raises(HapError, match="seed 0, not 3") as stop:
        settle(found, 3, None)
    assert stop.value.diagnostics[0].code == "HAP757"
    foreign = dataclasses.replace(found, manifest=dataclasses.replace(found.manifest, data="os:listdir"))
    with pytest.raises(HapError, match="os:listdir"):
        settle(foreign, None, None)


def started_otherwise(reporter, base):
    same_settings(Course(find(base)), 3, 0, "random")
    same_settings(Course(find(base)), 3, dist.get_rank() // 2, "random")


def test_ranks_that_were_started_otherwise(base):
    with pytest.raises(HapError, match="ranks 2 were started") as stop:
        launch(started_otherwise, 3, (base,), method="fork")
    assert {d.code for d in stop.value.diagnostics} == {"HAP762"}


def test_one_run_at_a_time_has_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "PATIENCE_S", 0.1)
    with lock.locked(tmp_path / "c"):
        with pytest.raises(HapError, match=f"process {os.getpid()} on") as stop, lock.locked(tmp_path / "c"):
            pass
    assert stop.value.diagnostics[0].code == "HAP755"
    with lock.locked(tmp_path / "c"):
        pass


def test_from_the_command_line(base, whole, tmp_path, capsys):
    file = str(programs_folder() / "plans" / "mlp_zero.hap")
    at = str(tmp_path / "c")

    def answer(*words):
        torch.set_num_threads(1)
        status = main(["run", *words, "--json"])
        return status, json.loads(capsys.readouterr().out)

    # a run that the API began goes on from the command line, which takes seed and data from it
    status, said = answer(
        file, "--resume", str(base), "--steps", str(LAST), "--dtype", "f64", "--checkpoint", at, "--every", "2"
    )
    assert (status, said["seed"], said["data"], said["first_step"]) == (0, 0, "digits", AT + 1)
    assert said["loss"] == whole.loss[AT:] and said["resumed"] == f"{base}/step-00000004"
    assert said["checkpoint"] == f"{at}/step-00000007" and steps(tmp_path / "c") == [6, 7]
    for words, code in (
        ((file, "--resume", at, "--seed", "4"), "HAP757"),
        ((file, "--resume", at, "--steps", "7"), "HAP719"),
        ((file, "--resume", str(tmp_path / "nothing")), "HAP750"),
        ((file, "--checkpoint", at), "HAP756"),
        ((file, "--checkpoint", f"{at}/lock"), "HAP754"),
        ((file, "--every", "3"), "HAP850"),
        ((file, "--replan"), "HAP850"),
    ):
        status, said = answer(*words)
        assert (status, [d["code"] for d in said["diagnostics"]]) == (2, [code])
