"""The launcher: who fails is named, the others end in time, and nothing is left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from multiprocessing import connection
from multiprocessing.util import Finalize
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from hapdsl.lang.diagnostics import HapError, error
from hapdsl.run import process
from hapdsl.run.heartbeat import Lost
from hapdsl.run.launch import launch
from tests.run.ranks import Pids


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
    assert ("--resume" in found.help) == (how in ("kill", "exit"))  # it may be the device's fault
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


def test_a_rank_that_dies_before_it_has_met_the_others_is_named(monkeypatch):
    """Its pipe is broken when the parent wants to tell it the port: made certain by waiting for its end."""
    child, store = process.run, dist.TCPStore

    def dying(pipe, setting, work, arguments):
        if setting.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        child(pipe, setting, work, arguments)

    def later(*arguments, **named):
        if named["is_master"] and len(ranks := multiprocessing.active_children()) == 3:
            connection.wait([rank.sentinel for rank in ranks])
        return store(*arguments, **named)

    monkeypatch.setattr(process, "run", dying)
    monkeypatch.setattr(dist, "TCPStore", later)
    with pytest.raises(HapError, match=r"process 1 \(slow\) failed: it was ended by signal 9 \(SIGKILL\)") as stop:
        launch(add_up, 3, receive=Pids(), names=["fast", "slow", "slower"], method="fork")
    assert stop.value.diagnostics[0].code == "HAP720"


class Threaded:
    """In a cycle, like what a traceback holds; to destroy it in a forked child is a crash, as for a store of torch's."""

    def __init__(self):
        self.own, self.pid = self, os.getpid()

    def __del__(self):
        if os.getpid() != self.pid:
            os.kill(os.getpid(), signal.SIGKILL)


def test_ranks_let_go_of_nothing_that_they_inherit():
    def work(reporter):
        gc.collect()
        reporter.send("collected", enabled=gc.isenabled())

    Threaded()
    seen = Pids()
    launch(work, 2, receive=seen, method="fork")
    assert [h["enabled"] for _, h, _ in seen.values] == [True, True] and gc.isenabled()
    gc.collect()  # here it goes in peace; other tests fork this process, too


@pytest.mark.parametrize("fails", [False, True])
def test_a_rank_that_has_said_how_it_went_ends_by_itself(tmp_path, fails):
    """What it has yet to write (a profile, a user's log) is written; nobody ends it meanwhile."""

    def late():
        time.sleep(0.1)
        (tmp_path / str(os.getpid())).touch()

    def work(reporter):
        Finalize(None, late, exitpriority=0)
        reporter.send("pid", pid=os.getpid())
        if fails:
            raise error("HAP702", "no such device")

    seen = Pids()
    with pytest.raises(HapError) if fails else nullcontext():
        launch(work, 1, receive=seen, method="fork")
    assert [p.name for p in tmp_path.iterdir()] == [str(seen.pids[0])]


def test_a_failed_launch_keeps_no_store():
    """Else the next launch forks beside its thread."""
    kept = []
    store = dist.TCPStore

    class Seen(store):
        def __del__(self):
            kept.remove(id(self))

        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            if named["is_master"]:
                kept.append(id(self))

    with pytest.MonkeyPatch.context() as patch, pytest.raises(HapError, match="disk is full") as stop:
        patch.setattr(dist, "TCPStore", Seen)
        launch(dies, 2, (1, "raise"), Pids(), method="fork")
    assert stop.value.__traceback__ is not None and not kept


def test_a_receiver_that_fails_ends_the_ranks():
    seen = Pids()

    def receive(rank, header, tensor):
        seen(rank, header, tensor)
        if len(seen.pids) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(dies, 2, (5, "never"), receive, method="fork")
    assert seen.gone()


def test_ranks_end_when_their_parent_is_killed():
    ours, theirs = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            launch(
                forever,
                2,
                (),
                lambda rank, header, tensor: os.write(theirs, f"{header['pid']}\n".encode()),
                method="fork",
            )
        finally:
            os._exit(0)
    os.close(theirs)
    try:
        with os.fdopen(ours) as said:
            pids = {int(said.readline()) for _ in range(8)}
            os.kill(parent, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1]) == -signal.SIGKILL
        until = time.monotonic() + 8
        while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < until:
            time.sleep(0.1)
        assert len(pids) == 2 and not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    finally:
        with suppress(ProcessLookupError):
            os.kill(parent, signal.SIGKILL)


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
        a, b = pool.map(one, [1, 2])
    assert [t.tolist() for t in a] == [[0.0] * 3]
    assert [t.tolist() for t in b] == [[1.0] * 3] * 2


def dies_beside_a_helper(reporter):
    """Its helper holds what the rank had open, as processes do that load data: pipe, connections and all."""
    if dist.get_rank() == 1:
        helper = os.fork()
        if helper == 0:
            time.sleep(20)
            os._exit(0)
        reporter.send("helper", pid=helper)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def test_a_rank_that_is_killed_is_missed_though_its_helper_lives():
    start, seen = time.monotonic(), Pids()
    with pytest.raises(Lost) as stop:
        launch(dies_beside_a_helper, 3, receive=seen, names=["fast", "slow", "slower"], method="fork")
    ((_, header, _),) = seen.values
    os.kill(header["pid"], signal.SIGKILL)
    (found,) = stop.value.diagnostics
    assert stop.value.rank == 1 and found.code == "HAP720"
    assert "process 1 (slow) failed: it was ended by signal 9 (SIGKILL)" in found.message
    assert time.monotonic() - start < 8


def listened_at():
    """(address, port) of the sockets at which this process listens, as the kernel writes them down."""
    own, found = set(), set()
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the folder's own
            own.add(os.readlink(f"/proc/self/fd/{entry}"))
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *rest = row.split()
            if state == "0A" and f"socket:[{rest[5]}]" in own:
                found.add(tuple(local.split(":")))
    return found


def listens(reporter, before):
    dist.all_reduce(torch.ones(3))
    reporter.send("listens", at=sorted(listened_at() - before))


def test_ranks_and_their_parent_listen_on_this_machine_only():
    """Who can write to the store can say to whom the ranks connect."""
    before, heard = listened_at(), set()

    def receive(rank, header, tensor):
        heard.update(map(tuple, header["at"]), listened_at() - before)

    launch(listens, 2, (before,), receive, method="fork")
    assert len(heard) >= 3 and {address for address, _ in heard} == {"0100007F"}  # 127.0.0.1


def test_more_processes_than_the_system_has_room_for():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    seen = Pids()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 10, hard))
        with pytest.raises(HapError, match=r"process \d+ of 40 can't be started: Too many open files") as stop:
            launch(add_up, 40, receive=seen, method="fork")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert stop.value.diagnostics[0].code == "HAP720" and not multiprocessing.active_children()
