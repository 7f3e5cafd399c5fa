"""Checkpoints from and to an ordinary state_dict, as a file of safetensors: names as the module's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from hapdsl import __version__
from hapdsl.graph.training import TrainingGraph
from hapdsl.importing.weights import from_state_dict, load_tables, plain
from hapdsl.lang.diagnostics import error
from hapdsl.lang.nodes import Span
from hapdsl.run import checkpoint_read
from hapdsl.run.checkpoint import Checkpoint, Copy, Manifest, Piece, Saved, file_name, folder_of, read
from hapdsl.run.checkpoint_write import begin, complete, unwritable, write_tensors
from hapdsl.run.context import NAMES
from hapdsl.run.initial import initial

WEIGHTS = ("param", "frozen", "buffer")


@dataclass(frozen=True)
class Exported:
    """What was written; `missing` are names of `like` that the checkpoint doesn't have."""

    tensors: dict[str, tuple[int, ...]]
    bytes: int
    missing: tuple[str, ...]


def state_dict(checkpoint: Checkpoint, state: bool = False) -> dict[str, Tensor]:
    """Parameters and buffers under the module's names; with `state` the optimizer's state too, under the program's (`w1.m`).

    Shapes are the model text's. Raises HapError HAP751.
    """
    whole = checkpoint_read.tensors(checkpoint)
    there = checkpoint.manifest.tensors.values()
    return {plain(t.name) if t.kind in WEIGHTS else t.name: whole[t.name] for t in there if t.kind in WEIGHTS or state}


def export(checkpoint: Checkpoint, output: Path, state: bool = False, like: Path | None = None) -> Exported:
    """Write a checkpoint's state_dict as one file. `like` is a file of the module's own, whose shapes and dtypes are taken.

    Raises HapError: HAP751 damaged, HAP753 it doesn't fit `like`, HAP754 the output can't be written.
    """
    found = state_dict(checkpoint, state)
    missing: list[str] = []
    if like is not None:
        found, missing = _like(found, like)
    temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        write_tensors(temporary, {n: t.contiguous() for n, t in found.items()}, output)
        temporary.replace(output)
    except OSError as problem:
        raise unwritable(output, problem) from None
    finally:
        with suppress(OSError):
            temporary.unlink()
    return Exported({n: tuple(t.shape) for n, t in found.items()}, output.stat().st_size, tuple(missing))


def _like(found: Mapping[str, Tensor], like: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors in the shapes and dtypes of those of the same names in a file, and names that only the file has."""
    made: dict[str, Tensor] = {}
    missing: list[str] = []
    with _opened(like) as handle:
        for name in handle.keys():
            if name not in found:
                missing.append(name)
                continue
            shape = handle.get_slice(name).get_shape()
            if found[name].numel() != torch.Size(shape).numel():
                raise error(
                    "HAP753",
                    f"'{name}' has shape {list(found[name].shape)}, {like} says {shape}",
                    Span(str(like)),
                    "name a file of the same module",
                )
            made[name] = found[name].reshape(shape).to(handle.get_tensor(name).dtype)
    if not made:
        raise error(
            "HAP753",
            f"the checkpoint has none of the {len(missing)} tensors of {like}",
            Span(str(like)),
            "name a file of the same module",
        )
    return made, missing


def _opened(path: Path) -> Any:
    """A file of safetensors. Raises HapError HAP750, HAP752."""
    where = Span(str(path))
    hint = "write it with safetensors.torch.save_file(module.state_dict(), PATH); files that hold pickles are not read"
    if not path.is_file():
        raise error("HAP750", f"there is no file {path}", where, hint)
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as problem:
        raise error("HAP752", f"{path} holds no tensors: {problem}", where, hint) from None


def from_file(path: Path, graph: TrainingGraph, tables: Path | None = None, seed: int = 0) -> dict[str, Tensor]:
    """All values that a run of the graph begins with: weights from a state_dict's file, and the state that belongs to them.

    `tables` is the model's text, beside which an import has left constants. Raises HapError: HAP750, HAP752 the file, HAP753 a tensor
    that is missing or of another size, before any is read.
    """
    given: dict[str, Tensor] = {}
    beside = {} if tables is None else load_tables(tables)
    where = Span(str(path))
    with _opened(path) as handle:
        there = set(handle.keys())
        own = list(graph.of_kind(*WEIGHTS))
        for tensor in own:
            name = plain(tensor.name)
            if name in there:
                shape = handle.get_slice(name).get_shape()
                if torch.Size(shape).numel() != tensor.elements:
                    raise error(
                        "HAP753",
                        f"'{name}' of {path} has shape {shape}, model '{graph.model}' says {list(tensor.shape)}",
                        where,
                        "import it into the model and the sizes it was made with",
                    )
            elif name not in beside:
                known = ", ".join(sorted(there)[:5])
                raise error(
                    "HAP753",
                    f"{path} has no '{name}' for model '{graph.model}'",
                    where,
                    f"it has {known}{' …' if len(there) > 5 else ''}",
                )
        given = {plain(t.name): handle.get_tensor(plain(t.name)) for t in own if plain(t.name) in there}
    return initial(graph, seed, given=from_state_dict(graph, given, beside))


def write_whole(
    base: Path,
    graph: TrainingGraph,
    values: Mapping[str, Tensor],
    step: int = 0,
    seed: int = 0,
    data: str = "random",
    extra: Mapping[str, float] | None = None,
) -> Checkpoint:
    """A checkpoint of whole tensors, as a single device would write it; `extra` as in its manifest. The caller holds the folder's lock. Raises HapError HAP754."""
    folder = folder_of(base, step)
    tensors = {}
    for name, tensor in values.items():
        piece = Piece(0, (0,) * tensor.dim(), tuple(tensor.shape))
        pieces = (piece,) if tensor.numel() else ()
        copy = Copy(f"{name}@R", pieces)
        tensors[name] = Saved(name, graph.tensors[name].kind, NAMES[tensor.dtype], tuple(tensor.shape), (copy,))
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        begin(partial)
        file = write_tensors(partial / file_name(0), {f"{n}@R": t.contiguous() for n, t in values.items() if t.numel()})
        manifest = Manifest(
            step,
            seed,
            data,
            graph.model,
            graph.fingerprint,
            "",
            "",
            __version__,
            (("devices", 1),),
            {},
            tensors,
            (file,),
            dict(extra or {}),
        )
        complete(partial, folder, manifest)
    except OSError as problem:
        raise unwritable(folder, problem) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # nothing is there where all went well
    return read(folder)
