"""Ranks that torchrun starts: one program on all of them, one voice, and the end when one of them is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist

from hapdsl.cli import main
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.resources import programs_folder
from hapdsl.run import guarded, heartbeat, links, profile
from hapdsl.run.checkpoint import steps
from hapdsl.run.train import train
from tests.processes import free_port
from tests.run.networks import Proxy
from tests.run.programs import program_of
from tests.run.ranks import as_torchrun_does
from tests.texts import REPOSITORY


def test_run_under_torchrun_on_two_nodes(tmp_path):
    file = str(programs_folder() / "plans" / "mlp_zero.hap")
    log, said = tmp_path / "log.jsonl", tmp_path / "said"
    arguments = ["run", file, "--data", "digits", "--steps", "3", "--dtype", "f64", "--log", str(log)]
    assert as_torchrun_does(arguments, [(0, 0), (0, 1), (1, 0), (1, 1)], free_port(), said) == [0, 0, 0, 0]
    words = [said.with_suffix(f".{rank}").read_text(encoding="utf-8") for rank in range(4)]
    assert "3 steps on 4 processes" in words[0] and not any(w.strip() for w in words[1:]), words
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    here = train(program_of("mlp_zero"), 4, 3, "digits", dtype=torch.float64)
    assert here is not None and [line["step"] for line in lines] == [1, 2, 3]
    assert [line["loss"] for line in lines] == here.loss


def test_a_torchrun_with_another_number_of_processes(tmp_path):
    file = str(programs_folder() / "plans" / "mlp_zero.hap")
    said = tmp_path / "said"
    statuses = as_torchrun_does(["run", file], [(0, 0), (0, 1), (0, 2)], free_port(), said)
    assert 0 not in statuses and len(set(statuses)) == 1
    words = [said.with_suffix(f".{rank}").read_text(encoding="utf-8") for rank in range(3)]
    assert "HAP718" in words[0] and "3 processes for a program on 4 devices" in words[0]
    assert not any(w.strip() for w in words[1:]), "said once"


def test_ranks_that_never_come(tmp_path):
    """Fewer processes than were said: who is there says so when its patience is at an end."""

    def alone():
        os.environ["WORLD_SIZE"] = "4"
        return main(["run", str(programs_folder() / "plans" / "mlp_zero.hap"), "--timeout", "2"])

    said = tmp_path / "said"
    assert as_torchrun_does(alone, [(0, 0)], free_port(), said) == [1]
    words = said.with_suffix(".0").read_text(encoding="utf-8")
    assert "HAP720" in words and "rank 0 hasn't met the others at 127.0.0.1" in words and "Traceback" not in words, (
        words
    )


def test_under_an_existing_torchrun(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "from tests.run.programs import on_two, program_of\n"
        "from hapdsl.run.train import train\n"
        "program = on_two(program_of('mlp_megatron'), {'batch': [10, 54], 'hidden': [100, 28]})\n"
        "result = train(program, 2, 3, 'random', reference=True, dtype=torch.float64)\n"
        "if result is not None:\n"
        "    print('RESULT', len(result.loss), result.loss_diff < 1e-12, result.param_diff < 1e-9, len(result.final))\n",
        encoding="utf-8",
    )
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)],
        capture_output=True, text=True, timeout=100, check=False, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    lines = [line for line in run.stdout.splitlines() if line.startswith("RESULT")]
    assert lines == ["RESULT 3 True True 9"], run.stderr[-2000:]


@pytest.mark.parametrize("dies", [False, True])
def test_a_profile_under_torchrun(dies, tmp_path, monkeypatch):
    """Its ranks watch one another as those of a run do, and one that is gone is said to be."""

    def measures():
        if dies and os.environ["RANK"] == "1":
            monkeypatch.setattr(profile, "measure", lambda *_: os._exit(3))
        found = profile.Profile()
        try:
            speaks = profile.profile(found, 2, profile.Extent(4096, True, ("relu",)))
        except HapError as stop:
            print(stop)
            return stop.status
        if speaks:
            print("complete" if found.complete else found.done, found.failed)
        return 0

    statuses = as_torchrun_does(measures, [(0, 0), (0, 1)], free_port(), tmp_path / "said")
    said = [(tmp_path / f"said.{rank}").read_text(encoding="utf-8").strip() for rank in range(2)]
    if dies:
        assert statuses == [1, 3] and said[0].startswith("HAP720: rank 0 has lost another one"), said
    else:
        assert statuses == [0, 0] and said == ["complete []", ""], said


FAILS = """
import os, signal, time
import torch
from hapdsl.lang.diagnostics import error
from tests.run.programs import program_of

def batches():
    graph = program_of("mlp_zero").graph
    number = 0
    while True:
        number += 1
        if number == 4 and os.environ["RANK"] in os.environ["WHO"]:
            match os.environ["HOW"]:
                case "raises":
                    raise error("HAP711", "only here")
                case "sleeps":
                    print("asleep", flush=True)
                    time.sleep(60)
                case sent:
                    os.kill(os.getpid(), getattr(signal, sent))
        yield {"x": torch.zeros(64, 64), "label": torch.zeros(64, dtype=torch.int64)}
"""


@pytest.fixture
def fails(tmp_path, monkeypatch):
    """A run whose ranks `who` fail in the fourth step: the command line."""
    (tmp_path / "fails.py").write_text(FAILS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def command(who, how):
        monkeypatch.setenv("WHO", who)
        monkeypatch.setenv("HOW", how)
        return ["run", str(programs_folder() / "plans" / "mlp_zero.hap"), "--data", "fails:batches", "--steps", "50"]

    return command


@pytest.mark.parametrize("who", [0, 2])
@pytest.mark.parametrize("kind", [[], ["--json"]], ids=["words", "json"])
def test_a_rank_that_is_stopped_under_torchrun(who, kind, fails, tmp_path, monkeypatch):
    """Nobody stands above the ranks: the first one says it, of itself the second, and ends; the others see that it is gone, or are told to go."""
    monkeypatch.setattr(heartbeat, "SILENT_S", 6.0)  # a third of it is more than a beat
    agent = dist.TCPStore("127.0.0.1", 0, 4, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    pids, others = [], [rank for rank in range(4) if rank != who]

    def ended(rank):
        try:
            return os.waitid(os.P_PID, pids[rank], os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:  # its status has been read already
            return True

    def torchrun():
        """It ends all ranks with the first one, in the end also one that hears no signal; here behind all others."""
        until, told = time.monotonic() + 100, set()
        while time.monotonic() < until and not (len(pids) == 4 and all(map(ended, others))):
            time.sleep(0.1)
            if len(pids) == 4 and any(map(ended, others)):
                for rank in {rank for rank in others if not ended(rank)} - told:
                    os.kill(pids[rank], signal.SIGTERM)
                    told.add(rank)
        os.kill(pids[who], signal.SIGKILL)

    helper = threading.Thread(target=torchrun)
    helper.start()
    command = [*fails(str(who), "SIGSTOP"), *kind]
    statuses = as_torchrun_does(command, [(0, k) for k in range(4)], agent.port, tmp_path / "said", pids)
    helper.join()
    said = [(tmp_path / f"said.{rank}").read_text() for rank in range(4)]
    assert statuses.pop(who) == -signal.SIGKILL and statuses == [1, 1, 1], said
    words = said.pop(1 if who == 0 else 0)
    assert "HAP760" in words and f"process {who}" in words and "stopped, or cut off" in words, words
    assert not any(w.strip() for w in said), said
    if kind:
        assert codes(words) == ["HAP760"]


def codes(document):
    """The diagnostics of the one JSON document that stands there."""
    found = json.loads(document)
    assert found["ok"] is False
    return [d["code"] for d in found["diagnostics"]]


@pytest.mark.long
@pytest.mark.parametrize(
    ("who", "how", "code"), [("0", "SIGKILL", "HAP720"), ("2", "SIGKILL", "HAP720"), ("2", "raises", "HAP711")]
)
def test_one_document_of_json_whatever_becomes_of_a_rank(who, how, code, fails):
    """torchrun's own stdout, which its ranks share: the rank that fails says why, of one that can't say it the first to find it; torchrun ends the others."""
    command = fails(who, how)
    words = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=4",
        "-m",
        "hapdsl",
        *command,
        "--json",
    ]
    path = {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.getcwd()])}
    ran = subprocess.run(words, capture_output=True, text=True, timeout=110, check=False, env={**os.environ, **path})
    assert ran.returncode == 1 and codes(ran.stdout) == [code], (ran.stdout, ran.stderr)


def test_ranks_that_are_told_to_end_say_so_once(fails, tmp_path):
    """torchrun may be quicker than those that would find a lost rank: here they all compute."""
    pids = []

    def torchrun():
        until = time.monotonic() + 100
        while time.monotonic() < until and not all(
            (tmp_path / f"said.{k}").is_file() and "asleep" in (tmp_path / f"said.{k}").read_text() for k in range(4)
        ):
            time.sleep(0.05)
        for pid in pids:
            os.kill(pid, signal.SIGTERM)

    helper = threading.Thread(target=torchrun)
    helper.start()
    command = [*fails("0123", "sleeps"), "--json"]
    statuses = as_torchrun_does(command, [(0, k) for k in range(4)], free_port(), tmp_path / "said", pids)
    helper.join()
    said = [(tmp_path / f"said.{k}").read_text().replace("asleep\n", "") for k in range(4)]
    (document,) = filter(None, said)
    assert statuses == [1] * 4 and codes(document) == ["HAP720"] and "SIGTERM" in document


@pytest.mark.parametrize("how", ["cut off", "apart"])
def test_a_rank_under_torchrun_that_loses_the_others(how, monkeypatch):
    """Nobody stands above it: it says so itself, whether the store is out of reach or only another rank is."""
    said, environment = [], {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "7"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(heartbeat, "SILENT_S", 6.0)  # a third of it is more than a beat
    monkeypatch.setattr(links, "unanswered_s", lambda connection: 60.0 if how == "apart" and ready.is_set() else 0.0)
    proxy, ready = Proxy(), threading.Event()
    with proxy.listener:
        store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
        proxy.serve(store.port)
        mine = dist.TCPStore("127.0.0.1", proxy.port, is_master=False)
        guard = guarded.Guard(mine, 1, 2, said.append)
        ends = [own for own, _, _ in links.connections()]  # here they are both ranks'
        store.set(f"{heartbeat.prefix()}/ends/0", json.dumps(ends))
        if how == "cut off":
            proxy.cut.set()
        ready.set()
        until = time.monotonic() + 40
        while not said and time.monotonic() < until:
            time.sleep(0.05)
        guard.stop()
    (diagnostic,) = said[0].diagnostics
    rank, words = (
        (1, "it can't reach the others at 127.0.0.1") if how == "cut off" else (0, "process 1 (rank 1) can't reach it")
    )
    assert said[0].rank == rank and diagnostic.code == "HAP760" and words in diagnostic.message
    if how == "apart":
        assert int(store.add(f"{heartbeat.prefix()}/cut", 0)) == 1  # a second one would have kept silent


def test_torchrun_starts_the_ranks_again(tmp_path, monkeypatch):
    """Its agent keeps the store, and with it the addresses of ranks that have ended; the same command line goes on from the newest checkpoint."""
    agent = dist.TCPStore("127.0.0.1", 0, 4, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    file = str(programs_folder() / "plans" / "mlp_zero.hap")
    where, places = str(tmp_path / "c"), [(0, k) for k in range(4)]
    for attempt, last in ((0, "3"), (1, "5")):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(attempt))
        arguments = ["run", file, "--checkpoint", where, "--steps", last, "--json"]
        assert as_torchrun_does(arguments, places, agent.port, tmp_path / "said") == [0, 0, 0, 0]
    found = json.loads((tmp_path / "said.0").read_text())
    assert found["first_step"] == 4 and found["resumed"] == f"{where}/step-00000003" and steps(tmp_path / "c") == [3, 5]
