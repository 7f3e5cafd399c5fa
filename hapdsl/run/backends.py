"""What carries messages between ranks, and what it can and can't do: the one place that knows gloo from nccl.

                          gloo                          nccl
    device                cpu                           cuda, one per rank: cuda:LOCAL_RANK
    dtypes                all of hapdsl's               all of hapdsl's; bf16 from compute capability 8.0 on
    partial sums of bool  no                            no (the language has none)
    all_gather            equal lengths only            equal lengths only (as it is used here)
    reduce_scatter        equal lengths; moves the bytes of an all_reduce      equal lengths
    all_to_all            all_to_all_single, any lengths, not to oneself        the same
    broadcast, reduce     any views, several at once    any views, several at once
    started and waited    all of them                   all of them, in the order of a stream

gloo's column is tested (tests/run/test_backends.py); nccl's is from torch's documentation and has never been run: `UNTESTED` is said
at the start of a run. What is to be moved is packed into flat buffers before it comes here (`hapdsl.run.collectives`), so
uneven and empty shares need nothing of a backend but what stands above.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hapdsl.lang.diagnostics import error
from hapdsl.run.context import DTYPES, NAMES

UNTESTED = "nccl was never tried with this hapdsl: compare a few steps with --backend gloo first"
BF16_CAPABILITY = (8, 0)  # below it torch emulates bf16, slower than f32

# torch 2.13 renamed it; older ones only have the second
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(frozen=True)
class Backend:
    """A way to carry messages. `torch_name` is what `init_process_group` is told: control messages are host tensors and always
    go through gloo. `moves` are the dtypes that it carries, `adds` those that it sums up."""

    name: str
    torch_name: str
    device_type: str
    moves: frozenset[torch.dtype]
    adds: frozenset[torch.dtype]
    tested: bool

    def device(self) -> torch.device:
        """This process' device; with cuda the LOCAL_RANK-th, which becomes torch's current one. Raises HapError HAP721."""
        if self.device_type == "cpu":
            return torch.device("cpu")
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local >= torch.cuda.device_count():
            raise error("HAP721", f"rank {os.environ.get('RANK', '0')} is number {local + 1} on this machine, which has {torch.cuda.device_count()} GPUs")  # fmt: skip
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
        return device

    # Each starts something on flat contiguous buffers and returns a handle with `wait()`.

    def all_reduce(self, mine: Tensor, handle: Any) -> Any:
        return dist.all_reduce(mine, group=handle, async_op=True)

    def all_gather(self, found: list[Tensor], mine: Tensor, handle: Any) -> Any:
        """Of equal lengths."""
        return dist.all_gather(found, mine, group=handle, async_op=True)

    def reduce_scatter(self, mine: Tensor, parts: Tensor, handle: Any) -> Any:
        """Of equal lengths: `parts` is one flat buffer, a part per rank."""
        return _reduce_scatter(mine, parts, group=handle, async_op=True)

    def broadcast(self, part: Tensor, rank: int, handle: Any) -> Any:
        return dist.broadcast(part, rank, group=handle, async_op=True)

    def reduce(self, part: Tensor, rank: int, handle: Any) -> Any:
        return dist.reduce(part, rank, group=handle, async_op=True)

    def all_to_all(self, received: Tensor, sent: Tensor, receives: list[int], sends: list[int], handle: Any) -> Any:
        """Of any lengths; nothing is for oneself."""
        return dist.all_to_all_single(received, sent, receives, sends, group=handle, async_op=True)

    def send(self, part: Tensor, rank: int) -> Any:
        return dist.isend(part, rank)

    def receive(self, part: Tensor, rank: int) -> Any:
        return dist.irecv(part, rank)


_ALL = frozenset(DTYPES.values())
GLOO = Backend("gloo", "gloo", "cpu", _ALL, _ALL - {torch.bool}, tested=True)
NCCL = Backend("nccl", "cpu:gloo,cuda:nccl", "cuda", _ALL, _ALL - {torch.bool}, tested=False)
BACKENDS = {b.name: b for b in (GLOO, NCCL)}


def choose(backend: str | None = None, device: str | None = None) -> Backend:
    """The backend for a device type (cpu where nothing is said), or the one that is named.

    Raises HapError HAP721: none of these, a device that the backend doesn't serve, no GPU or no nccl here.
    """
    known = {b.device_type: b for b in BACKENDS.values()}
    if backend is not None and backend not in BACKENDS:
        raise error("HAP721", f"there is no backend '{backend}'", help=f"there are: {', '.join(BACKENDS)}")
    if device is not None and device not in known:
        raise error("HAP721", f"there is no device type '{device}'", help=f"there are: {', '.join(known)}")
    found = BACKENDS[backend] if backend is not None else known[device or "cpu"]
    if device is not None and device != found.device_type:
        raise error("HAP721", f"{found.name} moves tensors on {found.device_type}, not on {device}", help=f"--backend {known[device].name}")  # fmt: skip
    if found.device_type == "cuda" and not (torch.cuda.is_available() and dist.is_nccl_available()):
        raise error("HAP721", "this machine has no GPU that torch could use", help="leave --device and --backend out to run on its processors")  # fmt: skip
    return found


def lacking(backend: Backend, device: torch.device, dtypes: Iterable[torch.dtype]) -> list[torch.dtype]:
    """Those of `dtypes` that the device doesn't compute in, or the backend doesn't move."""
    missing = {d for d in dtypes if d not in backend.moves}
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < BF16_CAPABILITY:
        missing.add(torch.bfloat16)
    return [d for d in dict.fromkeys(dtypes) if d in missing]


def require(backend: Backend, device: torch.device, dtypes: Iterable[torch.dtype]) -> None:
    """Raises HapError HAP722 for a dtype that the device or the backend lacks."""
    missing = lacking(backend, device, list(dtypes))
    if missing:
        names = ", ".join(NAMES.get(m, str(m)) for m in missing)
        raise error("HAP722", f"{device} with {backend.name} has no {names}", help="--dtype f32 runs all floats as f32")


def padded(parts: Sequence[Tensor], longest: int) -> Tensor:
    """The parts behind one another, each filled up with zeros to `longest`: one flat buffer."""
    rows = parts[0].new_zeros(len(parts), longest)
    for row, part in zip(rows, parts, strict=True):
        row[: part.numel()] = part
    return rows.reshape(-1)
