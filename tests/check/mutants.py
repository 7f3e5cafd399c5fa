"""Mutants of programs: small changes to the tree, each of which a verifier must judge rightly."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from hapdsl.lang import nodes

Path = tuple[int, ...]  # where a statement stands: positions in nested bodies
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "slice", "partial")


def statements(body: tuple[nodes.Statement, ...], prefix: Path = ()) -> Iterator[tuple[Path, nodes.Statement]]:
    """All statements of a program with their paths, blocks too."""
    for k, statement in enumerate(body):
        yield (*prefix, k), statement
        if isinstance(statement, nodes.Section | nodes.Turns):
            yield from statements(statement.body, (*prefix, k))


def edit(
    body: tuple[nodes.Statement, ...], path: Path, change: Callable[[tuple[nodes.Statement, ...], int], tuple[nodes.Statement, ...]]
) -> tuple[nodes.Statement, ...]:
    """The body with `change(siblings, position)` made at `path`."""
    if len(path) == 1:
        return change(body, path[0])
    outer = body[path[0]]
    assert isinstance(outer, nodes.Section | nodes.Turns)
    inner = replace(outer, body=edit(outer.body, path[1:], change))
    return (*body[: path[0]], inner, *body[path[0] + 1 :])


def mutants(program: nodes.Program, seed: int) -> Iterator[tuple[str, nodes.Program]]:
    """Every mutant of every kind, in an order drawn from `seed`: (kind, program)."""
    draw = random.Random(seed)
    found = list(_all(program))
    draw.shuffle(found)
    for kind, body in found:
        yield kind, replace(program, body=body)


def _all(program: nodes.Program) -> Iterator[tuple[str, tuple[nodes.Statement, ...]]]:
    body = program.body
    listed = list(statements(body))
    names = sorted({v.name for _, s in listed if isinstance(s, nodes.Line) for v in s.outputs})
    for number, (path, statement) in enumerate(listed):
        if isinstance(statement, nodes.Shares) and isinstance(statement.values, nodes.Items):
            for values in _other_shares(statement.values):
                yield "shares", edit(body, path, _put(replace(statement, values=values)))
        if not isinstance(statement, nodes.Line):
            continue
        yield "drop", edit(body, path, lambda siblings, k: (*siblings[:k], *siblings[k + 1 :]))
        yield "swap", edit(body, path, _swap)
        for k, value in enumerate(statement.outputs):
            for placed in _placements():
                if (placed,) != value.placement and len(value.placement) == 1:
                    outputs = (*statement.outputs[:k], replace(value, placement=(placed,)), *statement.outputs[k + 1 :])
                    yield "placement", edit(body, path, _put(replace(statement, outputs=outputs)))
        for k, arg in enumerate(statement.args):
            if not isinstance(arg.value, nodes.Value):
                continue
            for placed in _placements():
                if (placed,) != arg.value.placement and len(arg.value.placement) == 1:
                    yield "placement", edit(body, path, _put(_with_arg(statement, k, replace(arg.value, placement=(placed,)))))
            for name in (names[(number * 7 + k) % len(names)], names[(number * 3 + k + 1) % len(names)]):
                if name != arg.value.name:
                    yield "operand", edit(body, path, _put(_with_arg(statement, k, replace(arg.value, name=name))))
        if statement.function in COLLECTIVES:
            for function in COLLECTIVES:
                if function != statement.function:
                    yield "collective", edit(body, path, _put(replace(statement, function=function)))


def _put(statement: nodes.Statement) -> Callable[[tuple[nodes.Statement, ...], int], tuple[nodes.Statement, ...]]:
    return lambda siblings, k: (*siblings[:k], statement, *siblings[k + 1 :])


def _swap(siblings: tuple[nodes.Statement, ...], k: int) -> tuple[nodes.Statement, ...]:
    if k + 1 >= len(siblings):
        return siblings[1:] + siblings[:1]
    return (*siblings[:k], siblings[k + 1], siblings[k], *siblings[k + 2 :])


def _placements() -> tuple[nodes.Placed, ...]:
    return (nodes.Placed("R"), nodes.Placed("P"), *(nodes.Placed("S", d) for d in range(3)))


def _with_arg(line: nodes.Line, k: int, value: nodes.Value) -> nodes.Line:
    return replace(line, args=(*line.args[:k], replace(line.args[k], value=value), *line.args[k + 1 :]))


def _other_shares(values: nodes.Items) -> Iterator[nodes.Items]:
    """Moved units, a unit too many, reversed, all on one device."""
    numbers = [i.value for i in values.items if isinstance(i, nodes.Number)]
    if len(numbers) < len(values.items):
        return
    total = sum(numbers)
    moved = list(numbers)
    source = max(range(len(moved)), key=lambda d: moved[d])
    moved[source] -= 1
    moved[source - 1] += 1
    for other in (moved, [numbers[0] + 1, *numbers[1:]], numbers[::-1], [0] * (len(numbers) - 1) + [total]):
        if other != numbers:
            yield nodes.Items(tuple(nodes.Number(n) for n in other))
