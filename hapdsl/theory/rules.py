"""The rules of one instance: which input placements give which output placements, on one mesh axis.

Everything follows from index notation; no operator has a rule written by hand:

- all operands replicated give replicated outputs;
- an index that stands in an output may be sharded: `S` wherever it stands, `R` where it doesn't;
- an index under `sum` may be sharded too: outputs that lack it come out as `P`;
- `whole` indices, minor parts of merged dims, absent indices not under `sum`, and extents of 1 stay whole;
- operands that are linear (together) may be `P` while the others are `R`: the outputs are `P`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hapdsl.theory.instance import Instance
from hapdsl.theory.placements import P, Placement, R, S


@dataclass(frozen=True, slots=True)
class Rule:
    """`inputs` -> `outputs`; `index` is the sharded index, None where none is."""

    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    index: str | None = None


def rules(instance: Instance) -> tuple[Rule, ...]:
    """All rules of the instance, the replicated one first. Cost: O(indices × operands), once an instance."""
    known: tuple[Rule, ...] | None = instance.derived.get("rules")
    if known is None:
        known = instance.derived["rules"] = _derive(instance)
    return known


def _derive(instance: Instance) -> tuple[Rule, ...]:
    found = [Rule((R,) * len(instance.operands), (R,) * len(instance.results))]
    for index in instance.indices:
        rule = _shard(instance, index)
        if rule is not None:
            found.append(rule)
    for group in instance.linear:
        inputs = tuple(P if k in group else R for k in range(len(instance.operands)))
        found.append(Rule(inputs, (P,) * len(instance.results)))
    return tuple(dict.fromkeys(found))


def _shard(instance: Instance, index: str) -> Rule | None:
    """The rule that shards one index, or None where it must stay whole."""
    if index in instance.wholes or index.isdigit() or instance.extents[index] == 1:
        return None
    majors = instance.majors(index)
    if majors is None:
        return None
    inputs, outputs = majors
    if any(d is None for d in outputs) and index not in instance.sums:
        return None
    return Rule(
        tuple(R if d is None else S(d) for d in inputs),
        tuple(P if d is None else S(d) for d in outputs),
        index,
    )
