"""The list that a rank goes through in every step: one action for each thing there is to do, made once.

A lowered step becomes one action; a collective becomes two, its start where it stands in the program and its end before the
first action that reads what it brings (or makes it again). Values live in a list of slots, and an action empties those that nothing reads after it,
so torch's allocator has their memory back for what comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hapdsl.lang.diagnostics import HapError
from hapdsl.run.call import Call, Fixed, own
from hapdsl.run.lower import Compute, Convert, Step
from hapdsl.run.moves import Move

Store = list[Any]  # by slot: a tensor, or None
Act = Callable[[Store], None]


@dataclass(frozen=True)
class Action:
    """`kind` is load, compute, convert, poll, start, finish, sum or gradient; `step` the number of the lowered step it belongs to."""

    kind: str
    step: int
    run: Act


# -- where collectives are waited for ---------------------------------------------------


def scheduled(numbers: Sequence[int], steps: Sequence[Step], moves: dict[int, Move]) -> Iterator[tuple[str, int]]:
    """("do" | "start" | "finish", step): the steps in order, collectives apart.

    One is finished before the first step that touches its outputs; a phased one also before the next phased one starts (their phases
    share groups, and must come in one order on all ranks); all at the end.
    """
    pending: dict[int, set[int]] = {}
    for k in numbers:
        step = steps[k]
        touched = {*step.inputs, *step.outputs, *step.drops}
        phased = k in moves and moves[k].phased
        for other in [p for p, slots in pending.items() if slots & touched or (phased and moves[p].phased)]:
            del pending[other]
            yield "finish", other
        if k not in moves:
            yield "do", k
            continue
        yield "start", k
        pending[k] = set(step.outputs)
        if set(step.outputs) & {*step.drops, *step.sums}:
            del pending[k]
            yield "finish", k
    for other in pending:
        yield "finish", other


# -- actions ----------------------------------------------------------------------------


def computing(call: Call, step: Step, written: Set[int] = frozenset(), begun: Callable[[], None] = lambda: None) -> Act:
    """An operator call. What it returns is compared with what was declared the first time; shapes never change after that.

    A kernel that writes over operands is given those inputs themselves that are in `written`, copies of others; `begun` is called
    before the first are changed.
    """
    inputs, outputs, drops = step.inputs, step.outputs, step.drops
    kernel, context, attributes = call.kernel, call.context, dict(call.attributes)
    if context.is_empty:
        return _empty(call, step)
    template = tuple(k.value if isinstance(k, Fixed) else None for k in call.slots)
    places = [(at, inputs[k]) for at, k in enumerate(call.slots) if isinstance(k, int)]
    plain = [slot for _, slot in places] if len(places) == len(template) else None
    (single,) = outputs if len(outputs) == 1 else (-1,)
    copied = tuple(at for at in call.over if call.slots[at] not in written)
    verified = False

    def act(store: Store) -> None:
        nonlocal verified
        if plain is not None:
            arguments = [store[slot] for slot in plain]
        else:
            arguments = list(template)
            for at, slot in places:
                arguments[at] = store[slot]
        for at in copied:
            arguments[at] = own(arguments[at])
        if written:
            begun()
        try:
            made = kernel(context, *arguments, **attributes)
        except HapError:
            raise
        except Exception as problem:  # a user's own may fail in any way
            raise call.failed(problem) from problem
        if not verified:
            call.verify(made if isinstance(made, tuple) else (made,))
            verified = True
        if single >= 0:
            store[single] = made[0] if isinstance(made, tuple) else made
        else:
            for slot, value in zip(outputs, made, strict=True):
                store[slot] = value
        for slot in drops:
            store[slot] = None

    return act


def _empty(call: Call, step: Step) -> Act:
    """A call of which an index is empty here: zeros."""

    def act(store: Store) -> None:
        made = call([store[slot] for slot in step.inputs])
        for slot, value in zip(step.outputs, made, strict=True):
            store[slot] = value
        for slot in step.drops:
            store[slot] = None

    return act


def converting(convert: Convert, step: Step, device: int) -> Act:
    cuts = tuple(zip(step.inputs, step.outputs, convert.slices[device], strict=True))
    keeps, drops = device in convert.keeps, step.drops

    def act(store: Store) -> None:
        for source, target, piece in cuts:
            cut = store[source][piece]
            store[target] = cut if keeps else torch.zeros_like(cut)
        for slot in drops:
            store[slot] = None

    return act


def loading(fetch: Callable[[Any], Tensor], step: Step, values: Sequence[Any]) -> Act:
    pairs, drops = tuple(zip(step.outputs, values, strict=True)), step.drops

    def act(store: Store) -> None:
        for slot, value in pairs:
            store[slot] = fetch(value)
        for slot in drops:
            store[slot] = None

    return act


def polling(under: dict[int, Any]) -> Act:
    """Unpack what has arrived, so that its messages end before the next ones are packed."""

    def act(store: Store) -> None:
        for other in under.values():
            other.poll()

    return act


def starting(move: Move, step: Step, under: dict[int, Any], number: int) -> Act:
    """Drops of outputs are left to the finish."""
    inputs = step.inputs
    drops = tuple(d for d in step.drops if d not in step.outputs)

    def act(store: Store) -> None:
        under[number] = move.start([store[slot] for slot in inputs])
        for slot in drops:
            store[slot] = None

    return act


def finishing(step: Step, under: dict[int, Any], number: int) -> Act:
    outputs = step.outputs
    drops = tuple(d for d in step.drops if d in outputs)

    def act(store: Store) -> None:
        for slot, value in zip(outputs, under.pop(number).finish(), strict=True):
            store[slot] = value
        for slot in drops:
            store[slot] = None

    return act


def summing(slots: Iterable[int], totals: dict[int, Tensor]) -> Act:
    """Add what was made in this turn to the sum. The first two turns leave their tensors alone: others may hold them."""
    added: dict[int, int] = {}

    def act(store: Store) -> None:
        for slot in slots:
            part = store[slot]
            if slot not in totals:
                totals[slot], added[slot] = part, 1
            elif added[slot] == 1:
                totals[slot], added[slot] = totals[slot] + part, 2
            else:
                totals[slot] += part
            store[slot] = None

    return act


def kinds(step: Step) -> str:
    """What a lowered step that is no collective does, in a word."""
    match step.work:
        case Compute():
            return "compute"
        case Convert():
            return "convert"
    return "load"
