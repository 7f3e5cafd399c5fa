"""Mutants of programs: small changes to the tree, each of which a verifier must judge rightly.

Kinds that change one place (a placement, an operand, a line dropped) and kinds that change all places in step, as a person
or a search would who believes something false: a collective left out and its readers told to take what there is, one value
called another throughout, a section's lines moved.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from hapdsl.lang import nodes

Body = tuple[nodes.Statement, ...]
Path = tuple[int, ...]  # where a statement stands: positions in nested bodies
Mutant = tuple[str, Body]
MOST = 40  # places that are changed in step, of a kind
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "slice", "partial")
METHODS = ("padded", "grouped", "ring", "pairwise")
OPERATORS = ("relu", "gelu", "matmul", "matmul_nt", "matmul_tn", "add", "mul", "sub", "scale", "neg")


def statements(body: Body, prefix: Path = ()) -> Iterator[tuple[Path, nodes.Statement]]:
    """All statements of a program with their paths, blocks too."""
    for k, statement in enumerate(body):
        yield (*prefix, k), statement
        if isinstance(statement, nodes.Section | nodes.Turns):
            yield from statements(statement.body, (*prefix, k))


def edit(body: Body, path: Path, change: Callable[[Body, int], Body]) -> Body:
    """The body with `change(siblings, position)` made at `path`."""
    if len(path) == 1:
        return change(body, path[0])
    outer = body[path[0]]
    assert isinstance(outer, nodes.Section | nodes.Turns)
    inner = replace(outer, body=edit(outer.body, path[1:], change))
    return (*body[: path[0]], inner, *body[path[0] + 1 :])


def put(body: Body, path: Path, *statements: nodes.Statement) -> Body:
    """The body with the statement at `path` replaced by these."""
    return edit(body, path, lambda siblings, k: (*siblings[:k], *statements, *siblings[k + 1 :]))


def mutants(program: nodes.Program, seed: int) -> Iterator[tuple[str, nodes.Program]]:
    """Mutants of every kind in turn, each kind in an order drawn from `seed`: (kind, program)."""
    draw = random.Random(seed)
    by_kind: dict[str, list[Body]] = {}
    for kind, body in every(program, draw):
        by_kind.setdefault(kind, []).append(body)
    for bodies in by_kind.values():
        draw.shuffle(bodies)
    while by_kind:
        for kind in list(by_kind):
            yield kind, replace(program, body=by_kind[kind].pop())
            if not by_kind[kind]:
                del by_kind[kind]


def every(program: nodes.Program, draw: random.Random) -> Iterator[Mutant]:
    """All mutants of a program; where there are too many of a kind, some drawn from `draw`."""
    body = program.body
    listed = list(statements(body))
    lines = [(path, s) for path, s in listed if isinstance(s, nodes.Line)]
    names = sorted({v.name for _, s in lines for v in s.outputs})
    for path, statement in listed:
        yield from _of_header(body, path, statement)
        yield from _of_turns(body, path, statement)
    for path, line in lines:
        yield from _of_order(body, path, line, draw, [p for p, _ in lines])
        yield from _of_placements(body, path, line)
        yield from _of_operands(body, path, line, names, draw)
        yield from _of_function(body, path, line)
        yield from _of_lifetimes(body, path, line, draw, lines)
    yield from _in_step(body, lines, draw)
    yield from _sections(body)


# -- one place ---------------------------------------------------------------------


def _of_header(body: Body, path: Path, statement: nodes.Statement) -> Iterator[Mutant]:
    match statement:
        case nodes.Shares(values=nodes.Items(items=items)) | nodes.Ratio(values=nodes.Items(items=items)):
            for kind, values in _other_shares(items):
                yield kind, put(body, path, replace(statement, values=nodes.Items(values)))
            yield "shares dropped", put(body, path)
        case nodes.Mesh(axes=axes):
            yield "mesh", put(body, path, replace(statement, axes=axes[::-1]))
            yield "mesh", put(body, path, replace(statement, axes=tuple((n, s + 1) for n, s in axes)))
            yield "mesh", put(body, path)


def _other_shares(items: tuple[nodes.Expr, ...]) -> Iterator[tuple[str, tuple[nodes.Expr, ...]]]:
    """Moved units, a unit too many, reversed, all on one device, a device starved; rows of shares row by row."""
    if any(isinstance(i, nodes.Items) for i in items):
        rows = [i for i in items if isinstance(i, nodes.Items)]
        yield "shares", tuple(rows[::-1])
        for k, row in enumerate(rows):
            for kind, other in _other_shares(row.items):
                yield kind, (*rows[:k], nodes.Items(other), *rows[k + 1 :])
        return
    numbers = [i.value for i in items if isinstance(i, nodes.Number)]
    if len(numbers) < len(items):
        return
    total = sum(numbers)
    moved, starved = list(numbers), list(numbers)
    source = max(range(len(moved)), key=lambda d: moved[d])
    moved[source] -= 1
    moved[source - 1] += 1
    starved[source - 1] += starved[source]
    starved[source] = 0
    first = [total] + [0] * (len(numbers) - 1)
    for other in (
        moved,
        starved,
        [numbers[0] + 1, *numbers[1:]],
        numbers[::-1],
        first,
        first[::-1],
        numbers[1:],
        [0.5, *numbers[1:]],
    ):
        if other != numbers:
            yield "shares", tuple(nodes.Number(n) for n in other)


def _of_turns(body: Body, path: Path, statement: nodes.Statement) -> Iterator[Mutant]:
    if not isinstance(statement, nodes.Turns):
        return
    yield "repeat reversed", put(body, path, replace(statement, reverse=not statement.reverse))
    for start, stop in (
        (statement.start + 1, statement.stop),
        (statement.start, statement.stop - 1),
        (statement.start, statement.stop + 1),
    ):
        yield "repeat bounds", put(body, path, replace(statement, start=start, stop=stop))
    yield "repeat dropped", put(body, path)
    yield "repeat twice", put(body, path, statement, statement)


def _of_order(body: Body, path: Path, line: nodes.Line, draw: random.Random, others: list[Path]) -> Iterator[Mutant]:
    yield "drop", put(body, path)
    yield "twice", put(body, path, line, line)
    yield (
        "swap",
        edit(body, path, lambda s, k: (*s[:k], s[k + 1], s[k], *s[k + 2 :]) if k + 1 < len(s) else s[1:] + s[:1]),
    )
    for other in draw.sample(others, min(2, len(others))):
        if other < path:  # earlier, so that removing the line first doesn't move the place
            yield "move up", edit(put(body, path), other, lambda s, k: (*s[:k], line, *s[k:]))
        elif other > path:
            after = edit(body, other, lambda s, k: (*s[: k + 1], line, *s[k + 1 :]))
            yield "move down", put(after, path)


def _of_placements(body: Body, path: Path, line: nodes.Line) -> Iterator[Mutant]:
    for k, value in enumerate(line.outputs):
        for other in _placements(value.placement):
            outputs = (*line.outputs[:k], replace(value, placement=other), *line.outputs[k + 1 :])
            yield "placement", put(body, path, replace(line, outputs=outputs))
    for k, arg in enumerate(line.args):
        if isinstance(arg.value, nodes.Value):
            for other in _placements(arg.value.placement):
                yield "placement", put(body, path, _with_arg(line, k, replace(arg.value, placement=other)))


def _placements(own: tuple[nodes.Placed, ...]) -> Iterator[tuple[nodes.Placed, ...]]:
    """All others that differ on one axis, and the axes swapped."""
    single = (nodes.Placed("R"), nodes.Placed("P"), *(nodes.Placed("S", d) for d in range(3)))
    for axis in range(len(own)):
        for placed in single:
            if placed != own[axis]:
                yield (*own[:axis], placed, *own[axis + 1 :])
    if len(own) == 2 and own[0] != own[1]:
        yield own[::-1]


def _of_operands(body: Body, path: Path, line: nodes.Line, names: list[str], draw: random.Random) -> Iterator[Mutant]:
    values = [k for k, a in enumerate(line.args) if isinstance(a.value, nodes.Value)]
    for k in values:
        value = line.args[k].value
        assert isinstance(value, nodes.Value)
        alike = [n for n in names if n.startswith(value.name.partition(".")[0]) or value.name.startswith(n)]
        for name in {*draw.sample(names, min(2, len(names))), *draw.sample(alike, min(2, len(alike)))} - {value.name}:
            yield "operand", put(body, path, _with_arg(line, k, replace(value, name=name)))
        yield "operand dropped", put(body, path, replace(line, args=line.args[:k] + line.args[k + 1 :]))
        yield "operand twice", put(body, path, replace(line, args=(*line.args[: k + 1], *line.args[k:])))
        yield (
            "operand by name",
            put(body, path, replace(line, args=(*line.args[:k], replace(line.args[k], name="x"), *line.args[k + 1 :]))),
        )
    if len(values) > 1:
        yield "operands swapped", put(body, path, replace(line, args=(line.args[1], line.args[0], *line.args[2:])))
    for k, value in enumerate(line.outputs):
        name = draw.choice(names)
        if name != value.name:
            outputs = (*line.outputs[:k], replace(value, name=name), *line.outputs[k + 1 :])
            yield "output", put(body, path, replace(line, outputs=outputs))
    if len(line.outputs) > 1:
        yield "outputs swapped", put(body, path, replace(line, outputs=line.outputs[::-1]))
        yield "output dropped", put(body, path, replace(line, outputs=line.outputs[:-1]))


def _of_function(body: Body, path: Path, line: nodes.Line) -> Iterator[Mutant]:
    conversion = line.function in COLLECTIVES
    for function in COLLECTIVES if conversion else OPERATORS:
        if function != line.function:
            yield "collective" if conversion else "operator", put(body, path, replace(line, function=function))
    for loader in ("input", "param", "state", "seed"):
        if not line.args and loader != line.function:
            yield "load", put(body, path, replace(line, function=loader))
    if conversion:
        kept = tuple(a for a in line.args if a.name != "method")
        for method in METHODS:
            args = (*kept, nodes.Arg("method", nodes.Name(method)))
            if args != line.args:
                yield "method", put(body, path, replace(line, args=args))
    elif line.args:
        for value in (nodes.Number(0), nodes.Number(1), nodes.Bool(True)):
            yield "attribute", put(body, path, replace(line, args=(*line.args, nodes.Arg(None, value))))


def _of_lifetimes(
    body: Body, path: Path, line: nodes.Line, draw: random.Random, lines: list[tuple[Path, nodes.Line]]
) -> Iterator[Mutant]:
    """Values freed (too early, or rightly), loaded again in another placement, and taken through `partial`."""
    value = draw.choice(line.outputs)
    yield "free", put(body, path, line, nodes.Free((value,)))
    later = [other for p, other in lines if p > path]
    last = max((k for k, other in enumerate(later) if any(a.value == value for a in other.args)), default=None)
    if last is not None:
        place = [p for p, _ in lines if p > path][last]
        yield "free", edit(body, place, lambda s, k: (*s[: k + 1], nodes.Free((value,)), *s[k + 1 :]))
    if not line.args:
        for other in _placements(value.placement):
            again = replace(line, outputs=(replace(value, placement=other),))
            yield "loaded twice", put(body, path, line, again)
    for axis, _placed in enumerate(value.placement):
        for how, kind in (("partial", "P"), ("slice", "S"), ("all_gather", "R"), ("all_reduce", "R")):
            target = replace(
                value,
                placement=(
                    *value.placement[:axis],
                    nodes.Placed(kind, 0 if kind == "S" else None),
                    *value.placement[axis + 1 :],
                ),
            )
            if target != value and draw.random() < 0.3:
                yield "conversion added", put(body, path, line, nodes.Line((target,), how, (nodes.Arg(None, value),)))
    # what came through `partial` must be reduced again before it is read as whole
    if all(p.kind == "R" for p in value.placement):
        summed = replace(value, placement=(nodes.Placed("P"), *value.placement[1:]))
        there = nodes.Line((summed,), "partial", (nodes.Arg(None, value),))
        back = nodes.Line((value,), "all_reduce", (nodes.Arg(None, summed),))
        yield "there and back", put(body, path, line, there, back)
        yield "there and back", put(body, path, line, there, nodes.Free((value,)))


# -- many places in step -----------------------------------------------------------


def _in_step(body: Body, lines: list[tuple[Path, nodes.Line]], draw: random.Random) -> Iterator[Mutant]:
    """One value called another everywhere; a conversion left out and its readers given what it would have converted."""
    values = list(dict.fromkeys(v for _, line in lines for v in line.outputs))
    for value in draw.sample(values, min(MOST, len(values))):
        for other in _placements(value.placement):
            yield "placement in step", _renamed(body, value, replace(value, placement=other))
    for path, line in lines:
        sources = [a.value for a in line.args if isinstance(a.value, nodes.Value)]
        if line.function in COLLECTIVES and len(sources) == len(line.outputs):
            without = put(body, path)
            for target, source in zip(line.outputs, sources, strict=True):
                without = _renamed(without, target, source)
            yield "conversion left out", without
    neighbours = [(a, b) for a, b in itertools.pairwise(values) if a.placement == b.placement]
    for a, b in draw.sample(neighbours, min(MOST, len(neighbours))):
        yield "names in step", _renamed(body, a, replace(a, name=b.name))


def _renamed(body: Body, old: nodes.Value, new: nodes.Value) -> Body:
    def value(v: nodes.Value) -> nodes.Value:
        return new if v == old else v

    found: list[nodes.Statement] = []
    for statement in body:
        match statement:
            case nodes.Line(outputs=outputs, args=args) if old in outputs or any(a.value == old for a in args):
                changed = tuple(
                    replace(a, value=value(a.value)) if isinstance(a.value, nodes.Value) else a for a in args
                )
                found.append(replace(statement, outputs=tuple(map(value, outputs)), args=changed))
            case nodes.Free(values=values) if old in values:
                found.append(replace(statement, values=tuple(map(value, values))))
            case nodes.Section() | nodes.Turns():
                found.append(replace(statement, body=_renamed(statement.body, old, new)))
            case _:
                found.append(statement)
    return tuple(found)


def _sections(body: Body) -> Iterator[Mutant]:
    places = [k for k, s in enumerate(body) if isinstance(s, nodes.Section)]
    sections = [s for s in body if isinstance(s, nodes.Section)]
    for i, k in enumerate(places):
        yield "section dropped", put(body, (k,))
        yield "section twice", put(body, (k,), body[k], body[k])
        yield "section opened", put(body, (k,), *sections[i].body)
        if i + 1 < len(places):
            nested = replace(sections[i], body=(*sections[i].body, sections[i + 1]))
            yield "section nested", put(put(body, (places[i + 1],)), (k,), nested)
            swapped = put(put(body, (k,), sections[i + 1]), (places[i + 1],), sections[i])
            yield "sections swapped", swapped


def _with_arg(line: nodes.Line, k: int, value: nodes.Value) -> nodes.Line:
    return replace(line, args=(*line.args[:k], replace(line.args[k], value=value), *line.args[k + 1 :]))
