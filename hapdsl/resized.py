"""A program for a batch of another size: the same lines, its shares in the same proportions.

What a data set leaves over at its end is such a batch. Parameters and optimizer state lie as in the program itself, so that both can
take turns on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hapdsl.graph.program import Program
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.lang.print import to_text
from hapdsl.workbench import Workbench

DROP = "batches of the size that was planned for: DataLoader(…, drop_last = True)"


def symbol_of(program: Program) -> str | None:
    """The parameter of the model that is the size of its batch, None where a number is."""
    graph = program.graph.undivided
    name = graph.batch
    if name is None or graph.parameters.get(name) != graph.classes[name].units:
        return None
    return name


def resized(text: str, program: Program, batch: int) -> Program:
    """`program`, which is the only one of `text`, for `batch` samples. Raises HapError HAP706 where there is none."""
    symbol = symbol_of(program)
    if symbol is None:
        raise error(
            "HAP706", f"a batch of {batch}: its size is no parameter of model '{program.graph.model}'", help=DROP
        )
    bench = Workbench("plan.hap", text)
    node = bench.program()
    args = [a for a in node.args if a.name != symbol] + [nodes.Arg(symbol, nodes.Number(batch))]
    body = tuple(_ratio(s) for s in node.body if not isinstance(s, nodes.Fingerprint))
    changed = replace(node, args=tuple(args), body=body)
    items = tuple(changed if item is node else item for item in bench.bundle.main.tree.items)
    other = Workbench("plan.hap", to_text(nodes.File(items)))
    try:
        found = other.proven(other.program()).program
    except HapError as problem:
        raise error(
            "HAP706", f"the program doesn't work for a batch of {batch}: {problem.diagnostics[0].message}", help=DROP
        ) from None
    if _held(found) != _held(program):
        raise error("HAP706", f"a batch of {batch} changes the shape of what is trained", help=DROP)
    return found


def _ratio(statement: nodes.Statement) -> nodes.Statement:
    """Shares as weights: of a class that stays as long as it was they stay as they were."""
    match statement:
        case nodes.Shares(cls=cls, values=nodes.Items(items=items) as values, axis=axis, layers=None):
            if not any(isinstance(i, nodes.Items) for i in items):
                return nodes.Ratio(cls, values, axis)
    return statement


def _held(program: Program) -> Mapping[str, tuple[tuple[int, ...], ...]]:
    """The pieces of what is kept from step to step."""
    loads = (v for i in program.instructions if i.op in ("param", "state") for v in i.outputs)
    return {str(v): tuple(map(tuple, program.piece(v)[1].tolist())) for v in loads}
