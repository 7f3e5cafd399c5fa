"""What real clusters do: a rank is stopped, killed or cut off, a disk is full. Each ends the run in time, and the message names the rank."""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from hapdsl import __version__
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.resources import programs_folder
from hapdsl.run import distributed, guarded, heartbeat, launch, links
from hapdsl.run.checkpoint import find, steps
from hapdsl.run.checkpoint_write import Saving
from hapdsl.run.train import train
from tests.run.test_launch import Pids
from tests.run.test_running import as_torchrun_does, free_port
from tests.run.test_train import program_of

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
    with torch.random.fork_rng():
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


class Proxy:
    """Stands between one rank and the store; once cut, it takes everything and passes nothing on."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.cut = threading.Event()

    def serve(self, port):
        def pump(source, target):
            with source, target:
                while data := source.recv(65536):
                    if not self.cut.is_set():
                        target.sendall(data)

        def accept():
            while True:
                try:
                    ours, _ = self.listener.accept()
                except OSError:
                    return
                theirs = socket.create_connection(("127.0.0.1", port))
                for pair in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()


@contextmanager
def proxied(monkeypatch):
    """A way to launch ranks of which the last meets the others through a proxy, and a way to cut it off."""
    proxy, real, entered = Proxy(), dist.TCPStore, [-1]

    def store(address, port, *arguments, is_master, **named):
        if is_master:
            made = real(address, port, *arguments, is_master=True, **named)
            proxy.serve(made.port)
            return made
        mine = proxy.port if entered[0] == 2 else port
        return real(address, mine, *arguments, is_master=False, **named)

    monkeypatch.setattr(dist, "TCPStore", store)
    with proxy.listener:
        yield {"enter": lambda rank: entered.__setitem__(0, rank)}, proxy.cut.set, None


def may_make_networks():
    """Root may; for others a proxy stands for a network."""
    return os.geteuid() == 0 and subprocess.run(["ip", "netns", "list"], capture_output=True).returncode == 0


@contextmanager
def networks(count):
    """A namespace per rank, each with a line to a bridge here: 10.97.x.1 is the bridge. Yields where ranks go, how the last one is cut off, and how
    the last two lose each other: what they send one another goes to an address that nobody has."""
    own, subnet = f"hap{os.getpid()}", f"10.97.{os.getpid() % 256}"
    made = []

    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    try:
        ip("link", "add", own, "type", "bridge")
        made.append(("link", "del", own))
        ip("addr", "add", f"{subnet}.1/24", "dev", own)
        ip("link", "set", own, "up")
        for k in range(count):
            space = f"{own}-{k}"
            ip("netns", "add", space)
            made.append(("netns", "del", space))
            ip("link", "add", f"{own}v{k}", "type", "veth", "peer", "name", "line", "netns", space)
            made.append(("link", "del", f"{own}v{k}"))  # a namespace outlives its last process by some minutes
            ip("link", "set", f"{own}v{k}", "master", own, "up")
            ip("-n", space, "addr", "add", f"{subnet}.{k + 2}/24", "dev", "line")
            ip("-n", space, "link", "set", "line", "up")
            ip("-n", space, "link", "set", "lo", "up")

        def enter(rank):
            handle = os.open(f"/run/netns/{own}-{rank}", os.O_RDONLY)
            if ctypes.CDLL(None, use_errno=True).setns(handle, 0x40000000):
                raise OSError(ctypes.get_errno(), "setns")

        place = {"address": f"{subnet}.1", "enter": enter, "environment": {"GLOO_SOCKET_IFNAME": "line"}}

        def part():
            for one, other in ((count - 1, count - 2), (count - 2, count - 1)):
                ip(
                    "-n",
                    f"{own}-{one}",
                    "neigh",
                    "replace",
                    f"{subnet}.{other + 2}",
                    "lladdr",
                    "02:00:00:00:00:01",
                    "dev",
                    "line",
                    "nud",
                    "permanent",
                )

        yield place, lambda: ip("link", "set", f"{own}v{count - 1}", "down"), part
    finally:
        for words in reversed(made):
            subprocess.run(["ip", *words], capture_output=True)


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


@contextmanager
def told(monkeypatch, file):
    """The kernel's answer made up: once there is a file, the second rank hears nothing from anybody (of whom only the first one is a rank)."""
    monkeypatch.setattr(
        links, "unanswered_s", lambda connection: 60.0 * (os.environ.get("RANK") == "1" and file.exists())
    )
    yield {}, None, file.touch


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


STOPS = """
import os, signal
import torch
from tests.run.test_train import program_of

def batches():
    graph = program_of("mlp_zero").graph
    number = 0
    while True:
        number += 1
        if number == 4 and os.environ["RANK"] == "2":
            os.kill(os.getpid(), signal.SIGSTOP)
        yield {"x": torch.zeros(64, 64), "label": torch.zeros(64, dtype=torch.int64)}
"""


def test_a_rank_that_is_stopped_under_torchrun(tmp_path, monkeypatch):
    """Nobody stands above the ranks: the first one says it, and ends; the others see that it is gone, also those that wait for the one that is stopped."""
    monkeypatch.setattr(heartbeat, "SILENT_S", 6.0)  # a third of it is more than a beat
    (tmp_path / "stops.py").write_text(STOPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    pids = []

    def ended(rank):
        try:
            return os.waitid(os.P_PID, pids[rank], os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:  # its status has been read already
            return True

    def killed():
        """What torchrun does in the end to a rank that hears no signal; here behind all others."""
        until = time.monotonic() + 100
        while time.monotonic() < until and not (len(pids) == 4 and all(map(ended, (0, 1, 3)))):
            time.sleep(0.1)
        os.kill(pids[2], signal.SIGKILL)

    helper = threading.Thread(target=killed)
    helper.start()
    arguments = ["run", str(programs_folder() / "plans" / "mlp_zero.hap"), "--data", "stops:batches", "--steps", "50"]
    statuses = as_torchrun_does(arguments, [(0, k) for k in range(4)], free_port(), tmp_path / "said", pids)
    helper.join()
    said = [(tmp_path / f"said.{rank}").read_text() for rank in range(4)]
    assert statuses[2] == -signal.SIGKILL and (statuses[0], statuses[1], statuses[3]) == (1, 1, 1), said
    assert "HAP760" in said[0] and "process 2" in said[0] and "stopped, or cut off" in said[0], said
    assert not said[1].strip() and not said[3].strip(), said


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
