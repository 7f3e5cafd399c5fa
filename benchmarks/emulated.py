"""A heterogeneous cluster made of this machine: processes in network namespaces, their links and their processors limited by the kernel.

Each rank is a node: a namespace whose only way out is a virtual cable to a bridge, with a token bucket (TBF) on both ends of it, and a control
group (v1) that lets the rank run for its quota of every period. `latency_s` above 0 puts a switch of our own in the bridge's place, which
holds every frame back that long: this kernel has no netem. Needs root, `ip` and `tc`. Everything made here is named after this process, and
is taken away again.

    with Emulated(quotas=(.8, .4, .2, .2), rates=(1e9,) * 4) as cluster:
        for told in cluster.run(work, *arguments): …     # work(rank, *arguments) on every rank, under the limits
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import select
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks import process

GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000  # a quota below a millisecond isn't allowed, so 10 % needs a period of 10 ms
SHARES = 262_144  # the most there is: what else the machine does gets what is left
HZ = 250  # a token bucket must hold what flows between two ticks of the kernel
MTU_DELAYED = 60_000
TIMEOUT_S = 120
PORT = 29_571
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


class Failed(RuntimeError):
    """A rank raised something; its traceback."""


def _command(*words: str) -> None:
    """A command of the system, which must succeed. Raises CalledProcessError."""
    subprocess.run(words, check=True, capture_output=True, text=True)


@dataclass
class Emulated:
    """`quotas[rank]` is the part of one processor that a rank may use (their sum should stay below what the machine has), `rates[rank]` its
    link in bit/s both ways, `latency_s` what every frame takes on its way."""

    quotas: Sequence[float]
    rates: Sequence[float]
    latency_s: float = 0.0
    period_us: int = PERIOD_US
    tag: str = field(default_factory=lambda: f"h{os.getpid() % 100000}")
    children: list[Any] = field(default_factory=list)
    pipes: list[connection.Connection] = field(default_factory=list)
    heard: dict[int, Any] = field(default_factory=dict)
    switch: Any = None

    def __len__(self) -> int:
        return len(self.quotas)

    def address(self, rank: int) -> str:
        return f"10.77.0.{rank + 1}"

    # -- the network ---------------------------------------------------------------------

    def __enter__(self) -> Emulated:
        if os.geteuid() != 0:
            raise SystemExit("network namespaces need root")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was made is taken away then, too
        try:
            self._wire()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wire(self) -> None:
        hub, delayed = f"{self.tag}sw", self.latency_s > 0
        _command("ip", "netns", "add", hub)
        if not delayed:
            _command("ip", "-n", hub, "link", "add", "br0", "type", "bridge")
            _command("ip", "-n", hub, "link", "set", "br0", "up")
        for rank, rate in enumerate(self.rates):
            space, near, far = f"{self.tag}n{rank}", f"{self.tag}v{rank}", f"{self.tag}w{rank}"
            _command("ip", "netns", "add", space)
            _command("ip", "-n", space, "link", "set", "lo", "up")
            if not delayed:
                _command("ip", "link", "add", near, "netns", space, "type", "veth", "peer", "name", far, "netns", hub)
                _command("ip", "-n", hub, "link", "set", far, "master", "br0", "up")
                self._bucket(hub, far, rate)
        if delayed:
            ready, told = multiprocessing.Pipe()
            self.switch = multiprocessing.get_context("fork").Process(target=_switching, args=(self, told), daemon=True)
            self.switch.start()
            if not ready.poll(20):
                raise RuntimeError("the delaying switch didn't start")
        for rank, rate in enumerate(self.rates):
            space, near = f"{self.tag}n{rank}", f"{self.tag}v{rank}"
            _command("ip", "-n", space, "addr", "add", f"{self.address(rank)}/24", "dev", near)
            _command("ip", "-n", space, "link", "set", near, "up", *(("mtu", str(MTU_DELAYED)) if delayed else ()))
            self._bucket(space, near, rate)

    def _bucket(self, space: str, device: str, rate: float) -> None:
        burst = max(int(rate / 8 / HZ), 2 * MTU_DELAYED if self.latency_s else 16 * 1024)
        limits = ["rate", f"{int(rate)}bit", "burst", f"{burst}b", "latency", "200ms"]
        _command("tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", *limits)

    # -- the processes -------------------------------------------------------------------

    def _start(self) -> None:
        """Fork the ranks from this process, which has imported torch; they meet in their namespaces."""
        context = multiprocessing.get_context("fork")
        for rank in range(len(self)):
            self._group(rank).mkdir()
            (self._group(rank) / "cpu.shares").write_text(str(SHARES))
            ours, theirs = context.Pipe()
            child = context.Process(target=_life, args=(self, rank, theirs), daemon=True)
            child.start()
            theirs.close()
            self.pipes.append(ours)
            self.children.append(child)
        for rank in range(len(self)):
            self._hear(rank)

    def _group(self, rank: int) -> Path:
        return GROUPS / f"{self.tag}n{rank}"

    def limit(self, on: bool) -> None:
        """Put the quotas in force, or lift them: what is only prepared needs none."""
        for rank, quota in enumerate(self.quotas):
            group = self._group(rank)
            (group / "cpu.cfs_period_us").write_text(str(self.period_us))
            (group / "cpu.cfs_quota_us").write_text(str(round(quota * self.period_us)) if on else "-1")

    def run(self, work: Callable[..., Any], *arguments: Any, limited: bool = True) -> list[Any]:
        """`work(rank, *arguments)` on all ranks, under the limits unless said otherwise; what they return, by rank. What ranks keep in
        their modules stays for the next call."""
        self.limit(limited)
        for pipe in self.pipes:
            pipe.send((work, arguments))
        try:
            return [self._hear(rank) for rank in range(len(self))]
        finally:
            self.limit(False)

    def _hear(self, rank: int) -> Any:
        """What a rank says next. Others may say theirs meanwhile: one that fails explains why this one is silent."""
        while rank not in self.heard:
            ready = connection.wait([p for r, p in enumerate(self.pipes) if r not in self.heard], timeout=1)
            for other in [r for r, pipe in enumerate(self.pipes) if pipe in ready]:
                try:
                    kind, what = self.pipes[other].recv()
                except EOFError:
                    raise Failed(f"rank {other} ended without a word") from None
                if kind == "failed":
                    raise Failed(f"rank {other}: {what}")
                self.heard[other] = what
            dead = [r for r, child in enumerate(self.children) if not child.is_alive() and r not in self.heard]
            if dead and not self.pipes[dead[0]].poll(0):
                raise Failed(f"rank {dead[0]} ended with status {self.children[dead[0]].exitcode}")
        return self.heard.pop(rank)

    def __exit__(self, *_: object) -> None:
        for pipe in self.pipes:
            with suppress(OSError):
                pipe.send(None)
                pipe.close()
        for child in [*self.children, *([self.switch] if self.switch is not None else [])]:
            child.join(2)
            if child.is_alive():
                child.kill()
                child.join()
        for rank in range(len(self)):
            with suppress(OSError):
                self._group(rank).rmdir()
        for space in [f"{self.tag}n{r}" for r in range(len(self))] + [f"{self.tag}sw"]:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def _enter(space: str) -> None:
    with open(f"/run/netns/{space}", "rb") as stream:
        if ctypes.CDLL(None, use_errno=True).setns(stream.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {space}")


def _life(cluster: Emulated, rank: int, pipe: connection.Connection) -> None:
    """A rank: into its namespace and group, then what it is told, until nobody tells it anything."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        (cluster._group(rank) / "tasks").write_text(str(os.getpid()))
        _enter(f"{cluster.tag}n{rank}")
        torch.set_num_threads(1)
        os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # torch asks for the names of hosts that have none
        size = len(cluster)
        os.environ.update(
            RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(size), MASTER_ADDR=cluster.address(0), MASTER_PORT=str(PORT),
            GLOO_SOCKET_IFNAME=f"{cluster.tag}v{rank}", HAPDSL_NODE=f"node{rank}", OMP_NUM_THREADS="1",
        )  # fmt: skip
        limit = timedelta(seconds=TIMEOUT_S)
        store = dist.TCPStore(cluster.address(0), PORT, size, is_master=rank == 0, timeout=limit)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
        dist.barrier()
        pipe.send(("ready", None))
        while True:
            told = pipe.recv()
            if told is None:
                os._exit(0)
            work, arguments = told
            pipe.send(("done", work(rank, *arguments)))
    except BaseException:
        with suppress(OSError):
            pipe.send(("failed", traceback.format_exc()))
        os._exit(1)


# -- a switch that holds frames back ------------------------------------------------------------


def _switching(cluster: Emulated, ready: connection.Connection) -> None:
    """A learning switch between TAP devices, one in each namespace, that delivers every frame `latency_s` after it came."""
    import fcntl
    from collections import deque

    ports = []
    for rank in range(len(cluster)):
        _enter(f"{cluster.tag}n{rank}")
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", f"{cluster.tag}v{rank}".encode(), IFF_TAP | IFF_NO_PI))
        ports.append(tap)
    ready.send(True)
    known: dict[bytes, int] = {}
    held: deque[tuple[float, bytes, list[int]]] = deque()
    parent = os.getppid()
    while os.getppid() == parent:
        wait = max(0.0, held[0][0] - time.monotonic()) if held else 0.5
        for tap in select.select(ports, [], [], wait)[0]:
            with suppress(BlockingIOError):
                frame = os.read(tap, 65_600)
                known[frame[6:12]] = tap
                target = known.get(frame[:6])
                targets = [target] if target is not None else [p for p in ports if p != tap]
                held.append((time.monotonic() + cluster.latency_s, frame, targets))
        now = time.monotonic()
        while held and held[0][0] <= now:
            _, frame, targets = held.popleft()
            for tap in targets:
                with suppress(OSError):
                    os.write(tap, frame)


# -- what a rank can say of itself --------------------------------------------------------------


def sent_bytes() -> int:
    """Bytes that this rank's card has sent: headers included."""
    card = os.environ["GLOO_SOCKET_IFNAME"]
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == card:
            return int(numbers.split()[8])
    return 0


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def peak() -> Iterator[list[int]]:
    """The most bytes that this process holds inside, as the list's one entry."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    found = [0]
    yield found
    found[0] = process.peak()
