"""What stands between two collectives as one function of torch.compile.

The first step runs eagerly: what a kernel returns is compared with what was declared there. From the second on each run of calls and local
conversions is traced down to torch's own operators and compiled. Calls that read the clock stay eager (an update, dropout: the number of the step is a new constant every time), and
those that check the numbers they are given, and a user's own functions.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from hapdsl.graph.inplace import overwrites
from hapdsl.lang.diagnostics import error
from hapdsl.run.actions import Act, Action, Store
from hapdsl.run.call import Fixed
from hapdsl.run.lower import Compute, Convert, Step
from hapdsl.run.samples import INTEGERS

KINDS = ("compute", "convert")
TIMED = {"hapdsl.dropout", "hapdsl.drop_path"}  # kernels that read the clock; updates, too


def available() -> None:
    """Raises HapError HAP723 where torch.compile has nothing to compile with: on a CPU it calls $CXX, or g++."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise error(
            "HAP723",
            f"there is no C++ compiler '{compiler}'",
            help="install one, name it in CXX, or leave --compile out",
        )


def segments(actions: Sequence[Action], steps: Sequence[Step], device: int) -> list[Action]:
    """The same list with each run of pure calls as one action."""
    found: list[Action] = []
    run: list[Action] = []

    def close() -> None:
        if len(run) > 1:
            found.append(
                Action("compute", run[0].step, _one([a.run for a in run], [steps[a.step] for a in run], device))
            )
        else:
            found.extend(run)
        run.clear()

    for action in actions:
        if action.kind in KINDS and not _stays_eager(steps[action.step]):
            run.append(action)
            continue
        close()
        found.append(action)
    close()
    return found


def _stays_eager(step: Step) -> bool:
    """Calls that read the clock, those that look at numbers (labels and row numbers are checked) and so end a graph, those that write over
    what they replace: a graph would make it anew. And functions of a user's own module, of which nothing is known."""
    node = step.instruction.node
    if node is None:
        return False
    name = node.instance.decl.torch or ""
    foreign = not name.startswith(("hapdsl.", "torch."))
    return foreign or node.turned is not None or overwrites(node) or name in TIMED or node.op in INTEGERS


def _one(acts: Sequence[Act], steps: Sequence[Step], device: int) -> Act:
    """Several actions as one. Slots that come from outside are arguments, those that are left are results."""
    made: dict[int, None] = {}
    read: dict[int, None] = {}
    ended: set[int] = set()
    for step in steps:
        read.update({s: None for s in step.inputs if s not in made})
        made.update(dict.fromkeys(step.outputs))
        for slot in step.drops:
            made.pop(slot, None)
            ended.add(slot)
    reads, writes, drops = tuple(read), tuple(made), tuple(s for s in read if s in ended)
    size = max((*reads, *writes, *(s for step in steps for s in step.outputs)), default=-1) + 1

    plain = [_plain(step, device) for step in steps]

    def pure(values: Sequence[Any]) -> list[Any]:
        store: Store = [None] * size
        for slot, value in zip(reads, values, strict=True):
            store[slot] = value
        for call, inputs, outputs in plain:
            for slot, value in zip(outputs, call([store[k] for k in inputs]), strict=True):
                store[slot] = value
        return [store[slot] for slot in writes]

    function: Any = None
    eager = True

    def act(store: Store) -> None:
        nonlocal function, eager
        if eager:
            eager = False
            for one in acts:
                one(store)
            return
        given = [store[slot] for slot in reads]
        if function is None:
            function = torch.compile(make_fx(pure)(given), dynamic=False)
        made = function(given)
        for slot in drops:
            store[slot] = None
        for slot, value in zip(writes, made, strict=True):
            store[slot] = value

    return act


def _plain(step: Step, device: int) -> tuple[Callable[[list[Any]], Sequence[Any]], tuple[int, ...], tuple[int, ...]]:
    """A step without checks: what it calls with its operands, and its slots."""
    work = step.work
    if isinstance(work, Convert):
        cuts, keeps = work.slices[device], device in work.keeps

        def convert(values: list[Any]) -> Sequence[Any]:
            pieces = [value[cut] for value, cut in zip(values, cuts, strict=True)]
            return pieces if keeps else [torch.zeros_like(p) for p in pieces]

        return convert, step.inputs, step.outputs
    assert isinstance(work, Compute)
    call = work.calls[device]
    if call.context.is_empty:
        return call, step.inputs, step.outputs
    kernel, context, attributes, slots = call.kernel, call.context, dict(call.attributes), call.slots

    def compute(values: list[Any]) -> Sequence[Any]:
        arguments = [k.value if isinstance(k, Fixed) else None if k is None else values[k] for k in slots]
        made = kernel(context, *arguments, **attributes)
        return made if isinstance(made, tuple) else (made,)

    return compute, step.inputs, step.outputs
