"""What a rank says to who started it: JSON, and tensors as bytes."""

from __future__ import annotations

import json
import math
import threading
from multiprocessing import connection
from typing import Any, Protocol

import torch
from torch import Tensor

from hapdsl.run.context import DTYPES, NAMES


class Sink(Protocol):
    """Where a rank reports to: `kind`, JSON values, and a tensor."""

    def send(self, kind: str, tensor: Tensor | None = None, **header: Any) -> None: ...


class Reporter:
    """The way from a rank to who started it."""

    def __init__(self, pipe: connection.Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()  # the heart's thread may have last words

    def send(self, kind: str, tensor: Tensor | None = None, **header: Any) -> None:
        """As `Sink` says; of the tensor its bytes."""
        if tensor is not None:
            header |= {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape)}
        with self._lock:
            self._pipe.send_bytes(json.dumps({"kind": kind, **header}).encode())
            if tensor is not None:
                self._pipe.send_bytes(
                    tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                )


def received(pipe: connection.Connection) -> tuple[dict[str, Any], Tensor | None]:
    """The next report of a rank: its header, and its tensor if it has one. Raises EOFError, OSError where none will come."""
    header = json.loads(pipe.recv_bytes())
    if "dtype" not in header:
        return header, None
    raw, shape, dtype = pipe.recv_bytes(), header["shape"], DTYPES[header["dtype"]]
    if not math.prod(shape):
        return header, torch.empty(shape, dtype=dtype)
    return header, torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)
