"""First values of parameters and state, and random inputs. Each tensor has a generator of its own, keyed by
the seed and its name, so neither their order nor which process makes them matters."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hapdsl.graph.training import Tensor as Declared
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import error
from hapdsl.run.context import dtypes_at
from hapdsl.run.samples import INTEGERS
from hapdsl.theory.dtypes import FLOATS


def generator(seed: int, name: str) -> torch.Generator:
    """A CPU generator for one tensor."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def initial(
    graph: TrainingGraph,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    names: Iterable[str] | None = None,
    given: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Global first values of all parameters, buffers and state (or of `names`).

    `given` are values that are known, of parameters as a rule; master copies of them are copies of these. The numbers don't depend on the
    precision: f64 values are drawn, then rounded. Raises HapError HAP710, HAP711 for a table that isn't there or doesn't fit.
    """
    wanted = None if names is None else set(names)
    kinds = ("param", "frozen", "buffer", "state")
    known, own = given or {}, dtypes_at(dtype)
    found = {
        t.name: known[t.name].to(own[t.dtype]) if t.name in known else first(t, seed, dtype)
        for t in graph.of_kind(*kinds)
        if wanted is None or t.name in wanted
    }
    for tensor in graph.of_kind("state"):
        kind, arguments = tensor.init or ("", {})
        if kind == "copy" and tensor.name in found and arguments["of"] in known and tensor.name not in known:
            found[tensor.name] = found[arguments["of"]].to(found[tensor.name].dtype)
    return found


class Initial(Mapping[str, Tensor]):
    """The same values, each made when it is asked for and not kept: a rank that cuts its shares never holds a model whole."""

    def __init__(self, graph: TrainingGraph, seed: int = 0, dtype: torch.dtype | None = None) -> None:
        self._tensors = {t.name: t for t in graph.of_kind("param", "frozen", "buffer", "state")}
        self._seed, self._dtype = seed, dtype

    def __getitem__(self, name: str) -> Tensor:
        return first(self._tensors[name], self._seed, self._dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def first(tensor: Declared, seed: int, dtype: torch.dtype | None = None) -> Tensor:
    """The first value of one tensor by its initialiser."""
    name, arguments = tensor.init or ("zeros", {})
    shape = tensor.shape
    draw = generator(seed, tensor.name)
    match name:
        case "copy":  # of a parameter, as it is held
            of = replace(tensor, name=arguments["of"], init=arguments["init"], dtype=arguments["dtype"])
            value = first(of, seed, dtype)
        case "zeros":
            value = torch.zeros(shape, dtype=torch.float64)
        case "ones":
            value = torch.ones(shape, dtype=torch.float64)
        case "constant":
            value = torch.full(shape, float(_argument(arguments, 0, "value", 0.0)), dtype=torch.float64)
        case "normal":
            std, mean = _argument(arguments, 0, "std", 0.02), _argument(arguments, 1, "mean", 0.0)
            value = torch.randn(shape, generator=draw, dtype=torch.float64) * std + mean
        case "uniform":
            bound = float(_argument(arguments, 0, "bound", 0.02))
            value = (torch.rand(shape, generator=draw, dtype=torch.float64) * 2 - 1) * bound
        case "xavier":
            bound = math.sqrt(6 / max(1, sum(_fans(shape))))
            value = (torch.rand(shape, generator=draw, dtype=torch.float64) * 2 - 1) * bound
        case _:
            assert name == "table", name
            value = table(tensor)
    return value.to(dtypes_at(dtype)[tensor.dtype])


def table(tensor: Declared) -> Tensor:
    """Numbers that a text can't say, from the file beside it: FILE.hap.npz, under the tensor's name. Raises HapError HAP710, HAP711."""
    from hapdsl.run.data import from_numpy, read_npz  # which draws random data here

    beside = f"{tensor.span.file}.npz"
    held = read_npz(beside)
    name = tensor.name if tensor.name in held else re.sub(r"(^|\.)_(?=\d)", r"\1", tensor.name)
    if name not in held:
        raise error("HAP711", f"{beside} has no '{tensor.name}'", tensor.span, f"it has: {', '.join(held)}")
    found = from_numpy(held[name])
    if found is None:
        raise error("HAP711", f"'{tensor.name}' of {beside} holds {held[name].dtype}, expected numbers", tensor.span)
    if found.numel() != math.prod(tensor.shape):
        raise error(
            "HAP711",
            f"'{tensor.name}' of {beside} has shape {list(found.shape)}, expected {list(tensor.shape)}",
            tensor.span,
            "such a text is for the sizes it was imported at",
        )
    return found.reshape(tensor.shape)


def _argument(arguments: Mapping[str, Any], place: int, name: str, default: float) -> float:
    return float(arguments.get(name, arguments.get(str(place), default)))


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Inputs and outputs of a weight [in, out], or of a kernel [out, in, height, width]."""
    if len(shape) < 2:
        return math.prod(shape), math.prod(shape)
    if len(shape) == 4:
        return shape[1] * shape[2] * shape[3], shape[0] * shape[2] * shape[3]
    return math.prod(shape[:-1]), shape[-1]


def random_inputs(graph: TrainingGraph, seed: int = 0, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Random global inputs of a whole batch: normal floats, and integers below what their readers allow (`bounds`)."""
    graph = graph.undivided
    made = {}
    for tensor in graph.of_kind("input"):
        draw = generator(seed, f"input/{tensor.name}")
        own = dtypes_at(dtype)[tensor.dtype]
        if tensor.dtype in FLOATS:
            made[tensor.name] = torch.randn(tensor.shape, generator=draw, dtype=torch.float64).to(own)
        else:
            top = 2 if tensor.dtype == "bool" else bound(graph, tensor.name)
            made[tensor.name] = torch.randint(top, tensor.shape, generator=draw).to(own)
    return made


# Operators that pass such numbers on.
_PASSING = ("reshape", "rearrange", "transpose", "slice", "cast", "concat")


def bound(graph: TrainingGraph, tensor: str) -> int:
    """Integers of `tensor` must be below this: the smallest number of classes or rows that its readers have, else 2."""
    found: list[int] = []
    for k in graph.readers.get(tensor, ()):
        node = graph.nodes[k]
        for given, name in zip(node.instance.given, node.inputs, strict=True):
            index = INTEGERS.get(node.op, {}).get(given.operand)
            if name == tensor and index:
                found.append(node.instance.extents[index])
        if node.op in _PASSING:
            found.append(bound(graph, node.outputs[0]))
    return min(found, default=2)
