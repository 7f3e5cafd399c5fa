"""Do the connections between ranks still carry anything?

Two ranks may lose each other while both still reach the store at which all meet: their hearts beat on (`hapdsl.run.heartbeat`), and whatever moves between them
waits until `--timeout`. Only the kernel knows that nothing comes back. A peer that computes, or is stopped, is acknowledged by its kernel; a slow line
acknowledges something now and then; a cut one nothing at all. So each rank looks at its own connections with every beat.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

Address = tuple[str, int]

# struct tcp_info of <linux/tcp.h>: eight bytes, then 32-bit numbers, among them
_UNACKED, _LAST_ACK_MS, _LENGTH = 8 + 4 * 4, 8 + 12 * 4, 8 + 13 * 4


def unanswered_s(connection: socket.socket) -> float:
    """For how long a connection has had bytes under way and heard nothing, seconds; 0 where all that was sent has been acknowledged."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LENGTH)
    (unacked,), (last_ack_ms,) = struct.unpack_from("=I", info, _UNACKED), struct.unpack_from("=I", info, _LAST_ACK_MS)
    return last_ack_ms / 1000 if unacked else 0.0


def connections() -> Iterator[tuple[Address, Address, socket.socket]]:
    """(own address, peer's address, a socket to ask) of this process' TCP connections; nothing where the system doesn't list them (it isn't Linux)."""
    with suppress(OSError):
        for entry in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # closed meanwhile, or no socket at all
                if not os.readlink(f"/proc/self/fd/{entry}").startswith("socket:"):
                    continue
                with closing(socket.socket(fileno=os.dup(int(entry)))) as found:
                    if found.type == socket.SOCK_STREAM and found.family in (socket.AF_INET, socket.AF_INET6):
                        own, peer = found.getsockname()[:2], found.getpeername()[:2]
                        yield own, peer, found


class Links:
    """One rank's connections to the others. Each rank says at the store which ends are its own, under keys that begin with `prefix`, so that the others
    know whom they can't reach."""

    def __init__(self, store: Any, rank: int, ranks: int, prefix: str) -> None:
        self._store, self._rank, self._ranks, self._prefix = store, rank, ranks, prefix
        self._said: list[Address] = []

    def lost(self, after_s: float) -> int | None:
        """A rank that has acknowledged nothing for so many seconds, None where there is none. Asked with every beat, in its thread."""
        own: list[Address] = []
        silent: set[Address] = set()
        for mine, peer, connection in connections():
            own.append(mine)
            with suppress(OSError):  # a connection of the user's own of which the kernel says nothing
                if unanswered_s(connection) > after_s:
                    silent.add(peer)
        if sorted(own) != self._said:
            self._said = sorted(own)
            self._store.set(self._key(self._rank), json.dumps(self._said))
        for rank in range(self._ranks) if silent else ():
            if rank != self._rank and self._store.check([self._key(rank)]):
                theirs = {(host, port) for host, port in json.loads(self._store.get(self._key(rank)))}
                if theirs & silent:
                    return rank
        return None  # or it is a connection of the user's own

    def _key(self, rank: int) -> str:
        return f"{self._prefix}/ends/{rank}"
