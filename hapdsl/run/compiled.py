"""What stands between two collectives as one function of torch.compile.

The first step runs eagerly: what a kernel returns is compared with what was declared there. From the second on each run of calls and local
conversions is compiled. Calls that read the clock stay eager (an update, dropout: the number of the step is a new constant every time).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

import torch

from hapdsl.lang.diagnostics import error
from hapdsl.run.actions import Act, Action, Store
from hapdsl.run.lower import Step

KINDS = ("compute", "convert")
TIMED = {"hapdsl.adam", "hapdsl.adamw", "hapdsl.dropout"}  # kernels that read the clock


def available() -> None:
    """Raises HapError HAP723 where torch.compile has nothing to compile with: on a CPU it calls $CXX, or g++."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise error(
            "HAP723",
            f"there is no C++ compiler '{compiler}'",
            help="install one, name it in CXX, or leave --compile out",
        )


def segments(actions: Sequence[Action], steps: Sequence[Step]) -> list[Action]:
    """The same list with each run of pure calls as one action."""
    found: list[Action] = []
    run: list[Action] = []

    def close() -> None:
        if len(run) > 1:
            found.append(Action("compute", run[0].step, _one([a.run for a in run], [steps[a.step] for a in run])))
        else:
            found.extend(run)
        run.clear()

    for action in actions:
        if action.kind in KINDS and not _reads_clock(steps[action.step]):
            run.append(action)
            continue
        close()
        found.append(action)
    close()
    return found


def _reads_clock(step: Step) -> bool:
    node = step.instruction.node
    return node is not None and (node.turned is not None or node.instance.decl.torch in TIMED)


def _one(acts: Sequence[Act], steps: Sequence[Step]) -> Act:
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

    def pure(values: Sequence[Any]) -> list[Any]:
        store: Store = [None] * size
        for slot, value in zip(reads, values, strict=True):
            store[slot] = value
        for act in acts:
            act(store)
        return [store[slot] for slot in writes]

    function: Any = None

    def act(store: Store) -> None:
        nonlocal function
        given = [store[slot] for slot in reads]
        made = pure(given) if function is None else function(given)
        if function is None:
            function = torch.compile(pure, dynamic=False)
        for slot in drops:
            store[slot] = None
        for slot, value in zip(writes, made, strict=True):
            store[slot] = value

    return act
