"""A part of the space: what a baseline stands for, or what a person has decided already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hapdsl.graph.training import Node
from hapdsl.search.offers import Offer
from hapdsl.theory.placements import Placement
from hapdsl.theory.rules import Rule

Allow = Callable[[Node, Rule], bool]
AllowHeld = Callable[[str, Placement], bool]


@dataclass(frozen=True)
class Wish:
    """What must become of one tensor.

    `made`: placements that it must be offered as, by conversion: the call itself gives another. `wanted`: placements that must come up, offered or as the call
    gives it (as a parameter is held). `sources[p]` is what `p` must be converted from, `methods[p]` by which method.
    """

    made: Offer = ()
    wanted: Offer = ()
    sources: Mapping[Placement, Placement] = field(default_factory=dict)
    methods: Mapping[Placement, str] = field(default_factory=dict)

    @property
    def asked(self) -> Offer:
        """The placements that someone wants to see."""
        return (*self.made, *self.wanted)

    def granted(self, given: Placement, offer: Offer) -> bool:
        """Do a given placement and an offered set have all that is wanted?"""
        return given not in self.made and all(p == given or p in offer for p in self.wanted)

    def key(self) -> tuple[object, ...]:
        """Equal for equal wishes."""
        return (self.made, self.wanted, tuple(sorted(self.sources.items())), tuple(sorted(self.methods.items())))


NOTHING = Wish()


@dataclass(frozen=True)
class Restriction:
    """`allow(call, rule)` and `allow_held(param, placement)` are True everywhere by default; `wishes` by tensor.

    `scope` says in words what a bound within the restriction covers.
    """

    allow: Allow = lambda node, rule: True
    allow_held: AllowHeld = lambda param, placement: True
    wishes: Mapping[str, Wish] = field(default_factory=dict)
    scope: str = ""
