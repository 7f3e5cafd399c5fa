"""A device is lost while the run goes on: what is left is planned for anew, and the loss is that of a run resumed by hand."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest
import torch

from hapdsl.cli import main
from hapdsl.lang.diagnostics import Diagnostic, HapError
from hapdsl.lang.resources import programs_folder
from hapdsl.run import replan
from hapdsl.run.checkpoint_write import Saving
from hapdsl.run.heartbeat import Lost
from hapdsl.run.initial import initial
from hapdsl.run.replan import Survivor, train_on
from hapdsl.run.train import train
from hapdsl.workbench import Workbench

MODEL = f'import "{programs_folder() / "models" / "mlp.hap"}"\n'
DEVICES = """
    device fast { compute = 8 GFLOP/s, memory = 1 GiB, bandwidth = 8 GB/s, launch = 10 us }
    device slow { compute = 4 GFLOP/s, memory = 1 GiB, bandwidth = 4 GB/s, launch = 10 us }
"""
DATA_PARALLEL = """
program p for mlp(batch = 64, d = 64, hidden = 32) on some {{
    shares batch = {shares}
    forward {{
        x@S(0), label@S(0) = input()
        w1@R, b1@R, w2@R = param()
        u@S(0) = matmul(x@S(0), w1@R)
        a@S(0) = add(u@S(0), b1@R)
        h@S(0) = relu(a@S(0))
        z@S(0) = matmul(h@S(0), w2@R)
        loss@P = cross_entropy(z@S(0), label@S(0))
    }}
    backward {{
        loss.grad@R = seed()
        z.grad@S(0) = cross_entropy_grad(z@S(0), label@S(0), loss.grad@R)
        h.grad@S(0) = matmul_nt(z.grad@S(0), w2@R)
        w2.grad@P = matmul_tn(h@S(0), z.grad@S(0))
        a.grad@S(0) = relu_grad(h@S(0), h.grad@S(0))
        b1.grad@P = sum(a.grad@S(0), 0)
        w1.grad@P = matmul_tn(x@S(0), a.grad@S(0))
        w1.grad@R, b1.grad@R, w2.grad@R = all_reduce(w1.grad@P, b1.grad@P, w2.grad@P)
    }}
    update {{
        w1.m@R, w1.v@R, b1.m@R, b1.v@R, w2.m@R, w2.v@R = state()
        w1.new@R, w1.m.new@R, w1.v.new@R = adam(w1@R, w1.grad@R, w1.m@R, w1.v@R)
        b1.new@R, b1.m.new@R, b1.v.new@R = adam(b1@R, b1.grad@R, b1.m@R, b1.v@R)
        w2.new@R, w2.m.new@R, w2.v.new@R = adam(w2@R, w2.grad@R, w2.m@R, w2.v@R)
    }}
}}
"""


def text(nodes, shares):
    return MODEL + f"cluster some {{{DEVICES}{nodes}\n}}\n" + DATA_PARALLEL.format(shares=shares)


TRIO = "    node host = 1 * fast, 2 * slow over { bandwidth = 0.9 GB/s, latency = 100 us }"


def kill(which):
    """End one of the ranks' processes, which are numbered in the order of their ids' making."""
    ranks = sorted((c for c in multiprocessing.active_children()), key=lambda c: int(c.name.rpartition("-")[2]))
    os.kill(ranks[which].pid, signal.SIGKILL)


def test_one_of_three_is_killed_and_two_go_on(tmp_path, capsys, monkeypatch):
    """From the command line, end to end, in the middle of a run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trio.hap").write_text(text(TRIO, "[32, 16, 16]"))
    killed = []

    def killer():
        until = time.monotonic() + 60
        while not (tmp_path / "c" / "step-00000012").exists() and time.monotonic() < until:
            time.sleep(0.01)
        kill(1)
        killed.append(True)

    thread = threading.Thread(target=killer)
    thread.start()
    torch.set_num_threads(1)
    more = ["--steps", "40", "--data", "digits", "--json"]
    status = main(["run", "trio.hap", "--checkpoint", "c", "--every", "4", "--keep", "99", "--replan", *more])
    thread.join()
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert status == 0 and killed, printed
    (done,) = found["replans"]
    assert done["lost"] == "host.slow.0" and done["devices"] == found["nproc"] == 2 and "SIGKILL" in done["why"]
    assert done["program"] == "c/replanned-1.hap" and done["resumed"] >= "c/step-00000012"
    assert "process 1 (host.slow.0)" in printed.err and "replanned for the 2 devices" in printed.err
    assert main(["check", done["program"]]) == 0
    capsys.readouterr()
    assert main(["run", done["program"], "--resume", done["resumed"], *more]) == 0
    by_hand = json.loads(capsys.readouterr().out)
    assert by_hand["loss"] == found["loss"] and by_hand["first_step"] == found["first_step"] < 40


def test_until_none_is_left(tmp_path):
    two = "    node host = 1 * fast, 1 * slow over { bandwidth = 0.9 GB/s, latency = 100 us }"
    bench = Workbench(tmp_path / "two.hap", text(two, "[40, 24]"))
    run = Survivor(bench, bench.program(), bench.proven(bench.program()).program)
    with pytest.raises(HapError) as stop:
        train_on(
            run, None, Saving(tmp_path / "c", 2), steps=30, progress=lambda step, loss: kill(0) if step == 3 else None
        )
    assert [d.code for d in stop.value.diagnostics] == ["HAP720", "HAP761"] and stop.value.status == 1
    assert [(r.lost, r.devices) for r in run.replans] == [("host.fast.0", 1)]
    assert run.program.layout.devices == 1 and run.tree.name == "mlp_on_1"
    clusterless = Workbench(tmp_path / "two.hap", text(two, "[40, 24]").replace(" on some {", " {"))
    alone = Survivor(clusterless, clusterless.program(), run.program)
    with pytest.raises(HapError) as stop:
        train_on(alone, None, Saving(tmp_path / "d", 2), steps=30)
    assert [d.code for d in stop.value.diagnostics] == ["HAP761"]


def test_what_is_remarkable_about_the_data_is_said_once(tmp_path, monkeypatch):
    """The data is the same after a loss."""
    bench = Workbench(tmp_path / "trio.hap", text(TRIO, "[32, 16, 16]"))
    run = Survivor(bench, bench.program(), bench.proven(bench.program()).program)
    heard = []

    def lossy(*_, noted, **__):
        if noted is not None:
            noted("few samples")
        if len(run.replans) < 2:
            raise Lost(0, Diagnostic("HAP720", "gone"))

    monkeypatch.setattr(replan, "train", lossy)
    monkeypatch.setattr(replan, "_smaller", lambda *_: "replanned")
    assert train_on(run, None, Saving(tmp_path / "c", 2), noted=heard.append) is None
    assert heard == ["few samples"] and run.replans == ["replanned"] * 2


def test_what_a_text_can_t_say_goes_along(tmp_path, monkeypatch):
    """Tables lie beside the file that the model stands in: the run begins anew with them, and so does whoever runs the new program by hand."""
    model = tmp_path / "mlp.hap"
    model.write_text((programs_folder() / "models" / "mlp.hap").read_text().replace("init zeros", "init table"))
    np.savez(f"{model}.npz", b1=np.arange(32))
    folder = tmp_path / "plans"
    bench = Workbench(folder / "trio.hap", text(TRIO, "[32, 16, 16]").replace(MODEL, f'import "{model}"\n'))
    run = Survivor(bench, bench.program(), bench.proven(bench.program()).program)
    lost = [Lost(1, Diagnostic("HAP720", "gone")), Lost(0, Diagnostic("HAP720", "gone"))]

    def lossy(*arguments, **wishes):
        if lost:
            (tmp_path / "c").mkdir(exist_ok=True)  # as whoever keeps checkpoints there does
            raise lost.pop()
        return train(*arguments, **wishes)

    monkeypatch.setattr(replan, "train", lossy)
    found = train_on(run, None, Saving(tmp_path / "c", 2), steps=2)
    assert found is not None and len(found.loss) == 2 and len(run.replans) == 2
    for done in run.replans:
        written = Workbench(done.program)
        graph = written.graph("mlp", written.settings(written.program()))
        assert initial(graph)["b1"].tolist() == list(range(32))


def test_other_failures_are_not_answered_with_a_plan(tmp_path):
    bench = Workbench(tmp_path / "trio.hap", text(TRIO, "[32, 16, 16]"))
    run = Survivor(bench, bench.program(), bench.proven(bench.program()).program)
    with pytest.raises(HapError) as stop:
        train_on(run, None, Saving(tmp_path / "c", 2), steps=3, data="nothing")
    assert stop.value.diagnostics[0].code == "HAP710" and not isinstance(stop.value, Lost) and not run.replans
