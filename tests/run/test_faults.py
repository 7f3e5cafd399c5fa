"""What real clusters do: a rank is stopped, killed or cut off, a disk is full. Each ends the run in time, and the message names the rank."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import socket
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from hapdsl import __version__
from hapdsl.lang.diagnostics import HapError
from hapdsl.run import distributed, heartbeat, launch, links
from hapdsl.run.checkpoint import find, steps
from hapdsl.run.checkpoint_write import Saving
from hapdsl.run.train import train
from tests.run.networks import may_make_networks, networks, proxied, told
from tests.run.programs import program_of
from tests.run.ranks import Pids

F64 = torch.float64
QUICK_S = 4.0  # how long a rank may be silent here; a tenth of a second is what the ranks need


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(heartbeat, "SILENT_S", QUICK_S)


def works(reporter, rank, signals):
    """Collectives for ever; after some of them a rank signals itself."""
    reporter.send("pid", pid=os.getpid())
    for step in range(100_000):
        if step == 5 and dist.get_rank() == rank:
            os.kill(os.getpid(), signals)
        dist.all_reduce(torch.ones(10))
        reporter.send("step", step=step)
        time.sleep(0.05)


def lost_in(call):
    """What the run ended with, and after how many seconds."""
    start = time.monotonic()
    with pytest.raises(heartbeat.Lost) as stop:
        call()
    return stop.value, time.monotonic() - start


def test_a_rank_that_is_stopped():
    seen = Pids()
    found, seconds = lost_in(
        lambda: launch.launch(works, 3, (1, signal.SIGSTOP), seen, names=["a", "b", "c"], method="fork")
    )
    (said,) = found.diagnostics
    assert found.rank == 1 and found.status == 1 and said.code == "HAP760"
    assert "process 1 (b) is lost" in said.message and "stopped (by SIGSTOP" in said.message
    assert "--resume" in said.help and "--replan" in said.help
    assert QUICK_S <= seconds < QUICK_S + 10 and seen.gone()


def hangs(reporter):
    for step in range(10):
        if step == 5 and dist.get_rank() == 1:
            time.sleep(600)
        dist.all_reduce(torch.ones(10))


def test_a_rank_that_hangs():
    """It answers, but takes no part: who waits says so, and the one that isn't heard of is named."""
    found, seconds = lost_in(lambda: launch.launch(hangs, 3, names=["a", "b", "c"], timeout_s=1.5, method="fork"))
    (said,) = found.diagnostics
    assert found.rank == 1 and said.code == "HAP763" and "process 1 (b) took no part" in said.message
    assert seconds < 15


def test_a_job_that_is_stopped_and_continued_as_a_whole_goes_on():
    """As Ctrl-Z and fg do: whoever watches was stopped too, so nobody is blamed."""
    store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    pulse = heartbeat.Pulse(store, 2, QUICK_S)
    store.add(heartbeat.key(0), 1)
    store.add(heartbeat.key(1), 1)
    assert pulse.silent() is None
    pulse._looked -= 60  # nobody has looked for a minute
    pulse._seen = {rank: (beats, since - 60) for rank, (beats, since) in pulse._seen.items()}
    assert pulse.silent() is None
    pulse._seen[1] = (pulse._seen[1][0], pulse._seen[1][1] - 60)  # but now only one is silent
    assert pulse.silent() == 1
    pulse.close()


def test_ranks_whose_parent_dies_before_they_have_met(tmp_path, monkeypatch):
    """They wait for a port that nobody will tell; each pipe's other end is held by the ranks that were forked after it, too."""
    pids = tmp_path / "pids"

    def dies(*arguments, is_master, **named):
        own = os.getpid()
        pids.write_text(Path(f"/proc/{own}/task/{own}/children").read_text())
        os.kill(own, signal.SIGKILL)

    parent = os.fork()
    if parent == 0:
        monkeypatch.setattr(dist, "TCPStore", dies)
        try:
            launch.launch(works, 3, (-1, 0), method="fork")
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1]) == -signal.SIGKILL
    ranks, until = pids.read_text().split(), time.monotonic() + 8
    while (left := [pid for pid in ranks if os.path.exists(f"/proc/{pid}")]) and time.monotonic() < until:
        time.sleep(0.1)
    assert len(ranks) == 3 and not left


@pytest.mark.parametrize("how", ["proxy", "namespaces"] if may_make_networks() else ["proxy"])
def test_a_rank_that_is_cut_off(how, monkeypatch):
    with networks(3) if how == "namespaces" else proxied(monkeypatch) as (place, cut, _):

        def receive(rank, header, tensor):
            if (rank, header["kind"], header.get("step")) == (0, "step", 5):
                cut()

        found, seconds = lost_in(lambda: launch.launch(works, 3, (-1, 0), receive, method="fork", **place))
    (said,) = found.diagnostics
    assert found.rank == 2 and said.code == "HAP760" and "cut off from the network" in said.message
    assert seconds < QUICK_S + 10


@pytest.mark.parametrize("how", ["told", "namespaces"] if may_make_networks() else ["told"])
def test_two_ranks_that_lose_each_other(how, monkeypatch, tmp_path):
    """Both still reach the store, so both hearts beat; only what they send one another is never acknowledged."""
    monkeypatch.setattr(heartbeat, "CUT_S", 1.0)
    with networks(3) if how == "namespaces" else told(monkeypatch, tmp_path / "cut") as (place, _, part):

        def receive(rank, header, tensor):
            if (rank, header["kind"], header.get("step")) == (0, "step", 5):
                part()

        found, seconds = lost_in(
            lambda: launch.launch(works, 3, (-1, 0), receive, names=["a", "b", "c"], method="fork", **place)
        )
    (said,) = found.diagnostics
    blamed, witness = ("2 (c)", "1 (b)") if how == "namespaces" else ("0 (a)", "1 (b)")
    assert said.code == "HAP760" and found.rank == int(blamed[0])
    assert f"process {blamed} is lost: process {witness} can't reach it" in said.message
    assert seconds < QUICK_S + 10


def test_a_peer_that_is_stopped_acknowledges():
    """Its kernel does, until its room is full, and then it answers questions: nothing to mistake for a line that is cut."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        theirs, _ = server.accept()
        with theirs:
            ours.setblocking(False)
            while True:
                try:
                    ours.send(bytes(2**16))
                except BlockingIOError:
                    break
            time.sleep(0.3)
            assert links.unanswered_s(ours) < 0.25
            ends = {(own, peer) for own, peer, _ in links.connections()}
            assert {(ours.getsockname(), theirs.getsockname()), (theirs.getsockname(), ours.getsockname())} <= ends


def test_a_connection_of_which_the_kernel_says_nothing(monkeypatch):
    """The heart beats on: it is no rank's, or none that is known to be cut off."""

    def refuses(connection):
        raise OSError(errno.ENOPROTOOPT, "Protocol not available")

    monkeypatch.setattr(links, "unanswered_s", refuses)
    store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    assert links.Links(store, 0, 2, "here").lost(1.0) is None
    assert json.loads(store.get("here/ends/0"))


def test_a_full_disk(tmp_path):
    """A limit on the size of files stands for it: the system refuses to write, as it does on a full disk."""
    program = program_of("mlp_zero")
    train(program, 4, 2, dtype=F64, saving=Saving(tmp_path, 1))
    largest = max((tmp_path / "step-00000002" / f.name).stat().st_size for f in find(tmp_path).manifest.files)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    start = time.monotonic()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 1, hard))
        with pytest.raises(HapError) as stop:
            train(program, 4, 9, dtype=F64, resume=tmp_path, saving=Saving(tmp_path, 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (said,) = stop.value.diagnostics
    assert said.code == "HAP754" and stop.value.status == 1 and time.monotonic() - start < 20
    assert "process 0" in said.message and "File too large" in said.message and "--resume" in said.help
    assert steps(tmp_path) == [1, 2] and not find(tmp_path).verify()
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


OLDER = "0.0.1"


def older(reporter, program):
    if dist.get_rank() == 1:
        distributed.__version__ = OLDER  # of this process
    distributed.agree(program)


def test_a_rank_with_another_version():
    with pytest.raises(HapError) as stop:
        launch.launch(older, 3, (program_of("mlp_zero"),), names=["a", "b", "c"], method="fork")
    (said,) = stop.value.diagnostics
    assert said.code == "HAP717" and "ranks 1 run another version of hapdsl than rank 0" in said.message and said.help
    teller = re.search(r"\(rank (\d) has (\S+)\)", said.message)  # whichever rank is heard first
    assert teller is not None and teller[2] == (OLDER if teller[1] == "1" else __version__)
