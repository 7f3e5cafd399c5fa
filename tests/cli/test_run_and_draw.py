"""`hapdsl run` and `draw` from outside, and the small verbs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hapdsl import __version__, workbench
from hapdsl.run.checkpoint import steps
from tests.cli.conftest import Run
from tests.texts import PROGRAM, REPOSITORY, TINY_MODEL


def outside(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: run forks, and that wants a parent without threads."""
    command = [sys.executable, "-m", "hapdsl.cli", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=REPOSITORY, env={**os.environ, **environment}, timeout=100
    )


def test_run_beside_one_process(tiny: Path) -> None:
    ran = outside("run", tiny, "--nproc", 2, "--steps", 4, "--reference", "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert set(found) >= {"steps", "step_s", "predicted_s", "loss", "loss_diff", "param_diff"}
    assert found["steps"] == len(found["loss"]) == 4
    assert found["loss"][-1] < found["loss"][0]
    assert found["loss_diff"] < 1e-5
    assert found["param_diff"] < 1e-5
    assert 0 < found["predicted_s"] < found["step_s"]


def test_run_refuses_before_it_starts(hapdsl: Run, tiny: Path) -> None:
    found = hapdsl("run", tiny, "--nproc", 3, "--json")
    assert (found.status, found.codes) == (2, ["HAP718"])
    assert hapdsl("run", tiny, "--data", "nothing", "--json").codes == ["HAP710"]
    assert hapdsl("run", tiny, "--program", "other", "--json").codes == ["HAP582"]


@pytest.mark.parametrize("suffix", [".dot", ".svg", ".png", ".json"])
def test_draw_a_program(suffix: str, hapdsl: Run, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / f"out{suffix}"
    found = hapdsl("draw", tiny, "-o", out, "--json")
    assert (found.status, found.object["files"]) == (0, [str(out)])
    head = {".dot": b"digraph", ".svg": b"<?xml", ".png": b"\x89PNG", ".json": b"{"}[suffix]
    assert head in out.read_bytes()[:400]


def test_draw_a_model(hapdsl: Run, tiny: Path, model: Path, tmp_path: Path) -> None:
    assert hapdsl("draw", model, "-o", tmp_path / "m.dot").status == 0
    assert hapdsl("draw", tiny, "--model", "tiny", "-o", tmp_path / "n.dot").status == 0
    assert (tmp_path / "m.dot").read_text() == (tmp_path / "n.dot").read_text()
    # prices are a program's, so one is asked for
    assert hapdsl("draw", model, "--on", "pair", "-o", tmp_path / "p.dot", "--json").codes == ["HAP580"]


def test_draw_what_can_t_be(hapdsl: Run, tiny: Path, tmp_path: Path) -> None:
    found = hapdsl("draw", tiny, "-o", tmp_path / "out.bmp", "--json")
    assert (found.status, found.codes) == (2, ["HAP811"])


def test_draw_without_dot(tiny: Path, tmp_path: Path) -> None:
    """An empty PATH: a word of advice, and still a .dot."""
    ran = outside("draw", tiny, "-o", tmp_path / "out.svg", PATH="")
    assert ran.returncode == 0
    assert ran.stdout.strip() == str(tmp_path / "out.dot")
    assert "HAP810" in ran.stderr
    assert (tmp_path / "out.dot").is_file()


def test_version(hapdsl: Run) -> None:
    assert hapdsl("version", "--json").object["version"] == __version__
    assert hapdsl("version").out.startswith(f"hapdsl {__version__}")
    assert hapdsl("--version").out == f"hapdsl {__version__}\n"


def test_explain(hapdsl: Run) -> None:
    spoken = hapdsl("explain", "hap505")
    assert spoken.status == 0
    assert spoken.out.startswith("HAP505: ")
    found = hapdsl("explain", "HAP505", "--json").object
    assert found["code"] == "HAP505"
    assert found["text"]
    listed = hapdsl("explain", "--json").object["codes"]
    assert {"HAP101", "HAP505", "HAP850"} <= set(listed)
    assert hapdsl("explain", "HAP999").status == 2


def test_a_reader_that_has_enough(tiny: Path) -> None:
    """`hapdsl explain | head -1`: no complaint when the pipe closes."""
    first, second = os.pipe()
    os.close(first)
    command = [sys.executable, "-m", "hapdsl.cli", "explain"]
    ran = subprocess.run(command, stdout=second, stderr=subprocess.PIPE, cwd=REPOSITORY, timeout=60)
    os.close(second)
    assert ran.stderr == b""
    assert ran.returncode == 141


def test_an_error_inside_is_no_traceback(hapdsl: Run, monkeypatch: pytest.MonkeyPatch, tiny: Path) -> None:
    def broken(*arguments: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(workbench.Workbench, "checked", broken)
    found = hapdsl("check", tiny, "--json")
    assert (found.status, found.codes) == (70, ["HAP899"])
    assert "report" in found.object["diagnostics"][0]["help"]


def test_draw_a_timeline(hapdsl: Run, tiny: Path, tmp_path: Path) -> None:
    chart = tmp_path / "t.svg"
    assert hapdsl("draw", tiny, "--timeline", "sync", "-o", chart).status == 0
    assert "stage by stage" in chart.read_text() and "idle for" in chart.read_text()
    assert hapdsl("draw", tiny, "-o", tmp_path / "t.json", "--timeline").status == 0
    assert '"sync_s"' in (tmp_path / "t.json").read_text()
    for arguments, code in (
        (("--timeline", "overlap", "-o", tmp_path / "t.png"), "HAP814"),
        (("--timeline", "overlap", "--model", "tiny", "-o", tmp_path / "t.svg"), "HAP850"),
        (("--timeline", "never", "-o", tmp_path / "t.svg"), "HAP850"),
        (("--model", "tiny", "--cluster", "box", "-o", tmp_path / "t.svg"), "HAP850"),
        (("--cluster", "box", "--set", "n=2", "-o", tmp_path / "t.svg"), "HAP850"),
        (("--model", "tiny", "--on", "box", "-o", tmp_path / "t.svg"), "HAP850"),
    ):
        found = hapdsl("draw", tiny, *arguments, "--json")
        assert (found.status, found.codes) == (2, [code])


STILL = """model still(d = 4) {
    param w : f32[d] init ones
    total = sum(w, dims = [0])
    metric total
    output total
}
program p for still {
    shares d = [3, 1]
    forward {
        w@S(0)  = param()
        total@P = sum(w@S(0))
    }
}
"""


def test_what_is_said_of_an_evaluation(tmp_path: Path) -> None:
    """The mean loss over its batches, and no prediction where there is no cluster; of a model that takes no batch only its metric."""
    path = tmp_path / "m.hap"
    path.write_text(TINY_MODEL + PROGRAM.split("    backward {")[0].replace(" on pair", "") + "}\n")
    said, told = outside("run", path, "--steps", 3), outside("run", path, "--steps", 3, "--json")
    found = json.loads(told.stdout)
    assert said.returncode == told.returncode == 0, said.stderr + told.stderr
    assert f"  loss {sum(found['loss']) / 3:.5g}, the mean of 3 batches\n" in said.stdout
    assert "samples/s" in said.stdout and found["predicted_s"] is None and "predicted" not in said.stdout
    path.write_text(STILL)
    said = outside("run", path, "--steps", 2)
    first, *more = said.stdout.splitlines()
    assert said.returncode == 0 and first.startswith("p: 2 steps on 2 processes, ") and more == ["  total 4"]


def test_a_model_that_was_changed_is_remarked_on(tiny: Path, tmp_path: Path) -> None:
    """Its parameters are alike, so that a run goes on; of one that wasn't changed nothing is said."""
    at = tmp_path / "c"
    assert outside("run", tiny, "--steps", 1, "--checkpoint", at).returncode == 0
    same = outside("run", tiny, "--steps", 2, "--resume", at)
    tiny.write_text(tiny.read_text().replace("sgd(lr = 0.1)", "sgd(lr = 0.2)"))
    other = outside("run", tiny, "--steps", 2, "--resume", at)
    assert same.returncode == other.returncode == 0 and "note" not in same.stderr
    note = f"note: model 'tiny' isn't what it was when {at}/step-00000001 was written; its parameters and state are alike\n"
    assert note in other.stderr


def test_a_run_that_is_interrupted_says_from_where_it_can_go_on(tiny: Path, tmp_path: Path) -> None:
    at = tmp_path / "c"
    command = [sys.executable, "-m", "hapdsl.cli", "run", tiny, "--steps", 500, "--checkpoint", at, "--every", 1, "--log", "-"]  # fmt: skip
    process = subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["step"] == 10  # all but this one are saved
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130 and "Traceback" not in said
    newest = max(steps(at))
    assert f"the newest checkpoint is {at}/step-{newest:08d}; `--resume {at}` goes on from it" in said
    again = outside("run", tiny, "--steps", newest + 1, "--resume", at, "--json")
    assert (again.returncode, json.loads(again.stdout)["first_step"]) == (0, newest + 1), again.stderr


def test_a_loss_that_is_no_number_is_remarked_on(tiny: Path, tmp_path: Path) -> None:
    """Data that begin to be wrong in the second batch."""
    x = np.ones((32, 6), dtype=np.float32)
    x[16:] = np.nan
    np.savez(tmp_path / "data.npz", x=x, label=np.zeros(32, dtype=np.int64))
    ran = outside("run", tiny, "--data", tmp_path / "data.npz", "--steps", 2)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("the loss is no number from step") == 1
