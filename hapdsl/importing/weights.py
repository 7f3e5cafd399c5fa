"""A module's own tensors under the names and shapes of a graph, and back.

Names are the state_dict's. A parameter whose dims the text splits has the stored tensor's elements in the same, row-major order, so
both ways are a reshape.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import error
from hapdsl.lang.files import write_file


def from_module(
    graph: TrainingGraph, module: nn.Module, tables: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """The graph's parameters and buffers from a module (copies). Raises HapError HAP879 for one that is missing or of another size."""
    own: dict[str, Tensor] = dict(module.named_buffers(remove_duplicate=False))
    own.update(module.named_parameters(remove_duplicate=False))
    return from_state_dict(graph, own, tables)


def from_state_dict(
    graph: TrainingGraph, state: Mapping[str, Tensor], tables: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """The same from a state_dict."""
    own = {**state, **(tables or {})}
    return {
        t.name: _shaped(t.name, own.get(plain(t.name)), t.shape) for t in graph.of_kind("param", "frozen", "buffer")
    }


def from_tables(graph: TrainingGraph, tables: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The graph's tensors among the constants of a module."""
    return {
        t.name: _shaped(t.name, tables[plain(t.name)], t.shape)
        for t in graph.of_kind("frozen", "buffer")
        if plain(t.name) in tables
    }


def plain(name: str) -> str:
    """The state_dict's name of a parameter: the text puts a `_` before a digit where a name, or what a layer calls its own, begins."""
    return re.sub(r"(^|\.)_(?=\d)", r"\1", name)


def save_tables(path: str | Path, tables: Mapping[str, Tensor]) -> Path | None:
    """Keep constants that a text can't say beside it, as PATH.npz; None where there are none."""
    beside = Path(f"{path}.npz")
    if not tables:
        return None
    # numpy has no bf16: its numbers are f32 there, and rounded to themselves where they are read.
    held = {n: t.detach().cpu() for n, t in tables.items()}
    arrays: dict[str, Any] = {n: (t.float() if t.dtype == torch.bfloat16 else t).numpy() for n, t in held.items()}
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_file(beside, content.getvalue())
    return beside


def load_tables(path: str | Path) -> dict[str, Tensor]:
    """The constants beside a text, if there are any. Raises HapError HAP710."""
    from hapdsl.run.data import read_npz  # only texts with tables need it

    beside = Path(f"{path}.npz")
    return {n: torch.from_numpy(a) for n, a in read_npz(str(beside)).items()} if beside.is_file() else {}


def _shaped(name: str, found: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    if found is None:
        raise error(
            "HAP879",
            f"the module has no tensor '{name}'",
            help="the text was imported from another module, or its names were changed",
        )
    if found.numel() != torch.Size(shape).numel():
        raise error(
            "HAP879",
            f"'{name}' has shape {list(found.shape)}, which doesn't fit {list(shape)}",
            help="the module and the text have different sizes",
        )
    return found.detach().clone().reshape(shape)


@torch.no_grad()
def into_module(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put a graph's parameters and buffers back into the module. Raises HapError HAP879."""
    own: dict[str, Tensor] = {
        **dict(module.named_buffers(remove_duplicate=False)),
        **dict(module.named_parameters(remove_duplicate=False)),
    }
    for name, tensor in tensors.items():
        held = own.get(plain(name))
        if held is not None:
            held.copy_(_shaped(name, tensor, tuple(held.shape)))
