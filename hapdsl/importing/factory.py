"""PACKAGE.MODULE:FACTORY: the module that a user asks for.

The named module is imported and the factory is called, so their code runs: that is what the verb is asked to do. Nothing else is
imported, and no weights are needed: parameters are made on the meta device, where they have shapes and no content.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hapdsl.importing.trace import own_line
from hapdsl.lang.diagnostics import HapError, error

# Filled with random numbers or left as they are: what is made so are weights, which the text doesn't need.
_CONTENTLESS = {torch.empty, torch.rand, torch.randn, torch.empty_strided, torch.normal}


class _Meta(TorchFunctionMode):
    """Tensors without given content are made on the meta device; tables and masks keep their numbers."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        by_tensors = any(
            isinstance(a, Tensor) for a in (*args, *kwargs.values())
        )  # these say the device, or are written into
        if func in _CONTENTLESS and not by_tensors:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


def find(spec: str) -> Any:
    """What PACKAGE.MODULE:FACTORY names. Raises HapError HAP870."""
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise error(
            "HAP870",
            f"'{spec}' doesn't name a factory",
            help="PACKAGE.MODULE:FACTORY, a function (or class) that returns an nn.Module",
        )
    if "" not in sys.path:
        sys.path.insert(0, "")  # as with `python -m`: modules beside the user
    try:
        found: Any = importlib.import_module(module)
    except (
        Exception,
        SystemExit,
    ) as problem:  # the user's own module may fail in any way; say which, without a traceback
        raise error(
            "HAP870", f"module '{module}' can't be imported: {type(problem).__name__}: {problem}", own_line(problem)
        ) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise error(
                "HAP870",
                f"module '{module}' has no '{name}'",
                help="PACKAGE.MODULE:FACTORY, a function (or class) that returns an nn.Module",
            )
        found = getattr(found, part)
    return found


@contextmanager
def without_weights() -> Iterator[None]:
    """Parameters made in here have shapes and dtypes, and no content."""
    register = nn.Module.register_parameter

    def on_meta(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and not param.is_meta:
            param = nn.Parameter(param.detach().to("meta"), requires_grad=param.requires_grad)
        register(self, name, param)

    nn.Module.register_parameter = on_meta  # type: ignore[method-assign]
    try:
        with _Meta():
            yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def make(factory: Any, spec: str, weights: bool = False) -> nn.Module:
    """The factory's module, on the meta device unless its weights are wanted. Raises HapError: HAP870 a factory that fails, HAP871 that
    returns none."""
    try:
        with nullcontext() if weights else without_weights():
            found = factory if isinstance(factory, nn.Module) else factory()
    except HapError:
        raise
    except (Exception, SystemExit) as problem:  # as above
        raise error("HAP870", f"{spec} fails: {type(problem).__name__}: {problem}", own_line(problem)) from None
    if not isinstance(found, nn.Module):
        raise error(
            "HAP871",
            f"{spec} returns {type(found).__name__}, and no nn.Module",
            help="a factory takes no arguments and returns the module: def factory(): return Net(…)",
        )
    return found
