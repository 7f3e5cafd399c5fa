"""Reading checkpoints under any program: each rank copies what it needs out of the pieces that were written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from hapdsl.graph.program import Program, Value
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import error
from hapdsl.lang.near import closest
from hapdsl.lang.nodes import Span
from hapdsl.run.checkpoint import MANIFEST, Checkpoint, Piece, Saved, file_name, torn
from hapdsl.run.context import DTYPES, Range, Ranges
from hapdsl.run.pieces import overlap, ranges, sizes, slices, volume
from hapdsl.theory.dtypes import FLOATS, INTS


def fits(checkpoint: Checkpoint, graph: TrainingGraph, names: Iterable[str] | None = None) -> None:
    """Raises HapError HAP753 unless the checkpoint has all parameters, buffers and state of a model (or `names`), in its shapes."""
    there = checkpoint.manifest.tensors
    where = Span(str(checkpoint.folder))
    own = [t.name for t in graph.of_kind("param", "frozen", "buffer", "state")] if names is None else list(names)
    for name in own:
        declared = graph.tensors[name]
        if name not in there:
            close = closest(name, there)
            hint = f"it has {close[0]}" if close else f"it is of model '{checkpoint.manifest.model}'"
            raise error("HAP753", f"{checkpoint.folder} has no '{name}' for model '{graph.model}'", where, hint)
        found = there[name]
        if found.shape != declared.shape:
            raise error("HAP753", f"'{name}' of {checkpoint.folder} has shape {list(found.shape)}, model '{graph.model}' says {list(declared.shape)}", where, "resume with the model and the sizes it was made with")  # fmt: skip
        if not _kin(found.dtype, declared.dtype):
            raise error("HAP753", f"'{name}' of {checkpoint.folder} holds {found.dtype}, model '{graph.model}' says {declared.dtype}", where, "resume with the model it was made with")  # fmt: skip


def loaded(program: Program) -> list[str]:
    """The parameters, buffers and state that a program loads."""
    return [v.tensor for i in program.instructions if i.op in ("param", "state") and i.node is None for v in i.outputs]


def _kin(a: str, b: str) -> bool:
    return a == b or any(a in kind and b in kind for kind in (FLOATS, INTS))


class Source:
    """The tensors of a checkpoint. Files are mapped, not read whole; what is copied out is contiguous and owned.

    Raises HapError HAP751 for a file whose contents aren't what the manifest says.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._open: dict[int, _File] = {}

    def local(self, program: Program, value: Value, device: int, dtype: torch.dtype) -> Tensor:
        """What a device holds of `value` under `program`.

        Where the checkpoint has the same value in the same pieces, it is the device's own, bit by bit; else it is made from pieces.
        """
        saved = self.checkpoint.manifest.tensors[value.tensor]
        here = ranges(program, value, device)
        exact = self._exact(saved, value, here)
        if exact is not None:
            return self._file(exact.rank).tensor(str(value), sizes(here), saved.dtype).to(dtype, copy=True)
        return self.gather(saved, here).to(dtype)

    def whole(self, name: str) -> Tensor:
        """A tensor as one device would hold it, in the dtype it was saved in."""
        saved = self.checkpoint.manifest.tensors[name]
        return self.gather(saved, tuple(Range(n, 0, n) for n in saved.shape))

    def gather(self, saved: Saved, here: Ranges) -> Tensor:
        """A block of a tensor from the pieces of its first copy."""
        copy = saved.copies[0]
        if sum(p.volume for p in copy.pieces) != math.prod(saved.shape):  # before anything is as large as it says
            raise torn(self.checkpoint.folder / MANIFEST, f"the pieces of '{saved.name}' don't make it up")
        made = torch.zeros(sizes(here), dtype=DTYPES[saved.dtype])
        filled: list[Ranges] = []
        for piece in copy.pieces:
            there = _ranges(saved, piece)
            common = overlap(there, here)
            if common is None:
                continue
            part = self._file(piece.rank).tensor(copy.value, piece.lengths, saved.dtype)[slices(common, there)]
            made[slices(common, here)].copy_(part)
            filled.append(common)
        twice = any(overlap(a, b) for a, b in combinations(filled, 2))
        if twice or sum(map(volume, filled)) != volume(here):
            raise torn(self.checkpoint.folder / MANIFEST, f"the pieces of '{saved.name}' don't make it up")
        return made

    def _exact(self, saved: Saved, value: Value, here: Ranges) -> Piece | None:
        """The piece of this very value that holds just what a device wants."""
        pieces = (p for c in saved.copies if c.value == str(value) for p in c.pieces)
        return next((p for p in pieces if _ranges(saved, p) == here), None)

    def _file(self, rank: int) -> _File:
        if rank not in self._open:
            self._open[rank] = _File(self.checkpoint, rank)
        return self._open[rank]


def _ranges(saved: Saved, piece: Piece) -> Ranges:
    return tuple(Range(n, o, k) for n, o, k in zip(saved.shape, piece.offsets, piece.lengths, strict=True))


class _File:
    """One rank's file, opened once its checksum is known to be right."""

    def __init__(self, checkpoint: Checkpoint, rank: int) -> None:
        self.path = checkpoint.folder / file_name(rank)
        try:
            self.handle = safe_open(self.path, framework="pt")
            self.names = set(self.handle.keys())
        except (OSError, SafetensorError) as problem:
            raise torn(self.path, str(problem)) from None

    def tensor(self, name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
        """A tensor, mapped. Its shape and dtype are compared with the manifest's before it is touched."""
        if name not in self.names:
            raise torn(self.path, f"'{name}' is missing")
        here = self.handle.get_slice(name)
        if tuple(here.get_shape()) != shape:
            raise torn(self.path, f"'{name}' has shape {here.get_shape()}, {list(shape)} was written")
        found = self.handle.get_tensor(name)
        if found.dtype != DTYPES[dtype]:
            raise torn(self.path, f"'{name}' holds {found.dtype}, {dtype} was written")
        return found


@dataclass(frozen=True)
class _Whole(Mapping[str, Tensor]):
    source: Source

    def __getitem__(self, name: str) -> Tensor:
        return self.source.whole(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.source.checkpoint.manifest.tensors)

    def __len__(self) -> int:
        return len(self.source.checkpoint.manifest.tensors)


def tensors(checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """All tensors of a checkpoint, each put together when it is asked for. Raises HapError HAP751."""
    checkpoint.verify()
    return _Whole(Source(checkpoint))
