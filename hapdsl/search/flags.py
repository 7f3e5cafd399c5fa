"""Which choices can't do without a message: where the flags of shared messages (`hapdsl.search.messages.SHARED`) must be up."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hapdsl.search.messages import SHARED
from hapdsl.search.offers import Offer, feasible
from hapdsl.theory.placements import Placement

if TYPE_CHECKING:
    from hapdsl.search.structure import Held, Structure

Need = tuple[tuple[int, ...], np.ndarray]  # variables, and a bool table over their values


def needs(structure: Structure, shared: str) -> list[Need]:
    """Where the choices of some variables can't do without a message of one kind. Cost: O(tensors) look-ups, a table per kind."""
    what, kinds = SHARED[shared]
    found: list[Need] = []
    for give in structure.gives if what == "gradients" else ():
        if give.name in structure.buckets.gradients:
            found.append((give.scope, _table(structure, kinds, give.given, structure.offers[give.name])))
    for name, pairs in structure.holds.items():
        variable = structure.offer_variable[name]
        if what == "params":
            table = structure.table(("needs held", kinds, pairs), partial(_of_held, kinds, pairs))
            found.append(((variable,), table))
        new = structure.training.updates.get(name)
        if what == "updated" and new is not None:
            k, j = structure.maker(new)
            held = tuple((h,) for h, _ in pairs)
            table = _table(structure, kinds, structure.given(k, j), held)
            found.append(((structure.rule_variable[k], variable), table))
    return found


def unless_sent(needed: np.ndarray) -> np.ndarray:
    """Forbidden where a message is needed and its flag is 0: a table with one more axis, of the flag."""
    return np.stack([np.where(needed, np.inf, 0.0), np.zeros(needed.shape)], axis=-1)


def _table(
    structure: Structure, kinds: tuple[str, ...], given: tuple[Placement, ...], offered: tuple[Offer, ...]
) -> np.ndarray:
    key = ("needs", kinds, given, offered)
    return structure.table(key, lambda: np.array([[_needed(kinds, p, o) for o in offered] for p in given]))


def _of_held(kinds: tuple[str, ...], pairs: tuple[Held, ...]) -> np.ndarray:
    return np.array([_needed(kinds, held, offer) for held, offer in pairs])


def _needed(kinds: tuple[str, ...], source: Placement, offer: Offer) -> bool:
    """Can `offer` be made from `source`, but not without a message of these kinds?"""
    return feasible(source, offer) and not feasible(source, offer, without=kinds)
