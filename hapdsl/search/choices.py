"""Choices spelled out, and the assignments of a structure's variables that stand for them. Cost: O(calls) look-ups either way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hapdsl.search.carry import KEPT, MADE_AGAIN, RECOMPUTED
from hapdsl.search.factors import Assignment
from hapdsl.search.offers import Offer
from hapdsl.theory.placements import Placement
from hapdsl.theory.rules import Rule

if TYPE_CHECKING:
    from hapdsl.search.structure import Structure


@dataclass(frozen=True)
class Choice:
    """One value per variable, spelled out: what the scheduler turns into a program.

    `rules[k]` is the rule of call k, `offered[t]` the set a tensor is offered as, `held[p]` a parameter's placement. `carry[t]` says how
    the backward pass comes by a tensor that isn't kept for it: "again" (from the placement it was made or is held in) or "recomputed".
    """

    rules: tuple[Rule, ...]
    offered: Mapping[str, Offer]
    held: Mapping[str, Placement]
    carry: Mapping[str, str] = field(default_factory=dict)

    def key(self) -> tuple[object, ...]:
        """Equal for equal choices of one graph."""
        return (self.rules, tuple(self.held.items()), tuple(self.offered.items()), tuple(self.carry.items()))


def choice_of(structure: Structure, assignment: Assignment) -> Choice:
    """The choices that an assignment stands for."""
    at = structure.offer_variable
    rules = tuple(rules[assignment[v]] for rules, v in zip(structure.rules, structure.rule_variable, strict=True))
    offered = {n: os[assignment[at[n]]] for n, os in structure.offers.items()}
    held = {}
    for name, pairs in structure.holds.items():
        held[name], offered[name] = pairs[assignment[at[name]]]
    carry = {n: w for n, words in structure.carries.items() if (w := words[assignment[at[n]]]) in MADE_AGAIN}
    return Choice(rules, offered, held, _of_use(structure, carry) if carry else carry)


def _of_use(structure: Structure, carry: Mapping[str, str]) -> dict[str, str]:
    """What is made again without what nothing comes back to: tensors that only a call that runs twice would need, where none does."""
    needed = {name for name, sure in structure.again.needed.items() if sure}
    for node in reversed(structure.training.nodes):
        if node.outputs[0] in needed and carry.get(node.outputs[0]) == RECOMPUTED:
            needed.update(node.inputs)
    return {name: how for name, how in carry.items() if name in needed}


def cheapest_assignment(structure: Structure, choice: Choice) -> Assignment:
    """The cheapest assignment that stands for some choices. Raises ValueError where they lie outside the structure's space."""
    training = structure.training
    found = [0] * len(structure.base.sizes)
    for k, (rules, v, rule) in enumerate(zip(structure.rules, structure.rule_variable, choice.rules, strict=True)):
        twice = choice.carry.get(training.nodes[k].outputs[0]) == RECOMPUTED
        found[v] = _first((r == rule and t == twice) for r, t in zip(rules, structure.twice[k], strict=True))
    needed = _needed_later(structure, choice)
    for name, options in (*structure.offers.items(), *structure.holds.items()):
        offer = choice.offered[name]
        value: object = offer if name in structure.offers else (choice.held[name], offer)
        word = choice.carry.get(name, KEPT if needed.get(name, True) else "")
        words = structure.carries.get(name, (KEPT,) * len(options))
        found[structure.offer_variable[name]] = _first(
            (o == value and w == word) for o, w in zip(options, words, strict=True)
        )
    for kind, flag in structure.flags.items():
        found[flag] = int(any(table[tuple(found[v] for v in scope)] for scope, table in structure.needs[kind]))
    return tuple(found)


def _needed_later(structure: Structure, choice: Choice) -> dict[str, bool]:
    """For each tensor that may be needed in the backward pass, whether it is."""
    found = dict(structure.again.needed)
    for name, how in choice.carry.items():
        if how == RECOMPUTED:
            call = structure.training.nodes[structure.training.producer[name]]
            found.update((n, True) for n in call.inputs if n in found)
    return found


def _first(matches: Iterable[bool]) -> int:
    """The place of the first True. Raises ValueError where there is none."""
    return list(matches).index(True)
