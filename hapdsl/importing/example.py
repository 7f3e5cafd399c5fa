"""What a module is called with: tensors by name, shapes with symbols.

"input_ids : i64[batch = 8, seq = 128]; labels : i64[batch, seq]; use_cache = false"
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from hapdsl.importing.atoms import Atom
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.lang.parse import parse
from hapdsl.run.context import DTYPES

FORM = '--example "x : f32[batch = 8, 16]; label : i64[batch]"'


@dataclass
class Example:
    """Arguments of a module's forward, by position and by name. `dims` names dims of tensors: {"x": ["batch", None]}."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, list[str | None]] = field(default_factory=dict)


def read(text: str, device: str = "meta") -> Example:
    """The example that a text describes, as tensors without content. Raises HapError HAP872 for a text that describes none."""
    found = Example()
    known: dict[str, int] = {}
    for piece in (p.strip() for p in text.split(";")):
        if not piece:
            continue
        name, colon, rest = (word.strip() for word in piece.partition(":"))
        if not colon:
            name, equals, rest = (word.strip() for word in piece.partition("="))
            if not equals:
                raise error("HAP872", f"'{piece}' is no argument", help=FORM)
        if not name.isidentifier() or name in found.kwargs:
            what = "is there twice" if name in found.kwargs else "is no name of an argument"
            raise error("HAP872", f"'{name}' {what}", help=FORM)
        if not colon:
            found.kwargs[name] = _plain(rest)
            continue
        kind, shape, symbols = _type(rest, known)
        found.kwargs[name] = torch.empty(shape, dtype=DTYPES[kind], device=device)
        found.dims[name] = symbols
    if not found.dims:
        raise error("HAP872", "the example has no tensor", help=FORM)
    return found


def _plain(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text.strip('"')


def _type(text: str, known: dict[str, int]) -> tuple[str, list[int], list[str | None]]:
    dtype, bracket, rest = text.partition("[")
    if not bracket or not rest.endswith("]") or dtype.strip() not in DTYPES:
        raise error("HAP872", f"'{text}' is no type of a tensor", help=f"{FORM}; dtypes are {', '.join(DTYPES)}")
    shape: list[int] = []
    symbols: list[str | None] = []
    for entry in (e.strip() for e in rest[:-1].split(",")):
        if not entry:
            continue
        name, equals, value = (x.strip() for x in entry.partition("="))
        if not equals and name.isdecimal():
            shape.append(int(name))
            symbols.append(None)
            continue
        if not name.isidentifier() or not (value.isdecimal() if equals else name in known):
            raise error("HAP872", f"the dim '{entry}' has no length", help=FORM)
        if equals:
            known[name] = int(value)
        shape.append(known[name])
        symbols.append(name)
    if any(n < 1 for n in shape):
        raise error("HAP872", f"'{text}' has a dim of 0", help=FORM)
    return dtype.strip(), shape, symbols


def bound(example: Example, module: nn.Module, target: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """Arguments by the names that forward gives them, and what the example calls those that it names otherwise.

    A name that forward doesn't have stands for its next open argument: `x` for the `input` of a Sequential. Raises HapError HAP872.
    """
    declared = list(inspect.signature(module.forward).parameters.values())
    plain = [p.name for p in declared if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    words = {p.name for p in declared if p.kind is p.KEYWORD_ONLY}
    rest = any(p.kind is p.VAR_KEYWORD for p in declared)
    found: dict[str, Any] = {}
    called: dict[str, str] = {}
    if len(example.args) > len(plain):
        raise error("HAP872", f"the example has {len(example.args)} arguments, forward takes {len(plain)}", help=FORM)
    found.update(zip(plain, example.args, strict=False))
    for name, value in example.kwargs.items():
        if name == target or name in plain or name in words:
            found[name] = value
    for name, value in example.kwargs.items():
        if name in found:
            continue
        free = next((p for p in plain if p not in found), None)
        if free is not None and not rest:
            found[free], called[free] = value, name
        elif rest:
            found[name] = value
        else:
            known = ", ".join([*plain, *words])
            raise error("HAP872", f"forward has no argument '{name}'", help=f"it has: {known or 'none'}")
    missing = [
        p.name
        for p in declared
        if p.name not in found and p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if missing:
        raise error("HAP872", f"the example has no '{missing[0]}', which forward needs", help=FORM)
    order = list(example.kwargs)
    own = {n: called.get(n, n) for n in found}
    return dict(sorted(found.items(), key=lambda e: order.index(own[e[0]]) if own[e[0]] in order else -1)), called


def of(given: Any) -> Example:
    """An example that is given as tensors: one, a row of them, or a mapping by argument."""
    if isinstance(given, Example):
        return given
    if isinstance(given, str):
        return read(given)
    if isinstance(given, Tensor):
        return Example((given,))
    if isinstance(given, Mapping):
        return Example((), dict(given))
    if isinstance(given, tuple | list):
        return Example(tuple(given))
    raise error("HAP872", f"an example is a text, tensors or a mapping of some, not {type(given).__name__}", help=FORM)


def named_dims(example: Example, inputs: Mapping[str, Tensor]) -> dict[str, list[str | None]]:
    """The names of dims where the example gives none: the first dim that all inputs share is the batch, the second of whole numbers
    a sequence."""
    if example.dims:
        return example.dims
    sizes = [t.shape[0] for t in inputs.values() if t.dim()]
    batch = sizes[0] if sizes and all(n == sizes[0] for n in sizes) else None
    found: dict[str, list[str | None]] = {}
    seq: int | None = None
    for name, t in inputs.items():
        dims: list[str | None] = [None] * t.dim()
        if t.dim() and t.shape[0] == batch:
            dims[0] = "batch"
        if t.dim() == 2 and not t.is_floating_point() and seq in (None, t.shape[1]):
            seq = t.shape[1]
            dims[1] = "seq"
        found[name] = dims
    return found


def atoms(
    dims: Mapping[str, list[str | None]], inputs: Mapping[str, Tensor]
) -> tuple[dict[str, list[Atom]], dict[str, Atom]]:
    """An atom for each dim of each input, one for each symbol; and the symbols."""
    symbols: dict[str, Atom] = {}
    found: dict[str, list[Atom]] = {}
    for name, tensor in inputs.items():
        row = []
        for symbol, extent in zip(dims.get(name, [None] * tensor.dim()), tensor.shape, strict=False):
            if symbol is None:
                row.append(Atom(int(extent)))
                continue
            atom = symbols.setdefault(symbol, Atom(int(extent)))
            if atom.size != extent:
                raise error(
                    "HAP872", f"dim '{symbol}' is {atom.size} in one input and {int(extent)} in '{name}'", help=FORM
                )
            row.append(atom)
        found[name] = row
    return found, symbols


def optimizer(text: str) -> nodes.Call:
    """`adam(lr = 0.001)` as a node. Raises HapError HAP878 for what is no call."""
    try:
        tree = parse(f"model m {{\n    train loss with {text}\n}}\n", "--optimizer")
    except HapError as problem:
        raise error(
            "HAP878",
            f"'{text}' is no optimizer: {problem.diagnostics[0].message}",
            help='--optimizer "adamw(lr = 0.0003)"',
        ) from None
    model = tree.items[0]
    assert isinstance(model, nodes.Model)
    train = model.body[0]
    assert isinstance(train, nodes.Train)
    return train.optimizer
