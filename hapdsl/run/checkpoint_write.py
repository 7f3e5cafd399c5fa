"""Writing checkpoints: every rank its own pieces, and all of it or nothing.

The ranks write into a folder of another name; when all files are on the disk, the first rank writes the manifest and renames the folder.
Whoever dies in between leaves the checkpoint before, and a folder that the next run removes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from hapdsl import __version__
from hapdsl.graph.program import Program, Value
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.lang.nodes import Span
from hapdsl.run.checkpoint import MANIFEST, Copy, File, Manifest, Piece, Saved, file_name, folder_of, steps
from hapdsl.run.context import NAMES
from hapdsl.run.fingerprint import fingerprint
from hapdsl.run.pieces import ranges
from hapdsl.theory.dtypes import DTYPE_BYTES

_HELP = "free some space or choose another folder; checkpoints that were written before are whole: --resume goes on from the newest"
_HASH_BYTES = 32


@dataclass(frozen=True)
class Saving:
    """Where checkpoints go, how often, and how many are kept; one is always written behind the last step."""

    folder: Path
    every: int
    keep: int = 2


def pieces(program: Program, held: Iterable[Value]) -> dict[Value, tuple[Piece, ...]]:
    """For each value the blocks that make it up, each with the rank that writes it.

    Of replicas one is written, by the rank that has had the least to write so far; every rank finds the same.
    """
    layout = program.layout
    load = [0] * layout.devices
    found: dict[Value, tuple[Piece, ...]] = {}
    for value in held:
        same: dict[tuple[object, ...], list[int]] = {}
        for device in range(layout.devices):
            here = ranges(program, value, device)
            if all(r.length for r in here):
                same.setdefault(tuple((r.offset, r.length) for r in here), []).append(device)
        own = []
        for holders in same.values():
            writer = min(holders, key=lambda d: (load[d], d))
            here = ranges(program, value, writer)
            piece = Piece(writer, tuple(r.offset for r in here), tuple(r.length for r in here))
            load[writer] += piece.volume * DTYPE_BYTES[program.graph.tensors[value.tensor].dtype]
            own.append(piece)
        found[value] = tuple(own)
    return found


class Writer:
    """Writes checkpoints of one rank's values; all ranks call `save` together.

    `held` are the values with the dtypes of their numbers. Raises HapError HAP754.
    """

    def __init__(
        self, program: Program, held: Mapping[Value, torch.dtype], rank: int, saving: Saving, seed: int, data: str
    ) -> None:
        self.program, self.rank, self.saving, self.seed, self.data = program, rank, saving, seed, data
        self.pieces = pieces(program, held)
        copies: dict[str, list[Copy]] = {}
        for value, own in self.pieces.items():
            copies.setdefault(value.tensor, []).append(Copy(str(value), own))
        dtypes = {value.tensor: NAMES[dtype] for value, dtype in held.items()}
        declared = program.graph.tensors
        self.tensors = {
            n: Saved(n, declared[n].kind, dtypes[n], declared[n].shape, tuple(c)) for n, c in copies.items()
        }

    def save(self, step: int, held: Mapping[Value, Tensor], extra: Mapping[str, float] | None = None) -> Path:
        """Write the checkpoint of a step that is done; returns its folder. Raises HapError HAP754 on every rank, where one failed."""
        final = folder_of(self.saving.folder, step)
        partial = final.with_name(f".{final.name}.partial")
        own = {
            str(v): held[v].detach().cpu().contiguous()
            for v, ps in self.pieces.items()
            if any(p.rank == self.rank for p in ps)
        }
        self._together(partial, self._begin(partial) if self.rank == 0 else None)
        file, failed = self._write(partial / file_name(self.rank), own)
        files = self._gather(file, failed)
        self._together(partial, failed)
        if self.rank == 0:
            failed = self._finish(partial, final, self.manifest(step, files, extra or {}))
        self._together(partial, failed)
        return final

    def manifest(self, step: int, files: Sequence[File], extra: Mapping[str, float]) -> Manifest:
        """What describes a checkpoint of these files."""
        layout, graph = self.program.layout, self.program.graph
        return Manifest(
            step=step,
            seed=self.seed,
            data=self.data,
            model=graph.model,
            model_fingerprint=graph.fingerprint,
            program=self.program.name,
            program_fingerprint=fingerprint(self.program),
            hapdsl=__version__,
            mesh=tuple((name, int(size)) for name, size in layout.mesh),
            shares={
                cls: tuple((tuple(axes), tuple(map(int, units))) for axes, units in sorted(cuts.items()))
                for cls, cuts in sorted(layout.shares.items())
            },
            tensors=self.tensors,
            files=tuple(files),
            extra=dict(extra),
        )

    def _begin(self, partial: Path) -> HapError | None:
        try:
            begin(partial)
        except OSError as problem:
            return unwritable(partial, problem)
        return None

    def _write(self, path: Path, own: Mapping[str, Tensor]) -> tuple[File, HapError | None]:
        nothing = File(path.name, 0, "0" * 2 * _HASH_BYTES)
        if not path.parent.is_dir():
            return nothing, unwritable(
                path, OSError(0, "rank 0 has made its folder, but it can't be seen here: all machines must share it")
            )
        try:
            return write_tensors(path, own), None
        except HapError as problem:
            return nothing, problem

    def _gather(self, file: File, failed: HapError | None) -> list[File]:
        """Size and checksum of every rank's file."""
        row = torch.tensor([file.bytes, *bytes.fromhex(file.sha256)], dtype=torch.int64)
        every = [torch.empty_like(row) for _ in range(self.program.layout.devices)]
        dist.all_gather(every, row)
        return [File(file_name(r), int(found[0]), bytes(found[1:].tolist()).hex()) for r, found in enumerate(every)]

    def _together(self, partial: Path, failed: HapError | None) -> None:
        """Go on only if no rank has failed; otherwise what was begun is removed."""
        try:
            together(failed)
        except HapError:
            if self.rank == 0:
                shutil.rmtree(partial, ignore_errors=True)
            raise

    def _finish(self, partial: Path, final: Path, manifest: Manifest) -> HapError | None:
        try:
            complete(partial, final, manifest)
        except OSError as problem:
            return unwritable(final, problem)
        prune(final.parent, self.saving.keep)
        return None


class Elsewhere(HapError):
    """Another rank has failed, and says why itself."""

    lost = True

    def __init__(self, rank: int) -> None:
        super().__init__(*error("HAP720", f"rank {rank} failed").diagnostics, status=1)


def together(failed: HapError | None) -> None:
    """Go on only if no rank has failed, so that nobody waits for one that has. Raises what failed here, or `Elsewhere`."""
    flags = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    flags[dist.get_rank()] = failed is not None
    dist.all_reduce(flags)
    if failed is not None:
        raise failed
    if flags.any():
        raise Elsewhere(int(flags.nonzero()[0]))


def write_tensors(path: Path, own: Mapping[str, Tensor], shown: Path | None = None) -> File:
    """Write a file of tensors and bring it to the disk; `shown` is its name for users. Raises HapError HAP754."""
    try:
        path.touch()
        mode = path.stat().st_mode & 0o777  # as this process makes files: safetensors makes them for their owner alone
        save_file(_apart(own), path)
        path.chmod(mode)
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        return File(path.name, path.stat().st_size, found)
    except (OSError, SafetensorError) as problem:
        raise unwritable(shown or path, problem) from None


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor in memory of its own, as safetensors asks for: a parameter may be its master copy, a shard a view of the whole."""
    seen: set[int] = set()
    found = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        found[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return found


def begin(partial: Path) -> None:
    """An empty folder to write a checkpoint into; what an earlier attempt has left there goes. Raises OSError."""
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)


def complete(partial: Path, final: Path, manifest: Manifest) -> None:
    """Make a folder whose files are on the disk a checkpoint: its manifest, then its name. Raises OSError."""
    with (partial / MANIFEST).open("w", encoding="utf-8") as stream:
        stream.write(manifest.to_json())
        stream.flush()
        os.fsync(stream.fileno())
    sync_folder(partial)
    partial.rename(final)
    sync_folder(final.parent)


def unwritable(path: Path, problem: Exception) -> HapError:
    """A file of a checkpoint, or made of one, that can't be written."""
    reason = getattr(problem, "strerror", None) or str(problem).removeprefix("Error while serializing: ")
    return error("HAP754", f"{path} can't be written: {reason}", Span(str(path)), _HELP, status=1)


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def prune(base: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints; one that is being removed no longer has a checkpoint's name."""
    for step in steps(base)[:-keep]:
        folder = folder_of(base, step)
        gone = folder.with_name(f".{folder.name}.removed")
        with suppress(OSError):
            folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)


def tidy(base: Path) -> None:
    """Remove what a run that was ended has left unfinished. Only for who holds the folder's lock."""
    for pattern in (".step-*.partial", ".step-*.removed"):
        for folder in base.glob(pattern):
            shutil.rmtree(folder, ignore_errors=True)
