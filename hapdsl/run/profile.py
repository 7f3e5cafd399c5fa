"""A profile of this cluster: local processes, or the ranks of an existing torchrun, measure; what they have seen is gathered here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from hapdsl.cluster.seen import Sample, Seen, packed, unpacked
from hapdsl.run.backends import GLOO, Backend
from hapdsl.run.guarded import Fatal, joined
from hapdsl.run.launch import launch, outer_rank
from hapdsl.run.measuring import Extent, begin, measure
from hapdsl.run.reporting import Sink

PATIENCE_S = 600.0  # of ranks with one another, in one collective
Progress = Callable[[int, int, float, str], None]  # points done, of how many, seconds left, what was measured last


@dataclass
class Profile:
    """What has been seen so far; `done` of `points` points. `seen` is None until the ranks have met."""

    progress: Progress | None = None
    seen: Seen | None = None
    done: int = 0
    points: int = 0
    failed: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return 0 < self.points == self.done

    def receive(self, rank: int, header: dict[str, Any], tensor: torch.Tensor | None = None) -> None:
        if header["kind"] == "begin":
            self.seen = Seen(tuple(header["nodes"]), tuple(header["memory"]), tuple(header["kinds"]))
            return
        assert self.seen is not None
        self.done, self.points = header["done"], header["of"]
        if header["sample"] is None:
            self.failed.append(header["label"])
        else:
            self.seen.samples.append(unpacked(header["sample"]))
        if self.progress is not None:
            self.progress(self.done, self.points, header["left_s"], header["label"])

    def send(self, kind: str, tensor: torch.Tensor | None = None, **header: Any) -> None:
        """As a sink of the first rank of a torchrun."""
        self.receive(0, {"kind": kind, **header})


def profile(found: Profile, nproc: int, extent: Extent, backend: Backend = GLOO, fatal: Fatal | None = None) -> bool:
    """Measure, and put what is seen into `found` as it comes: whoever interrupts this has all of it until then.

    `nproc` local processes, or this one as a rank of an existing torchrun, where `fatal` says which rank is lost and ends this process. Returns False on ranks that aren't the first, which report nothing.
    Raises HapError: HAP720 a process that failed, HAP760 one that is silent.
    """
    outer = outer_rank()
    if outer is None:
        launch(work, nproc, (extent, backend), found.receive, PATIENCE_S)
        return True
    with joined(backend, PATIENCE_S, fatal):
        work(found, extent, backend)
    return outer == 0


def work(sink: Sink, extent: Extent, backend: Backend) -> None:
    """One rank of a profile; the first one reports."""
    first = dist.get_rank() == 0
    seen = begin(backend)
    if first:
        sink.send("begin", nodes=seen.nodes, memory=seen.memory, kinds=seen.kinds)

    def report(done: int, of: int, left_s: float, label: str, sample: Sample | None) -> None:
        if first:
            sink.send(
                "point", done=done, of=of, left_s=left_s, label=label, sample=None if sample is None else packed(sample)
            )

    measure(seen, extent, backend, report)
