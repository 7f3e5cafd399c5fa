"""The table of kernels, and how a declaration's `torch "…"` finds its function."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Set
from typing import Any

import torch

from hapdsl.lang.diagnostics import error
from hapdsl.lang.near import near
from hapdsl.theory.ops import OpDecl

Kernel = Callable[..., Any]  # (Context, *operands, **attributes) -> Tensor | tuple[Tensor, ...]
KERNELS: dict[str, Kernel] = {}
OVER: dict[Kernel, tuple[int, ...]] = {}  # of kernels that write: output j is operand OVER[kernel][j], changed

# Where a `torch "torch.…"` may point: functions on tensors. Nothing else of torch (files, hub, compilation)
# is reachable from a text.
_TORCH = {
    "torch": torch,
    "torch.nn.functional": torch.nn.functional,
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
}
_FILES = {"from_file"}


def kernel(function: Kernel) -> Kernel:
    """Register a kernel under its name, less a trailing underscore (for names that Python keeps: `sum_`)."""
    KERNELS[function.__name__.rstrip("_")] = function
    return function


def writes(*operands: int) -> Callable[[Kernel], Kernel]:
    """Register a kernel that changes these operands in place and returns them. Whoever calls it gives copies of those that must stay."""

    def register(function: Kernel) -> Kernel:
        OVER[function] = operands
        return kernel(function)

    return register


def resolve(decl: OpDecl, allow: Set[str] = frozenset()) -> Kernel:
    """The kernel of a declaration. `allow` are the modules that the command line names.

    Raises HapError: HAP700 no such function, or one that a text may not call, HAP701 a module that can't be imported.
    """
    if decl.torch is None:
        raise error(
            "HAP700", f"'{decl.name}' says nowhere what computes it", decl.span, 'add `torch "torch.…"` to the op'
        )
    module, _, name = decl.torch.rpartition(".")
    if module == "hapdsl":
        if name not in KERNELS:
            how = f"hapdsl's own are functions with @kernel in hapdsl/run/kernels/; for one of torch's write `torch \"torch.{name}\"`"
            raise error("HAP700", f"hapdsl has no kernel '{name}'", decl.span, near(name, KERNELS, how))
        return KERNELS[name]
    if module in _TORCH:
        return _plain(_torch_function(decl, module, name))
    if module in allow:
        return _foreign(decl, module, name)
    where = f"name its module on the command line: --allow {module}" if module else 'write `torch "torch.…"`'
    raise error("HAP700", f"'{decl.torch}' is outside torch and hapdsl", decl.span, where)


def _plain(function: Callable[..., Any]) -> Kernel:
    """A torch function as a kernel: it needs no context, and omitted optional operands aren't passed."""

    def call(_: Any, *operands: Any, **attributes: Any) -> Any:
        return function(*(o for o in operands if o is not None), **attributes)

    return call


def _torch_function(decl: OpDecl, module: str, name: str) -> Callable[..., Any]:
    found = getattr(_TORCH[module], name, None)
    native = module != "torch" or hasattr(torch._C._VariableFunctions, name)
    hidden = name.startswith("_") or name.endswith("_") or name in _FILES or isinstance(found, type)
    if not callable(found) or not native or hidden or "inplace" in decl.attributes:
        raise error("HAP700", f"'{decl.torch}' is no function on tensors", decl.span, "functions of torch, torch.nn.functional, .special, .linalg and .fft that change nothing in place may be called")  # fmt: skip
    return found


def _foreign(decl: OpDecl, module: str, name: str) -> Kernel:
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception as problem:  # the user's own module may fail in any way; say which, without a traceback
        raise error("HAP701", f"module '{module}' can't be imported: {problem}", decl.span) from None
    if not callable(found):
        raise error("HAP700", f"module '{module}' has no function '{name}'", decl.span)
    kernel: Kernel = found
    return kernel
