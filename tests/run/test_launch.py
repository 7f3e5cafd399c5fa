"""The launcher: who fails is named, the others end in time, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from hapdsl.lang.diagnostics import HapError, error
from hapdsl.run.launch import launch

ROOT = Path(__file__).parents[2]


class Pids:
    """Collects the ranks' process ids, and whatever else they report."""

    def __init__(self):
        self.pids, self.values = {}, []

    def __call__(self, rank, header, tensor):
        if header["kind"] == "pid":
            self.pids[rank] = header["pid"]
        else:
            self.values.append((rank, header, tensor))

    def gone(self):
        return all(not os.path.exists(f"/proc/{pid}") for pid in self.pids.values())


def add_up(reporter):
    reporter.send("pid", pid=os.getpid())
    x = torch.full((3,), float(dist.get_rank()))
    dist.all_reduce(x)
    reporter.send("sum", x, threads=torch.get_num_threads(), world=os.environ["WORLD_SIZE"])


def test_ranks_meet_and_report():
    seen = Pids()
    launch(add_up, 3, receive=seen)
    assert sorted(r for r, _, _ in seen.values) == [0, 1, 2]
    assert all(torch.equal(t, torch.full((3,), 3.0)) for _, _, t in seen.values)
    assert {(h["threads"], h["world"]) for _, h, _ in seen.values} == {(1, "3")}
    assert seen.gone()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_tensors_arrive_as_they_were_sent(dtype):
    def work(reporter):
        reporter.send("tensor", (torch.arange(6).reshape(2, 3) > 2).to(dtype))
        reporter.send("tensor", torch.zeros(0, 4, dtype=dtype))
        reporter.send("tensor", torch.ones((), dtype=dtype))

    seen = Pids()
    launch(work, 1, receive=seen, method="fork")
    first, empty, scalar = (t for _, _, t in seen.values)
    assert torch.equal(first, (torch.arange(6).reshape(2, 3) > 2).to(dtype))
    assert empty.shape == (0, 4) and empty.dtype == dtype
    assert scalar.shape == () and scalar == 1


def dies(reporter, rank, how):
    reporter.send("pid", pid=os.getpid())
    dist.barrier()
    for step in range(10_000):
        if step == 5 and dist.get_rank() == rank:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif how == "exit":
                os._exit(3)
            elif how == "raise":
                raise ValueError("the disk is full")
            elif how == "coded":
                raise error("HAP702", "label 12 is none of the 10 classes", help="labels run from 0 to 9")
        dist.all_reduce(torch.ones(10))
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("kill", "HAP720", ["process 2 (slow)", "SIGKILL"]),
        ("exit", "HAP720", ["process 2 (slow)", "status 3"]),
        ("raise", "HAP720", ["process 2 (slow)", "ValueError: the disk is full"]),
        ("coded", "HAP702", ["slow", "label 12 is none of the 10 classes"]),
    ],
)
def test_a_rank_that_fails_is_named_and_ends_the_others(how, code, words):
    seen = Pids()
    start = time.monotonic()
    with pytest.raises(HapError) as stop:
        launch(dies, 4, (2, how), seen, names=["fast", "middle", "slow", "slow too"], method="fork")
    assert time.monotonic() - start < 8
    (found,) = stop.value.diagnostics
    assert found.code == code and all(w in found.message for w in words), found
    assert len(seen.pids) == 4 and seen.gone()


def sleeps(reporter):
    reporter.send("pid", pid=os.getpid())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if dist.get_rank() == 1:
        raise ValueError("over")
    time.sleep(600)


def test_ranks_that_will_not_end_are_ended():
    seen = Pids()
    start = time.monotonic()
    with pytest.raises(HapError, match="over"):
        launch(sleeps, 2, receive=seen, method="fork")
    assert time.monotonic() - start < 10 and seen.gone()


def test_a_receiver_that_fails_ends_the_ranks():
    seen = Pids()

    def receive(rank, header, tensor):
        seen(rank, header, tensor)
        if len(seen.pids) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(dies, 2, (5, "never"), receive, method="fork")
    assert seen.gone()


def test_ranks_end_when_their_parent_is_killed(tmp_path):
    program = tmp_path / "parent.py"
    program.write_text(
        "from hapdsl.run.launch import launch\n"
        "from tests.run.test_launch import forever\n"
        "launch(forever, 2, (), lambda rank, header, tensor: print(header['pid'], flush=True))\n",
        encoding="utf-8",
    )
    parent = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    try:
        assert parent.stdout is not None
        pids = {int(parent.stdout.readline()) for _ in range(8)}
        parent.kill()
        parent.wait()
        until = time.monotonic() + 8
        while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < until:
            time.sleep(0.1)
        assert len(pids) == 2 and not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    finally:
        parent.kill()
        parent.stdout.close()


def forever(reporter):
    while True:
        reporter.send("pid", pid=os.getpid())
        dist.all_reduce(torch.ones(10))
        time.sleep(0.05)


def test_two_launches_at_once_do_not_meet():
    """From two threads, so they are spawned; each has a store of its own."""

    def one(processes):
        seen = Pids()
        launch(add_up, processes, receive=seen)
        return [t for _, _, t in seen.values]

    with ThreadPoolExecutor(2) as pool:
        a, b = pool.map(one, [2, 3])
    assert all(torch.equal(t, torch.full((3,), 1.0)) for t in a) and len(a) == 2
    assert all(torch.equal(t, torch.full((3,), 3.0)) for t in b) and len(b) == 3
