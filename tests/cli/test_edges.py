"""The command line at its edges: stdin and stdout by `-`, a disk that is full, links that lead nowhere, Ctrl-C wherever it comes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hapdsl import sweep as sweeping
from hapdsl.cli import main
from hapdsl.lang import parse
from hapdsl.lang.print import to_text
from hapdsl.workbench import Workbench

MINE = 'import "std/mlp.hap"\nimport "std/digits.hap"\n'
UGLY = MINE.replace("\n", "\r\n") + "cluster c{device d{compute=1 GFLOP/s,memory=1 GiB,bandwidth=1 GB/s}\r\nnode n=2*d over{bandwidth=1 GB/s,latency=1 us}}"  # fmt: skip


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is written into the list comes from stdin, once."""
    texts: list[str] = []

    class Stream(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return texts.pop().encode() if texts else b""

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Stream()))
    parse._stdin.cache_clear()
    yield texts
    parse._stdin.cache_clear()


def test_a_dash_is_what_is_piped_in(
    piped: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").write_text("not read")
    piped.append(UGLY)
    assert main(["fmt", "-"]) == 0
    said = capsys.readouterr()
    assert said.out == to_text(parse.parse(UGLY)) and said.err == ""
    assert main(["fmt", "--check", "-"]) == 1 and capsys.readouterr().out == "-\n"  # read once, asked for twice
    assert main(["fmt", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == said.out
    assert (tmp_path / "-").read_text() == "not read"


def test_a_diagnostic_shows_its_line_of_what_was_piped_in(piped: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    piped.append("model x {\n    y = rellu(y)\n}\n")
    assert main(["check", "-"]) == 2
    assert "\n2 |     y = rellu(y)\n" in capsys.readouterr().err


def test_a_plan_goes_through_pipes(
    piped: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    piped.append(MINE)
    assert main(["plan", "-", "--set", "hidden=8", "--time-limit", "5", "-o", "-"]) == 0
    said = capsys.readouterr()
    bench = Workbench("plan.hap", said.out)
    assert bench.proven(bench.program()).program.instructions and "a step" in said.err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "plan.hap").write_text(said.out)
    for name in ("-", ""):
        assert main(["draw", "plan.hap", "-o", name]) == 2 and "name a file" in capsys.readouterr().err
        assert main(["checkpoint", "import", "w.safetensors", "plan.hap", "-o", name]) == 2
        assert "name a folder" in capsys.readouterr().err
    for words in (["-"], ["plan.hap", "--cluster", "-"]):
        assert main(["explore", *words]) == 2 and "HAP850" in capsys.readouterr().err


def test_a_link_that_leads_nowhere_is_named_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.hap").symlink_to("gone.hap")
    assert main(["check", str(tmp_path / "plan.hap")]) == 2
    said = capsys.readouterr().err
    assert "is a link to gone.hap, which isn't there" in said and "did you mean" not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_a_full_disk_behind_stdout_is_no_fault_of_ours() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hapdsl", "version"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr == "error HAP852: the output can't be written: No space left on device\n"


def test_ctrl_c_before_anything_is_imported_ends_without_a_word() -> None:
    """While the command line is being imported, SIGINT ends the process as it ends others; what a parent ignores stays ignored."""
    script = (
        "import os, signal, sys, hapdsl.__main__ as start\n"
        "class Late:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'hapdsl.cli':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Late())\n"
        "sys.argv = ['hapdsl', 'version']\n"
        "sys.exit(start.main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
    ignored = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert ignored.returncode == 0 and ignored.stdout.startswith("hapdsl"), ignored.stderr


def test_an_interrupted_sweep_keeps_the_plans_that_are_there(tmp_path: Path) -> None:
    bench = Workbench(tmp_path / "mine.hap", MINE)
    cluster = bench.cluster("digits")
    over = sweeping.read_range("link=1..100GB/s", cluster)
    from hapdsl.search.baselines import baselines

    candidates = baselines(bench.graph("mlp", {"hidden": 8}), cluster)
    programs = [c.program for c in candidates.values() if c is not None][:2]
    made: list[float] = []

    def interrupted(there: object) -> sweeping.Program:
        made.append(0.0)
        if len(made) > len(programs):
            raise KeyboardInterrupt
        return programs[len(made) - 1]

    found = sweeping.sweep(cluster, over, 5, [], interrupted)
    assert not found.complete and found.programs and np.isfinite(found.seconds).all()
    assert set(map(id, found.programs)) <= set(map(id, programs))
    with pytest.raises(KeyboardInterrupt):  # nothing is there to be compared
        sweeping.sweep(cluster, over, 5, [], interrupted)
    alone = sweeping.sweep(cluster, over, 5, programs[:1], interrupted)
    assert not alone.complete and alone.programs == programs[:1]
    assert sweeping.sweep(cluster, over, 5, programs).complete and os.listdir(tmp_path) == []
