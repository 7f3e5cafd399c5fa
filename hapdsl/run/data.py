"""Where batches come from: `random`, `digits`, FILE.npz, or MODULE:FACTORY.

Batches are global and depend only on the seed and the step, so each process makes them itself and takes its share.
"""

from __future__ import annotations

import importlib
import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from hapdsl.graph.training import Tensor as Declared
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.run.context import DTYPES
from hapdsl.run.initial import generator, random_inputs
from hapdsl.theory.instance import FLOATS

Batch = dict[str, Tensor]
TEST_PART = 5  # one sample in so many is held back for testing
SPLIT_SEED = 0


class Feed(Protocol):
    """A source of global batches."""

    def batch(self, step: int) -> Batch:
        """The inputs of a step (from 1); called for steps in order."""

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
    if spec.endswith(".npz"):
        return Samples(graph, fit(graph, read_npz(spec), spec), seed)
    module, colon, factory = spec.partition(":")
    if colon and module and factory.isidentifier():
        return Made(graph, spec, module, factory)
    raise error("HAP710", f"'{spec}' names no data", help="random, digits, FILE.npz or MODULE:FACTORY")


@dataclass
class Random:
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

    An input without dims (a learning rate) has a value per step instead; the last one stays.
    """

    def __init__(self, graph: TrainingGraph, samples: Batch, seed: int, held_back: bool = False) -> None:
        self.seed = seed
        self.size = batch_size(graph)
        self.scalars = {t.name: samples[t.name] for t in graph.of_kind("input") if not t.shape}
        samples = {n: t for n, t in samples.items() if n not in self.scalars}
        total = len(next(iter(samples.values())))
        order = torch.randperm(total, generator=generator(SPLIT_SEED, "split"))
        tests = total // TEST_PART if held_back else 0
        self.test: Batch | None = {n: t[order[:tests]] for n, t in samples.items()} if tests else None
        self.train: Batch = {n: t[order[tests:]] for n, t in samples.items()}
        self.count = total - tests
        self._orders: dict[int, Tensor] = {}

    def batch(self, step: int) -> Batch:
        places = torch.arange((step - 1) * self.size, step * self.size)
        chosen = torch.stack([self.order(int(p) // self.count)[int(p) % self.count] for p in places])
        now = {name: values[min(step, len(values)) - 1] for name, values in self.scalars.items()}
        return {name: tensor[chosen] for name, tensor in self.train.items()} | now

    def order(self, epoch: int) -> Tensor:
        if epoch not in self._orders:
            self._orders = {e: o for e, o in self._orders.items() if e >= epoch - 1}
            self._orders[epoch] = torch.randperm(self.count, generator=generator(self.seed, f"epoch {epoch}"))
        return self._orders[epoch]


class Made:
    """Batches from a user's iterator of mappings of tensors (or arrays); it starts again when it ends."""

    test: Batch | None = None

    def __init__(self, graph: TrainingGraph, spec: str, module: str, factory: str) -> None:
        self.graph, self.spec = graph, spec
        try:
            self.factory = getattr(importlib.import_module(module), factory)
        except Exception as problem:  # a user's module may fail in any way
            raise error("HAP710", f"{spec} can't be loaded: {problem}") from None
        self._iterator: Iterator[Mapping[str, object]] | None = None

    def batch(self, step: int) -> Batch:
        for _ in range(2):
            try:
                if self._iterator is None:
                    self._iterator = iter(self.factory())
                found = next(self._iterator)
                break
            except StopIteration:
                self._iterator = None
            except HapError:
                raise
            except Exception as problem:
                raise error("HAP710", f"{self.spec} failed: {type(problem).__name__}: {problem}") from None
        else:
            raise error("HAP710", f"{self.spec} returned no batch")
        if not isinstance(found, Mapping):
            raise error("HAP711", f"{self.spec} must return mappings from input to tensor, not {type(found).__name__}")
        made: Batch = {}
        for tensor in self.graph.of_kind("input"):
            if tensor.name not in found:
                raise error(
                    "HAP711", f"{self.spec} has no '{tensor.name}'", help=f"it has: {', '.join(map(str, found))}"
                )
            value = torch.as_tensor(found[tensor.name])
            if tuple(value.shape) != tensor.shape:
                raise error("HAP711", f"'{tensor.name}' of {self.spec} has shape {list(value.shape)}, expected {list(tensor.shape)}")  # fmt: skip
            made[tensor.name] = value.to(DTYPES[tensor.dtype])
        return made


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


def read_npz(path: str) -> dict[str, np.ndarray]:
    """The arrays of a file. Pickled objects are refused. Raises HapError HAP710."""
    try:
        with np.load(Path(path), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise error("HAP710", f"there is no file {path}") from None
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise error("HAP710", f"{path} can't be read as arrays: {reason}", help="write it with numpy.savez") from None


def fit(graph: TrainingGraph, arrays: Mapping[str, np.ndarray], what: str) -> Batch:
    """The samples of each input, in its dtype. Raises HapError HAP711."""
    made: Batch = {}
    for tensor in graph.of_kind("input"):
        if tensor.name not in arrays:
            raise error("HAP711", f"{what} has no array '{tensor.name}'", help=f"it has: {', '.join(arrays) or 'none'}")
        array = arrays[tensor.name]
        if array.ndim != max(1, len(tensor.shape)) or array.shape[1:] != tensor.shape[1:]:
            wanted = ", ".join(["samples" if tensor.shape else "steps", *map(str, tensor.shape[1:])])
            raise error("HAP711", f"'{tensor.name}' of {what} has shape {list(array.shape)}, expected [{wanted}]")
        if array.dtype.kind not in ("f" if tensor.dtype in FLOATS else "iub") + "iub":
            raise error("HAP711", f"'{tensor.name}' of {what} holds {array.dtype}, expected {tensor.dtype}")
        made[tensor.name] = torch.from_numpy(np.ascontiguousarray(array)).to(DTYPES[tensor.dtype])
    batch_size(graph)
    counts = {len(made[t.name]) for t in graph.of_kind("input") if t.shape}
    if len(counts) != 1 or not all(len(t) for t in made.values()):
        raise error("HAP711", f"the arrays of {what} hold different numbers of samples, or none")
    return made


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
