"""A program with all that it needs, as the text of one file: what `plan -o` and the explorer write.

Such a file can be moved, checked, costed and run anywhere; it imports nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from hapdsl.lang import nodes
from hapdsl.lang.print import to_text
from hapdsl.workbench import Workbench


def standalone(bench: Workbench, program: nodes.Program, cluster: nodes.Cluster | None = None, note: str = "") -> str:
    """The text of `program` with its model, the defs that the model calls, the file's own operators, and `cluster`.

    `note` becomes the comment above the program; comments of the other blocks come along.
    """
    model = bench.model(program.model)
    program = replace(program, leading=(note,) if note else program.leading, gap=True)
    if cluster is not None:
        program = replace(program, cluster=cluster.name)
    blocks: list[Any] = [*_defs(bench, model), *_operators(bench), model]
    if cluster is not None:
        blocks.append(cluster)
    blocks.append(program)
    spaced = [replace(block, gap=k > 0) for k, block in enumerate(blocks)]
    return to_text(nodes.File(tuple(spaced)))


def sources(bench: Workbench, model: nodes.Model) -> list[Path]:
    """The files that the model and its defs stand in, its own first: beside them lie the numbers that their text can't say (`init table`)."""
    return [Path(file) for file in dict.fromkeys(block.span.file for block in (model, *_defs(bench, model)))]


def _operators(bench: Workbench) -> Iterator[nodes.Op]:
    """The file's own operators; those that only repeat a standard one stay behind."""
    return (op for name, op in bench.bundle.ops.items() if bench.ops[name].span == op.span)


def _defs(bench: Workbench, model: nodes.Model) -> Iterator[nodes.Def]:
    """The defs that a model calls, and those that they call, in the order of the text."""
    wanted: set[str] = set()
    waiting = list(_calls(model.body))
    while waiting:
        name = waiting.pop()
        if name in bench.bundle.defs and name not in wanted:
            wanted.add(name)
            waiting.extend(_calls(bench.bundle.defs[name].body))
    return (d for name, d in bench.bundle.defs.items() if name in wanted)


def _calls(statements: Iterable[nodes.Statement]) -> Iterator[str]:
    """The names of all that is called in some statements."""
    for statement in statements:
        match statement:
            case nodes.Assign(value=value):
                yield from _called(value)
            case nodes.Return(values=values):
                for value in values:
                    yield from _called(value)
            case nodes.Repeat(body=body) | nodes.Microbatch(body=body):
                yield from _calls(body)


def _called(value: nodes.Expr) -> Iterator[str]:
    """What an expression calls: operands are calls or names, attributes are numbers."""
    if isinstance(value, nodes.Call):
        yield value.function
        for arg in value.args:
            yield from _called(arg.value)
