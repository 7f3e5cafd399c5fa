"""Ranks as processes: what they report, and how torchrun would start them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from hapdsl.cli import main


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


def as_torchrun_does(
    what: list[str] | Callable[[], int],
    places: list[tuple[int, int]],
    port: int,
    said: Path,
    pids: list[int] | None = None,
) -> list[int]:
    """`hapdsl WHAT`, or a function that returns a status, in one process per (node, local rank), with the environment that torchrun gives; exit statuses. `pids` is filled on the way."""
    pids = [] if pids is None else pids
    for rank, (node, local) in enumerate(places):
        pid = os.fork()
        if pid == 0:
            status = 99
            try:
                os.environ.update(
                    {"RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": str(len(places)), "GROUP_RANK": str(node),
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
                )  # fmt: skip
                with open(said.with_suffix(f".{rank}"), "w", encoding="utf-8") as out:
                    sys.stdout = sys.stderr = out
                    status = what() if callable(what) else main(what)
            except SystemExit as end:
                status = int(end.code or 0)
            finally:
                os._exit(status)
        pids.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
