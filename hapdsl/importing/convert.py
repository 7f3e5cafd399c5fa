"""An nn.Module and an example of its arguments, to a model's text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hapdsl.importing import example as examples
from hapdsl.importing import (
    lengths,
    on_attention,
    on_borders,
    on_chance,
    on_choices,
    on_classes,
    on_declared,
    on_distances,
    on_experts,
    on_images,
    on_indexing,
    on_layout,
    on_losses,
    on_masks,
    on_matrices,
    on_numbers,
    on_overwritten,
    on_recurrent,
)
from hapdsl.importing.atoms import Atom
from hapdsl.importing.build import Builder
from hapdsl.importing.clean import clean
from hapdsl.importing.handlers import HANDLERS
from hapdsl.importing.names import Symbols, find_parts
from hapdsl.importing.text import Writer
from hapdsl.importing.trace import NO_RESULT, RESULTS, Traced, trace
from hapdsl.importing.values import Statement, Value
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.lang.print import to_text
from hapdsl.theory.dtypes import FLOATS
from hapdsl.theory.ops import OpDecl

# Imported for what that does: they fill the table of handlers.
assert (
    on_attention
    and on_borders
    and on_chance
    and on_choices
    and on_classes
    and on_distances
    and on_experts
    and on_images
    and on_indexing
    and on_losses
    and on_masks
    and on_layout
    and on_matrices
    and on_numbers
    and on_overwritten
    and on_recurrent
)

Loss = Callable[..., Tensor]
LOSSES: Mapping[str, Loss] = {
    "cross_entropy": nn.functional.cross_entropy,
    "mse_loss": nn.functional.mse_loss,
}
OPTIMIZER = "adam(lr = 0.001)"


@dataclass
class Imported:
    """A model's text, with the model's name. `tables` are constants of the module that the text can't say, `shapes` the shape that the
    state_dict has of each parameter, `unused` the parameters that nothing reads, `remarks` what somebody
    should know who runs the text at other lengths, `trains` whether it has a loss to be trained by."""

    text: str
    model: str
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    tables: dict[str, Tensor] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    operators: int = 0
    remarks: list[str] = field(default_factory=list)
    trains: bool = True


def import_module(
    module: nn.Module,
    example: Any,
    name: str = "model",
    loss: str | Loss | None = None,
    target: str = "label",
    optimizer: str = OPTIMIZER,
    note: str = "",
    ops: str | Path | None = None,
) -> Imported:
    """The text of `module`, called as `example` says (a text, tensors, or a mapping of some).

    The loss is the module's own (a scalar among its results, called `loss` or first), or `loss` of its first result and the example's
    `target`. Without either the model is for evaluation. `ops` is a file with operators for functions that the theory doesn't know;
    they go into the text. Weights may be on the meta device; nothing is run. Raises HapError HAP87x.
    """
    if not isinstance(module, nn.Module):
        raise error("HAP871", f"a {type(module).__name__} is no nn.Module", help="give the module itself: Net(…)")
    call = examples.optimizer(optimizer)
    given = examples.of(example)
    traced, atoms, words, remarks = _exported(module, given, _loss(loss, target, given), target)
    declared, blocks = on_declared.read(ops) if ops is not None else ({}, [])
    builder = Builder(traced, _handlers(declared), atoms)
    builder.run()
    found, outputs = _results(builder)
    if found is None and not outputs:
        raise error("HAP873", NO_RESULT, help=RESULTS)
    if found is not None and not _freeze(builder, found):
        outputs = [("loss", found), *outputs]  # nothing to train: the loss is an output like the others
        found = None
    live = _live(
        builder.statements, [v for _, v in outputs] + ([found] if found is not None else []), found is not None
    )
    symbols = Symbols({n: (a,) for n, a in words.items()}, taken=[*builder.declared], measured=builder.measured)
    find_parts(symbols, live, builder.declared)
    writer = Writer(builder, symbols, live, call if found is not None else None)
    read = {id(t) for s in live for t in s.operands}
    unused = [
        own
        for kind, own in traced.names.values()
        if kind == "param" and not _is_trained(builder, own, read, found is not None)
    ]
    model = writer.model(name, found, outputs, _note(note, unused, remarks))
    shapes = {d.name: d.shape for d in builder.declared.values() if d.kind != "input" and id(d.tensor) in read}
    tables = {n: t for n, t in builder.tables.items() if n in shapes}
    used = {s.op for s in live} & set(declared)  # with them their gradients, which the file declares, too
    blocks_first: tuple[nodes.Op | nodes.Def | nodes.Model, ...] = (*(blocks if used else ()), *writer.defs, model)
    if ops is not None and not used:
        remarks.append(f"{ops} isn't needed: the module calls none of its operators")
    items = tuple(replace(block, gap=k > 0) for k, block in enumerate(blocks_first))
    text = to_text(nodes.File(items))
    trains = found is not None
    return Imported(text, name, shapes, tables, list(dict.fromkeys(unused)), len(live), remarks, trains)


def _loss(loss: str | Loss | None, target: str, given: examples.Example) -> Loss | None:
    """The function that a loss is named by. Raises HapError: HAP878 no such loss, HAP872 an example without the target."""
    function = LOSSES.get(loss) if isinstance(loss, str) else loss
    if isinstance(loss, str) and function is None:
        raise error(
            "HAP878", f"there is no loss '{loss}'", help=f"known: {', '.join(LOSSES)}; or a loss of the module's own"
        )
    if function is not None and target not in given.kwargs:
        raise error(
            "HAP872", f"the example has no '{target}' for the loss", help=f"add `{target} : i64[batch]` to --example"
        )
    return function


def _exported(
    module: nn.Module, given: examples.Example, loss: Loss | None, target: str
) -> tuple[Traced, dict[str, list[Atom]], dict[str, Atom], list[str]]:
    """The exported module, cleaned; the atoms of each input's dims and of each named dim; and what is to be remarked on."""
    arguments, called = examples.bound(given, module, target if loss is not None else "")
    traced = trace(module, arguments, called, loss, target)
    inputs = {own: node.meta["val"] for node in traced.graph.nodes if (own := _input(traced.names, node)) is not None}
    dims = examples.named_dims(given, inputs)
    atoms, words = examples.atoms(dims, inputs)

    def retrace(sizes: dict[str, int]) -> Traced:
        return trace(module, lengths.resized(arguments, called, dims, sizes), called, loss, target)

    remarks = lengths.find(traced, words, retrace)
    clean(traced.graph)
    return traced, atoms, words, remarks


def _handlers(declared: Mapping[str, OpDecl]) -> Callable[[str], Callable[..., Any] | None]:
    """What translates an exported operator: a user's own declaration before anything else."""

    def handler(name: str) -> Callable[..., Any] | None:
        decl = on_declared.find(declared, name)
        if decl is None:
            return HANDLERS.get(name)
        return lambda b, node, *args, **kwargs: on_declared.call(b, node, decl, args, kwargs)

    return handler


def _input(names: Mapping[str, tuple[str, str]], node: torch.fx.Node) -> str | None:
    kind, own = names.get(node.name, ("", ""))
    return own if node.op == "placeholder" and kind == "input" and isinstance(node.meta.get("val"), Tensor) else None


def _results(builder: Builder) -> tuple[Value | None, list[tuple[str, Value]]]:
    """The loss, and the other results in the shapes that the module gives them."""
    found = builder.known_outputs
    scalars = [(n, v) for n, v in found if not v.dims and v.dtype in FLOATS and v.tensor.statement is not None]
    loss = next((v for n, v in scalars if n == "loss"), scalars[0][1] if scalars else None)
    others = [(n, builder.logical(v)) for n, v in found if v is not loss]
    return None if loss is None else builder.logical(loss), others


def _live(statements: list[Statement], results: list[Value], training: bool) -> list[Statement]:
    """What the results depend on and, in training, the buffers after a step."""
    wanted = {id(v.tensor) for v in results} | {id(s.result) for s in statements if s.updates and training}
    for s in reversed(statements):
        if any(id(t) in wanted for t in s.makes):
            wanted.update(id(t) for t in s.operands)
    return [s for s in statements if any(id(t) in wanted for t in s.makes)]


def _freeze(builder: Builder, loss: Value) -> bool:
    """Parameters to which no gradient comes from the loss (other results read them, or it reads what is detached) stay as they are.
    Is anything trained?"""
    reached = {id(loss.tensor)}
    for s in reversed(builder.statements):
        if any(id(t) in reached for t in s.makes):
            reached.update(id(t) for t in s.passes)
    params = [d for d in builder.declared.values() if d.kind == "param"]
    trained = [d for d in params if id(d.tensor) in reached]
    for d in params if trained else ():
        if id(d.tensor) not in reached:
            d.kind = "frozen"
    return bool(trained)


def _is_trained(builder: Builder, name: str, read: set[int], trains: bool) -> bool:
    d = builder.declared.get(name)
    return d is not None and id(d.tensor) in read and (d.kind == "param" or not trains)


def _note(note: str, unused: list[str], remarks: list[str]) -> list[str]:
    lines = [note] if note else []
    lines += remarks
    if unused:
        shown = ", ".join(unused[:4]) + (f" and {len(unused) - 4} more" if len(unused) > 4 else "")
        lines.append(f"no gradient comes from the loss to these parameters, so they aren't trained: {shown}")
    return lines
