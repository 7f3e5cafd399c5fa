"""Where prices of collectives stand among the choices, and what each is for. Cost: O(tensors) look-ups, once per structure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hapdsl.theory.placements import Placement

if TYPE_CHECKING:
    from hapdsl.search.structure import Structure


@dataclass(frozen=True, slots=True)
class Gives:
    """A call makes tensor `name`, as `given` under its rules: a price over (rule, offered set), by `kind`."""

    scope: tuple[int, int]
    name: str
    kind: int
    given: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """Where a price of collectives stands, and what it is for. Those of one `kind` have the same price.

    A tensor that a call gives is made into what it is offered as; a parameter (nothing is `given`) from how it is held; what
    `replaces` one comes back to how that is held.
    """

    scope: tuple[int, ...]
    name: str
    kind: int
    given: tuple[Placement, ...] = ()
    replaces: str = ""


def moves(structure: Structure) -> list[Move]:
    """Everything that collectives may be sent for: what calls give, then parameters and what replaces them."""
    found = [Move(g.scope, g.name, g.kind, g.given) for g in structure.gives]
    for name, pairs in structure.holds.items():
        variable = structure.offer_variable[name]
        kind = structure.number(("held", structure.tensor_kind[name], pairs, structure.carries.get(name)))
        found.append(Move((variable,), name, kind))
        new = structure.training.updates.get(name)
        if new is not None:
            k, j = structure.maker(new)
            given = structure.given(k, j)
            kind = structure.number(("new", structure.tensor_kind[new], pairs, given))
            found.append(Move((structure.rule_variable[k], variable), new, kind, given, name))
    return found
