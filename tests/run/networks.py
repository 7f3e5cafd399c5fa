"""Lines between ranks that can be cut: a proxy before the store, network namespaces, and the kernel's answer made up."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
from contextlib import contextmanager

import torch.distributed as dist

from hapdsl.run import links


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


@contextmanager
def told(monkeypatch, file):
    """The kernel's answer made up: once there is a file, the second rank hears nothing from anybody (of whom only the first one is a rank)."""
    monkeypatch.setattr(
        links, "unanswered_s", lambda connection: 60.0 * (os.environ.get("RANK") == "1" and file.exists())
    )
    yield {}, None, file.touch
