"""A module's forward pass as torch.export sees it: operators over fake tensors, no weights held."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from hapdsl.importing.nested import flatten
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.lang.nodes import NOWHERE, Span

PREFIX = "module."  # what `Tensors` puts before the module's own names
NO_RESULT = "the module returns no tensor that depends on its arguments"
RESULTS = "a forward pass returns tensors: one, a row of them, a mapping or a dataclass"


@dataclass(frozen=True)
class Origin:
    """Where an operator came from: the module that called it and the line of source."""

    path: str = ""
    span: Span = NOWHERE

    def __str__(self) -> str:
        where = f"{Path(self.span.file).name}:{self.span.line}" if self.span.file else ""
        return ", ".join(x for x in (f"in {self.path}" if self.path else "", where) if x)


@dataclass
class Traced:
    """An exported module. `names` maps a placeholder to (kind, the module's own name), kind one of param, frozen, buffer and input;
    `outputs` are the names of what the module returns, in the order of the graph's output; `held` finds a buffer's own tensor."""

    graph: torch.fx.Graph
    names: dict[str, tuple[str, str]]
    outputs: list[str]
    held: Mapping[str, Tensor]
    module: nn.Module


class Tensors(nn.Module):
    """A module whose results are named tensors only: a cache, hidden states and other objects are left out.

    With `loss`, the first result and the argument `target` go through it, and the loss comes first.
    """

    def __init__(self, module: nn.Module, loss: Callable[..., Tensor] | None = None, target: str = "") -> None:
        super().__init__()
        self.module = module
        self.loss, self.target = loss, target

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        label = kwargs.pop(self.target) if self.loss is not None else None
        found = dict(named_tensors(self.module(*args, **kwargs)))
        if self.loss is not None:
            first = next(iter(found.values()), None)
            if first is None:
                raise error("HAP873", NO_RESULT, help=RESULTS)
            found = {"loss": self.loss(first, label), **found}
        return found


def named_tensors(result: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors of what a module returns: a tensor, a row, a mapping or a dataclass of some."""
    if isinstance(result, Tensor):
        yield "y", result
    elif isinstance(result, Mapping):
        yield from ((str(k), v) for k, v in result.items() if isinstance(v, Tensor))
    elif isinstance(result, Sequence):
        yield from ((f"y{k}", v) for k, v in enumerate(result) if isinstance(v, Tensor))
    elif hasattr(result, "__dataclass_fields__"):
        yield from ((k, v) for k in result.__dataclass_fields__ if isinstance(v := getattr(result, k), Tensor))


def trace(
    module: nn.Module,
    arguments: Mapping[str, Any],
    called: Mapping[str, str] | None = None,
    loss: Callable[..., Tensor] | None = None,
    target: str = "",
) -> Traced:
    """Export `module` called with arguments by name; `called` are other names for some of them.

    Parameters may be on the meta device. Raises HapError: HAP872 arguments that don't fit, HAP873 what torch.export can't follow.
    """
    wrapped = Tensors(module, loss, target)
    wrapped.training = module.training
    try:
        with _quiet(), _allocating_nothing(wrapped, arguments) as given:
            program = torch.export.export(wrapped, (), given, strict=False)
    except HapError:
        raise
    except Exception as problem:  # a user's module may fail in any way
        raise _explained(problem) from None
    signature = program.graph_signature
    names: dict[str, tuple[str, str]] = {}
    parameters = dict(wrapped.named_parameters(remove_duplicate=False))
    words = _words(arguments, called or {})
    shared = _first_names(wrapped)
    for spec in signature.input_specs:
        name, target_name = getattr(spec.arg, "name", ""), (spec.target or "").removeprefix(PREFIX)
        kind = spec.kind.name
        if kind == "PARAMETER":
            names[name] = (
                "param" if parameters[spec.target or ""].requires_grad else "frozen",
                shared.get(spec.target or "", target_name),
            )
        elif kind == "USER_INPUT":
            names[name] = ("input", next(words, name))
        elif kind in ("BUFFER", "CONSTANT_TENSOR"):
            names[name] = ("buffer", target_name)
    held = {n.removeprefix(PREFIX): b for n, b in wrapped.named_buffers(remove_duplicate=False)}
    held |= {n.removeprefix(PREFIX): c for n, c in program.constants.items() if isinstance(c, Tensor)}
    outputs = _output_names(program)
    flatten(program.graph)
    _sliced(program.graph)
    return Traced(program.graph, names, outputs, held, module)


def _words(arguments: Mapping[str, Any], called: Mapping[str, str]) -> Iterator[str]:
    """What the inputs of an exported graph are called, in its order; those of an argument that holds several are numbered."""
    for name, value in arguments.items():
        word, parts = called.get(name, name), tree_leaves(value)
        yield from [word] if parts == [value] or len(parts) == 1 else [f"{word}.{k}" for k in range(len(parts))]


def _sliced(graph: torch.fx.Graph) -> None:
    """`narrow` as the slice that it is: what holds for positions in a dim holds for its own."""
    for node in graph.nodes:
        if str(node.target) == "aten.narrow.default":
            x, d, start, length = node.args
            start += x.meta["val"].shape[d] if start < 0 else 0
            node.target, node.args = torch.ops.aten.slice.Tensor, (x, d, start, start + length)


def _slots(module: nn.Module) -> tuple[Mapping[str, Tensor | None], ...]:
    return module._parameters, module._buffers


@contextlib.contextmanager
def _allocating_nothing(module: nn.Module, arguments: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The arguments for export. What is on the meta device stands there as a fake tensor of the CPU: meta tensors don't mix with
    the positions and masks that a forward pass makes, and fake ones hold no content either."""
    held: list[tuple[Any, str, Tensor]] = [
        (slots, n, t) for m in module.modules() for slots in _slots(m) for n, t in slots.items() if t is not None
    ]
    on_meta = [entry for entry in held if entry[2].is_meta]
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    real = next((t.device for _, _, t in held if not t.is_meta), torch.device("cpu"))

    def given(t: Any) -> Any:
        if not isinstance(t, Tensor):
            return t
        if not on_meta and not t.is_meta:
            return t
        with mode:
            return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu" if on_meta else real)

    try:
        fakes: dict[int, Tensor] = {}  # a tied parameter stays one
        for slots, name, tensor in on_meta:
            if id(tensor) not in fakes:
                fake = given(tensor)
                fakes[id(tensor)] = (
                    nn.Parameter(fake, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else fake
                )
            slots[name] = fakes[id(tensor)]
        yield {n: tree_map(given, t) for n, t in arguments.items()}
    finally:
        for slots, name, tensor in on_meta:
            slots[name] = tensor


def _first_names(wrapped: nn.Module) -> dict[str, str]:
    """A tied parameter has several names; it is called after the first, as by `named_parameters`."""
    first: dict[int, str] = {}
    return {
        n: first.setdefault(id(p), n).removeprefix(PREFIX) for n, p in wrapped.named_parameters(remove_duplicate=False)
    }


def _output_names(program: Any) -> list[str]:
    spec = program.call_spec.out_spec
    return [str(k) for k in spec.context] if spec is not None and isinstance(spec.context, list) else []


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Export's narration is not for users of hapdsl; what fails is raised all the same."""
    loggers = [
        logging.getLogger(n)
        for n in ("torch", "torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")
    ]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings(), contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _explained(problem: Exception) -> HapError:
    """What export couldn't follow, at the line of the module that asked for it."""
    span = own_line(problem)
    said = str(problem).strip().splitlines()
    words = said[0][:300] if said else type(problem).__name__
    kind = type(problem).__name__
    if "DataDependent" in kind or "data-dependent" in words:
        message = "the forward pass branches on (or takes the size of) values that only exist when it runs"
        return error(
            "HAP873",
            message,
            span,
            "choose without looking at data: torch.where, a mask, or a switch set before the import",
        )
    if isinstance(problem, TypeError) and "forward()" in words:
        return error("HAP872", f"the example doesn't fit the module: {words}", span, "--example \"x : f32[8, 16]\", one entry for each argument of forward, by its name")  # fmt: skip
    if isinstance(problem, RuntimeError | ValueError | IndexError) and "export" not in words.lower():
        return error(
            "HAP872",
            f"the module can't be called with this example: {words}",
            span,
            "the shapes and dtypes of --example are those of one real batch",
        )
    return error("HAP873", f"torch.export can't follow the module: {kind}: {words}", span, "export the module by itself to see more: torch.export.export(module, args)")  # fmt: skip


def own_line(problem: BaseException) -> Span:
    """The innermost line of the traceback that stands neither in torch nor in Python's import system, nor here."""
    others = tuple(f"{Path(file).parent}{os.sep}" for file in (torch.__file__, importlib.__file__, __file__))
    for frame in reversed(traceback.extract_tb(problem.__traceback__)):
        own = not frame.filename.startswith((*others, "<"))
        if own and "site-packages/sympy" not in frame.filename and frame.lineno:
            return Span(frame.filename, frame.lineno, 1, frame.lineno, 2)
    return NOWHERE


def origin(node: torch.fx.Node) -> Origin:
    """Where a node of the exported graph came from."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    path = "" if path == PREFIX.rstrip(".") else path.removeprefix(PREFIX)
    span = NOWHERE
    package = f"{Path(torch.__file__).parent}{os.sep}"  # not torchvision's, which begins alike
    for line in (node.meta.get("stack_trace") or "").splitlines():
        if line.strip().startswith('File "'):
            file = line.split('"')[1]
            number = line.split(", line ")[1].split(",")[0]
            if not file.startswith(package) and Path(file) != Path(__file__):
                span = Span(file, int(number), 1, int(number), 2)
    return Origin(path, span)
