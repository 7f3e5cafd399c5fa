"""Equal layers: runs of statements that differ in nothing but the number in their module's path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hapdsl.importing.values import Declared, Statement, Tensor

Shown = Callable[[Statement | Tensor], str]  # a statement's attributes, a parameter's type, as text


@dataclass
class Run:
    """Statements of one scope, in order."""

    statements: list[Statement]


@dataclass
class Rolled:
    """`turns` equal layers under `path`: `body` is the first one's statements.

    `carried` are pairs of what a layer finds and what it leaves for the next one (tensors of the first layer); `last` maps what it
    leaves to the tensors of the last layer, which is what readers behind the repeat mean.
    """

    path: str
    turns: int
    body: list[Statement]
    carried: list[tuple[Tensor, Tensor]]
    last: dict[Tensor, Tensor]


@dataclass
class Layer:
    """One numbered layer by itself, `path` with its number."""

    path: str
    statements: list[Statement]


Piece = Run | Rolled | Layer


def roll(
    statements: Sequence[Statement], declared: Mapping[str, Declared], shown: Shown, outputs: set[int], scope: str = ""
) -> list[Piece]:
    """Statements in pieces. A layer of a run that is no repeat is a piece by itself. Cost: linear in statements, times the depth of module paths."""
    pieces: list[Piece] = []
    for path, turns in _segments(statements, scope, True):
        if path is None:
            pieces.append(Run(turns[0]))
            continue
        rolled = _rolled(path, turns, statements, declared, shown, outputs)
        if rolled is not None:
            pieces.append(rolled)
            continue
        inside = [s for turn in turns for s in turn]
        beyond = outputs | _read_outside(inside, statements)
        for at, strictly in _segments(inside, scope, False):
            if at is None:
                pieces.append(Run(strictly[0]))
                continue
            for k, turn in enumerate(strictly):
                inner = roll(turn, declared, shown, beyond | _read_outside(turn, inside), f"{at}.{k}.")
                pieces.extend(inner if any(isinstance(p, Rolled) for p in inner) else [Layer(f"{at}.{k}", turn)])
    return list(_joined(pieces))


def loose(pieces: Sequence[Piece], keep: Callable[[Layer], bool]) -> list[Piece]:
    """The pieces, with layers that aren't to be kept among the statements around them."""
    return list(_joined([p if not isinstance(p, Layer) or keep(p) else Run(p.statements) for p in pieces]))


def _joined(pieces: Sequence[Piece]) -> Iterator[Piece]:
    run: list[Statement] = []
    for piece in pieces:
        if isinstance(piece, Run):
            run.extend(piece.statements)
            continue
        if run:
            yield Run(run)
            run = []
        yield piece
    if run:
        yield Run(run)


def _read_outside(turn: Sequence[Statement], statements: Sequence[Statement]) -> set[int]:
    inside = {id(s) for s in turn}
    return {id(t) for s in statements if id(s) not in inside for t in s.operands}


def _segments(
    statements: Sequence[Statement], scope: str, trailing: bool
) -> Iterator[tuple[str | None, list[list[Statement]]]]:
    """Maximal runs of layers 0, 1, 2, … of one path; what is between them under no path.

    With `trailing`, what the module around the layers does between two of them belongs to the first of the two, and as much behind
    the last one to that.
    """
    keyed = [(_layer(s.origin.path, scope), s) for s in statements]
    loose: list[Statement] = []
    k = 0
    while k < len(keyed):
        key = keyed[k][0]
        turns, at = _turns(keyed, k, trailing) if key is not None and key[1] == 0 else ([], k)
        if len(turns) < 2:
            loose.append(keyed[k][1])
            k += 1
            continue
        if loose:
            yield None, [loose]
            loose = []
        assert key is not None
        yield key[0], turns
        k = at
    if loose:
        yield None, [loose]


def _turns(
    keyed: Sequence[tuple[tuple[str, int] | None, Statement]], start: int, trailing: bool
) -> tuple[list[list[Statement]], int]:
    """The layers from a place on, and the place behind them."""
    assert keyed[start][0] is not None
    path = keyed[start][0][0]  # type: ignore[index]
    turns: list[list[Statement]] = []
    tails: list[int] = []
    at = start
    while at < len(keyed) and keyed[at][0] == (path, len(turns)):
        begin = at
        while at < len(keyed) and keyed[at][0] == (path, len(turns)):
            at += 1
        end = at
        while trailing and at < len(keyed) and (keyed[at][0] is None or keyed[at][0][0] != path):  # type: ignore[index]
            at += 1
        turns.append([s for _, s in keyed[begin:end]])
        if at < len(keyed) and keyed[at][0] == (path, len(turns)):
            turns[-1] += [s for _, s in keyed[end:at]]
            tails.append(at - end)
        else:
            extra = tails[0] if tails else 0
            turns[-1] += [s for _, s in keyed[end : end + extra]]
            return turns, min(len(keyed), end + extra)
    return turns, at


def _layer(path: str, scope: str) -> tuple[str, int] | None:
    """The first number in a path below a scope: `h.3.attn` is layer 3 of `h`."""
    if not path.startswith(scope):
        return None
    words = path[len(scope) :].split(".")
    for k, word in enumerate(words):
        if word.isdigit() and k > 0:
            return scope + ".".join(words[:k]), int(word)
    return None


def _rolled(
    path: str,
    turns: Sequence[list[Statement]],
    statements: Sequence[Statement],
    declared: Mapping[str, Declared],
    shown: Shown,
    outputs: set[int],
) -> Rolled | None:
    """The turns as one repeat, or None where they differ or lean on each other in another way."""
    inner = {n.removeprefix(f"{path}.0.") for n in declared if n.startswith(f"{path}.0.")}
    if inner & {n for n in declared if not n.startswith(f"{path}.")}:
        return None  # inside a repeat, names outside it can't be given again
    forms = [_form(f"{path}.{k}.", turn, shown) for k, turn in enumerate(turns)]
    first = forms[0]
    if any(f.text != first.text for f in forms[1:]):
        return None
    made = [[t for s in turn for t in s.makes] for turn in turns]
    inside = [{id(t): j for j, t in enumerate(tensors)} for tensors in made]
    carried: list[tuple[Tensor, Tensor]] = []
    for j, found in enumerate(first.outside):
        others = [f.outside[j] for f in forms[1:]]
        if all(o is found for o in others):
            continue
        left = [inside[k].get(id(o)) for k, o in enumerate(others)]
        if left[0] is None or any(x != left[0] for x in left):
            return None
        carried.append((found, made[0][left[0]]))
    leaves = {id(after): j for j, (_, after) in enumerate(carried)}
    members = {id(s) for turn in turns for s in turn}
    later = outputs | {id(t) for s in statements if id(s) not in members for t in s.operands}
    last: dict[Tensor, Tensor] = {}
    for k, tensors in enumerate(made):
        for own, t in zip(made[0], tensors, strict=True):
            if id(own) in leaves:
                if k == len(turns) - 1:
                    last[own] = t
                elif id(t) in later:
                    return None
            elif id(t) in later:
                return None
    return Rolled(path, len(turns), turns[0], carried, last)


@dataclass
class _Form:
    text: str
    outside: list[Tensor]


def _form(prefix: str, turn: Sequence[Statement], shown: Shown) -> _Form:
    """A layer as text that doesn't depend on which one it is, and the tensors it reads from outside."""
    numbers = {id(t): k for k, t in enumerate(t for s in turn for t in s.makes)}
    outside: list[Tensor] = []
    places: dict[int, int] = {}
    lines = []
    for s in turn:
        words = []
        for t in s.operands:
            if id(t) in numbers:
                words.append(f"%{numbers[id(t)]}")
            elif t.name.startswith(prefix):
                words.append(f"{t.name[len(prefix) :]}{shown(t)}")
            else:
                if id(t) not in places:
                    places[id(t)] = len(outside)
                    outside.append(t)
                words.append(f"^{places[id(t)]}")
        lines.append(f"{s.op}({', '.join(words)}; {shown(s)}) {s.inner} {s.origin.path[len(prefix) :]}")
    return _Form("\n".join(lines), outside)
