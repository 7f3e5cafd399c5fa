"""One operator call on one device, with everything that doesn't change from step to step worked out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hapdsl.graph.training import Node
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.run.context import Clock, Context, Ranges
from hapdsl.run.kernels import OVER, Kernel, resolve
from hapdsl.run.problems import named


@dataclass(frozen=True)
class Fixed:
    """A number in the place of an operand."""

    value: float


@dataclass(frozen=True)
class Call:
    """`slots` says which given operand fills each declared one, None where an optional one is left out; one that is given as a
    number is that number, wrapped. `attributes` are the others. Output j of the kernel is its operand `over[j]`, changed, where it
    has that."""

    node: Node
    kernel: Kernel
    context: Context
    slots: tuple[int | Fixed | None, ...]
    attributes: Mapping[str, Any]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    over: tuple[int, ...] = ()

    def __call__(self, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The local outputs; operands stay as they are. Where an index is empty here they are zeros, and no kernel runs.

        Raises HapError HAP705 for a kernel that fails, or returns something of another shape or dtype.
        """
        if self.context.is_empty:
            pairs = zip(self.shapes, self.dtypes, strict=True)
            return tuple(torch.zeros(shape, dtype=dtype, device=_device(operands)) for shape, dtype in pairs)
        arguments = [k.value if isinstance(k, Fixed) else None if k is None else operands[k] for k in self.slots]
        for at in self.over:
            arguments[at] = own(arguments[at])
        try:
            made = self.kernel(self.context, *arguments, **self.attributes)
        except HapError:
            raise
        except Exception as problem:  # a user's own may fail in any way
            raise self.failed(problem) from problem
        outputs = made if isinstance(made, tuple) else (made,)
        self.verify(outputs)
        return outputs

    @property
    def what(self) -> str:
        return f"the kernel of '{self.node.op}' (for {', '.join(self.node.outputs)})"

    def failed(self, problem: Exception) -> HapError:
        """HAP705 for what a kernel has raised."""
        return error("HAP705", f"{self.what} failed: {named(problem)}", self.node.span)

    def verify(self, outputs: tuple[Any, ...]) -> None:
        if len(outputs) != len(self.shapes):
            raise error(
                "HAP705", f"{self.what} returned {len(outputs)} tensors, expected {len(self.shapes)}", self.node.span
            )
        for made, shape, dtype in zip(outputs, self.shapes, self.dtypes, strict=True):
            if not isinstance(made, Tensor) or made.shape != shape or made.dtype != dtype:
                found = f"{made.dtype} {list(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
                raise error("HAP705", f"{self.what} returned {found}, expected {dtype} {list(shape)}", self.node.span)


def own(tensor: Any) -> Tensor:
    """A copy that a kernel may write over."""
    copy: Tensor = tensor.clone(memory_format=torch.contiguous_format)
    return copy


def _device(operands: Sequence[Tensor]) -> torch.device:
    return operands[0].device if operands else torch.device("cpu")


def prepare(
    node: Node,
    operands: Sequence[Ranges],
    results: Sequence[Ranges],
    clock: Clock,
    dtypes: Mapping[str, torch.dtype],
    allow: Set[str] = frozenset(),
) -> Call:
    """The call of `node` where a device holds these ranges. Raises HapError HAP700, HAP701 (no kernel)."""
    context = Context(node.instance, tuple(operands), tuple(results), clock, dtypes, node.turned)
    kernel = resolve(node.instance.decl, allow)
    shapes = tuple(tuple(r.length for r in ranges) for ranges in results)
    made = tuple(dtypes[name] for name in node.instance.result_dtypes)
    slots = _slots(node)
    fixed = {o.name for o in node.instance.decl.operands if o.default is not None}
    attributes = {n: v for n, v in node.instance.attributes.items() if n not in fixed}
    return Call(node, kernel, context, slots, attributes, shapes, made, OVER.get(kernel, ()))


def _slots(node: Node) -> tuple[int | Fixed | None, ...]:
    given = [g.operand for g in node.instance.given]
    slots: list[int | Fixed | None] = []
    for operand in node.instance.decl.operands:
        found = [k for k, name in enumerate(given) if name == operand.name]
        if found:
            slots += found
        else:
            slots.append(None if operand.default is None else Fixed(node.instance.attributes[operand.name]))
    while slots and slots[-1] is None:
        slots.pop()
    return tuple(slots)
