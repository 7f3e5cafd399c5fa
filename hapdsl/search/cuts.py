"""Messages of several tensors cut into smaller ones, for the overlapped cost.

The scheduler fills buckets, as a message of many tensors has one latency. But it leaves when the last of them is there, and nothing of it is read
before all of it has come; what is cut in two has its first half under way while the second is still computed (as gradient buckets do in
PyTorch's data parallelism). How many pieces are best is tried: `reorder` puts each program into its best order.

Cost: linear in lines, and a price per piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from hapdsl.cost.collectives import best_method
from hapdsl.cost.pricing import Line, Pricer
from hapdsl.graph.program import Instruction, Value

PIECES = (2, 3, 4, 6, 8, 12)
MOST = 8  # messages of several tensors: where there are more, they can be under way by turns as they are
WORTH = 0.02  # of the step: what a message must take to be cut


def cut_messages(
    lines: Sequence[Line], pricer: Pricer, seconds: float, written: Callable[[Instruction], bool] | None = None
) -> Iterator[list[Line]]:
    """The lines of a step of so many seconds with their long messages in two pieces, in three, …; nothing where there are none, or many messages.

    What a person has `written` stays.
    """
    joint = [k for k, line in enumerate(lines) if line.instruction.is_collective and len(line.inputs) > 1]
    long = {k for k in joint if float(lines[k].price.seconds.max()) >= WORTH * seconds}
    if written is not None:
        long = {k for k in long if not written(lines[k].instruction)}
    if not long or len(joint) > MOST:
        return
    most = max(len(lines[k].inputs) for k in long)
    for pieces in (p for p in PIECES if p <= most):
        yield [part for k, line in enumerate(lines) for part in (_cut(line, pricer, pieces) if k in long else (line,))]


def cheapest_method(op: str, before: Sequence[Value], after: Sequence[Value], pricer: Pricer) -> str | None:
    """The cheapest method of a collective from some values to others."""
    held, made = (sum(pricer.sent(v) for v in side) for side in (before, after))
    shares = {"reduce_scatter": made, "all_to_all": np.maximum(held, made)}.get(op, held)
    total = float(np.max(shares) if op == "all_reduce" else np.sum(shares))
    return best_method(op, shares, total, pricer.cluster)[0]


def _cut(line: Line, pricer: Pricer, pieces: int) -> Iterator[Line]:
    """A message in so many pieces of about as many bytes, its tensors in their order."""
    own = line.instruction
    sent = np.cumsum([float(np.max(pricer.sent(v))) for v in own.inputs])
    ends = [int(np.searchsorted(sent, sent[-1] * p / pieces)) + 1 for p in range(1, pieces)]
    for start, end in pairwise(dict.fromkeys((0, *ends, len(sent)))):
        before, after = own.inputs[start:end], own.outputs[start:end]
        method = cheapest_method(own.op, before, after, pricer)
        yield pricer.line(replace(own, inputs=before, outputs=after, method=method))
