"""Where batches come from: `random`, `digits`, FILE.npz, FILE.safetensors, or MODULE:FACTORY.

Batches are global and depend only on the seed and the step, so each process makes its share of them itself (`hapdsl.run.loading`).
"""

from __future__ import annotations

import importlib
import math
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from hapdsl.graph.program import Value
from hapdsl.graph.training import Tensor as Declared
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.run.context import DTYPES
from hapdsl.run.initial import generator, random_inputs
from hapdsl.run.pieces import Slices
from hapdsl.run.problems import named, reason
from hapdsl.theory.dtypes import FLOATS

Batch = dict[str, Tensor]
Wanted = dict[tuple[Value, int], tuple[str, Slices]]  # by value and turn: which piece of which input
Parts = dict[tuple[Value, int], Tensor]
TEST_PART = 5  # one sample in so many is held back for testing
SPLIT_SEED = 0


class Feed(Protocol):
    """A source of global batches."""

    def batch(self, step: int) -> Batch:
        """The inputs of a step (from 1). Cheap where steps are asked for in order."""

    def parts(self, step: int, wanted: Wanted) -> Parts:
        """Pieces of the inputs of a step, each in memory of its own."""

    @property
    def test(self) -> Batch | None:
        """Samples that are never trained on, None where there are none."""


def open_feed(spec: str, graph: TrainingGraph, seed: int = 0) -> Feed:
    """The source that `spec` names. It imports the module of a MODULE:FACTORY: pass on what a command line named, never what a file says.

    Raises HapError: HAP710 no such source, HAP711 its samples don't fit the model's inputs.
    """
    graph = graph.undivided
    if spec == "random":
        return Random(graph, seed)
    if spec == "digits":
        return Samples(graph, match_digits(graph), seed, held_back=True)
    if spec.endswith((".npz", ".safetensors")):
        return Samples(
            graph, fit(graph, read_npz(spec) if spec.endswith(".npz") else read_safetensors(spec), spec), seed
        )
    module, colon, factory = spec.partition(":")
    if colon and module and factory.isidentifier():
        return Made(graph, spec, module, factory)
    raise error(
        "HAP710", f"'{spec}' names no data", help="random, digits, FILE.npz, FILE.safetensors or MODULE:FACTORY"
    )


class _Whole(ABC):
    """A source that has batches only whole."""

    @abstractmethod
    def batch(self, step: int) -> Batch: ...

    def parts(self, step: int, wanted: Wanted) -> Parts:
        whole = self.batch(step)
        return {
            key: whole[name][piece].clone(memory_format=torch.contiguous_format)
            for key, (name, piece) in wanted.items()
        }


@dataclass
class Random(_Whole):
    """The same random batch at every step: a loss that falls shows that something is learned."""

    graph: TrainingGraph
    seed: int = 0
    test: Batch | None = None

    def __post_init__(self) -> None:
        self._batch = random_inputs(self.graph, self.seed)

    def batch(self, step: int) -> Batch:
        return self._batch


class Samples:
    """Batches drawn from samples: epoch after epoch, each in an order of its own, one behind another without a gap.

    An input without dims (a learning rate) has a value per step instead; the last one stays. Of samples in a file that is mapped into memory
    only those rows are read that somebody asks for.
    """

    def __init__(self, graph: TrainingGraph, samples: Batch, seed: int, held_back: bool = False) -> None:
        self.seed = seed
        self.size = batch_size(graph)
        self.scalars = {t.name: samples[t.name] for t in graph.of_kind("input") if not t.shape}
        samples = {n: t for n, t in samples.items() if n not in self.scalars}
        total = len(next(iter(samples.values())))
        order = torch.randperm(total, generator=generator(SPLIT_SEED, "split"))
        tests = total // TEST_PART if held_back else 0
        self.dtypes = {t.name: DTYPES[t.dtype] for t in graph.of_kind("input")}
        self.test: Batch | None = (
            {n: t[order[:tests]].to(self.dtypes[n]) for n, t in samples.items()} if tests else None
        )
        self.samples, self.kept = samples, order[tests:]
        self.count = total - tests
        self._orders: dict[int, Tensor] = {}

    def batch(self, step: int) -> Batch:
        chosen = self.rows(step)
        return {n: t[chosen].to(self.dtypes[n]) for n, t in self.samples.items()} | {
            n: self.scalar(n, step) for n in self.scalars
        }

    def parts(self, step: int, wanted: Wanted) -> Parts:
        chosen, made = self.rows(step), {}
        for key, (name, piece) in wanted.items():
            if name in self.scalars:
                made[key] = self.scalar(name, step).clone()
            else:
                made[key] = self.samples[name][(slice(None), *piece[1:])][chosen[piece[0]]].to(self.dtypes[name])
        return made

    def scalar(self, name: str, step: int) -> Tensor:
        """The value of a step of an input without dims."""
        values = self.scalars[name]
        return values[min(step, len(values)) - 1].to(self.dtypes[name])

    def rows(self, step: int) -> Tensor:
        """The numbers of the samples that the batch of a step is made of, i64[batch]."""
        first, last = (step - 1) * self.size, step * self.size
        epochs = range(first // self.count, (last - 1) // self.count + 1)
        run = torch.cat([self.order(e) for e in epochs])
        start = first - epochs[0] * self.count
        return self.kept[run[start : start + self.size]]

    def order(self, epoch: int) -> Tensor:
        if epoch not in self._orders:
            self._orders = {e: o for e, o in self._orders.items() if e >= epoch - 1}
            self._orders[epoch] = torch.randperm(self.count, generator=generator(self.seed, f"epoch {epoch}"))
        return self._orders[epoch]


class Made(_Whole):
    """Batches from a user's iterator of mappings of tensors (or arrays); it starts again when it ends.

    Whoever asks for a step is given that step's: the batches before it are gone through, so each of several processes that load data must do so.
    """

    test: Batch | None = None

    def __init__(self, graph: TrainingGraph, spec: str, module: str, factory: str) -> None:
        self.graph, self.spec = graph, spec
        try:
            self.factory = getattr(importlib.import_module(module), factory)
        except Exception as problem:  # a user's module may fail in any way
            raise error("HAP710", f"{spec} can't be loaded: {problem}") from None
        self._iterator: Iterator[object] | None = None
        self._step = 0
        self._found: object = None

    def batch(self, step: int) -> Batch:
        if step < self._step:
            self._iterator, self._step = None, 0
        while self._step < step:
            self._found = self._next()
            self._step += 1
        return self._fitted(self._found)

    def _next(self) -> object:
        for _ in range(2):
            try:
                if self._iterator is None:
                    self._iterator = iter(self.factory())
                return next(self._iterator)
            except StopIteration:
                self._iterator = None
            except HapError:
                raise
            except Exception as problem:
                raise error("HAP710", f"{self.spec} failed: {named(problem)}") from None
        raise error("HAP710", f"{self.spec} returned no batch")

    def _fitted(self, found: object) -> Batch:
        """Raises HapError HAP711 where what came is no batch for the model."""
        if not isinstance(found, Mapping):
            raise error("HAP711", f"{self.spec} must return mappings from input to tensor, not {type(found).__name__}")
        made: Batch = {}
        for tensor in self.graph.of_kind("input"):
            name = tensor.name
            if name not in found:
                raise error("HAP711", f"{self.spec} has no '{name}'", help=f"it has: {', '.join(map(str, found))}")
            try:
                value = torch.as_tensor(found[name])
            except (RuntimeError, TypeError, ValueError) as problem:
                raise error("HAP711", f"'{name}' of {self.spec} is no tensor: {reason(problem)}") from None
            if tuple(value.shape) != tensor.shape:
                raise error("HAP711", f"'{name}' of {self.spec} has shape {list(value.shape)}, expected {list(tensor.shape)}")  # fmt: skip
            if not _holds(tensor, value):
                raise error("HAP711", f"'{name}' of {self.spec} holds {value.dtype}, expected {tensor.dtype}")
            made[name] = value.to(DTYPES[tensor.dtype])
        return made


def remark(feed: Feed, what: str, steps: range, trains: bool) -> str | None:
    """What somebody should know of the batches of some steps who expects each sample once an epoch: there are fewer samples than a batch
    takes, or an evaluation's mean counts some more often than others."""
    if not isinstance(feed, Samples) or not steps:
        return None
    count, size = feed.count, feed.size
    times, more = divmod(size, count)
    if count < size:
        often = f"{times} or {times + 1} times" if more else f"{times} times"
        return f"{what} has {count} samples, fewer than a batch of {size}: every batch has each of them {often}"
    taken = len(steps) * size
    if not trains and taken > count and taken % count:
        whole = math.lcm(size, count) // size
        return f"{taken} samples are taken of the {count} in {what}, so some count more often than others; --steps {whole} counts all alike"
    return None


def batch_size(graph: TrainingGraph) -> int:
    """The first dim that all inputs share, those without dims left out. Raises HapError HAP711 where they don't."""
    inputs = list(graph.of_kind("input"))
    sizes = {t.shape[0] for t in inputs if t.shape}
    if len(sizes) != 1:
        shapes = ", ".join(f"{t.name}{list(t.shape)}" for t in inputs)
        raise error(
            "HAP711",
            f"the inputs share no batch dim: {shapes or 'there are none'}",
            help="their first dims must be equal",
        )
    return sizes.pop()


# What numpy and zipfile raise at a file that isn't what it says: a broken stream, a way to compress that isn't there, a password, more than memory holds.
_BROKEN = (
    OSError, ValueError, EOFError, KeyError, OverflowError, RuntimeError, MemoryError, zlib.error, zipfile.BadZipFile
)  # fmt: skip


def read_npz(path: str) -> dict[str, np.ndarray]:
    """The arrays of a file. Pickled objects are refused. Raises HapError HAP710."""
    try:
        if not zipfile.is_zipfile(path):  # numpy takes anything else for one array, or for pickled objects
            Path(path).open("rb").close()
            raise ValueError("it is no .npz file")
        with np.load(Path(path), allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise error("HAP710", f"there is no file {path}") from None
    except _BROKEN as problem:
        raise error(
            "HAP710", f"{path} can't be read as arrays: {reason(problem)}", help="write it with numpy.savez"
        ) from None
    return {name: array for name, array in found.items() if isinstance(array, np.ndarray)}  # other members are bytes


def read_safetensors(path: str) -> dict[str, Tensor]:
    """The tensors of a file, mapped into memory: what isn't asked for isn't read. Raises HapError HAP710."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise error(
            "HAP710", f"{path} needs safetensors, which isn't installed", help="pip install safetensors"
        ) from None
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}
    except FileNotFoundError:
        raise error("HAP710", f"there is no file {path}") from None
    except (OSError, SafetensorError, ValueError) as problem:
        raise error("HAP710", f"{path} can't be read: {reason(problem)}") from None


def fit(graph: TrainingGraph, arrays: Mapping[str, np.ndarray | Tensor], what: str) -> Batch:
    """The samples of each input, as they are there. Raises HapError HAP711."""
    made: Batch = {}
    for tensor in graph.of_kind("input"):
        if tensor.name not in arrays:
            raise error("HAP711", f"{what} has no array '{tensor.name}'", help=f"it has: {', '.join(arrays) or 'none'}")
        array = arrays[tensor.name]
        if array.ndim != max(1, len(tensor.shape)) or array.shape[1:] != tensor.shape[1:]:
            wanted = ", ".join(["samples" if tensor.shape else "steps", *map(str, tensor.shape[1:])])
            raise error("HAP711", f"'{tensor.name}' of {what} has shape {list(array.shape)}, expected [{wanted}]")
        found = array if isinstance(array, Tensor) else from_numpy(array)
        if found is None or not _holds(tensor, found):
            raise error("HAP711", f"'{tensor.name}' of {what} holds {array.dtype}, expected {tensor.dtype}")
        made[tensor.name] = found
    batch_size(graph)
    counts = {len(made[t.name]) for t in graph.of_kind("input") if t.shape}
    if len(counts) != 1 or not all(len(t) for t in made.values()):
        raise error("HAP711", f"the arrays of {what} hold different numbers of samples, or none")
    return made


def _holds(declared: Declared, found: Tensor) -> bool:
    """May these numbers stand for an input? Integers for any, floating ones for floating ones only."""
    return not found.is_complex() and (declared.dtype in FLOATS or not found.is_floating_point())


def from_numpy(array: np.ndarray) -> Tensor | None:
    """None for what torch has no dtype for."""
    try:
        return torch.from_numpy(np.ascontiguousarray(array))
    except TypeError:
        return None


@lru_cache(maxsize=1)
def digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's handwritten digits: images f32[1797, 8, 8] in [0, 1] and labels i64[1797]. Raises HapError HAP710."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise error(
            "HAP710", "the digits come with scikit-learn, which isn't installed", help="pip install scikit-learn"
        ) from None
    found = load_digits()
    return (found.images / 16).astype(np.float32), found.target.astype(np.int64)


def match_digits(graph: TrainingGraph) -> Batch:
    """The digits in the shape of the model's inputs: one floating input of 64 numbers a sample, and labels [batch].

    Raises HapError HAP711 where the model's inputs aren't such.
    """
    batch_size(graph)
    inputs = list(graph.of_kind("input"))
    images = [t for t in inputs if t.dtype in FLOATS and math.prod(t.shape[1:]) == 64]
    labels = [t for t in inputs if t.dtype not in FLOATS and len(t.shape) == 1]
    if len(images) != 1 or len(labels) != 1 or len(inputs) != 2:
        raise error("HAP711", "digits are an image [batch, 8, 8] (or [batch, 1, 8, 8], [batch, 64]) and a label [batch]", help=f"the model's inputs: {_shown(inputs)}")  # fmt: skip
    pixels, targets = digits()
    image = torch.from_numpy(pixels).reshape(-1, *images[0].shape[1:]).to(DTYPES[images[0].dtype])
    return {images[0].name: image, labels[0].name: torch.from_numpy(targets).to(DTYPES[labels[0].dtype])}


def _shown(inputs: list[Declared]) -> str:
    return ", ".join(f"{t.name} : {t.dtype}{list(t.shape)}" for t in inputs) or "none"
