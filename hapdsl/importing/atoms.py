"""Dims by their factors.

A dim of an exported tensor is a row of *atoms*, major first: 2304 may be (3, heads, head_dim). Views tie rows of equal product,
operators tie dims; both split atoms where the other side has a boundary, and make atoms one. What is left are the dims that a text
can name. A dim of 1 is the empty row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator


class Atom:
    """One factor of a dim, `size` elements long.

    `parts` are what it was split into, `same` the atom it was made one with; only one of them is set, and only where the atom is no
    longer its own. A `twin` is another index over the same extent: the columns of a square of scores. A `side` is the height or width
    of an image: such dims are whole, and what a view makes of several of them is a dim like any other.
    """

    __slots__ = ("parts", "same", "side", "size", "twin")

    def __init__(self, size: int, twin: Atom | None = None, side: bool = False) -> None:
        self.size, self.twin, self.side = size, twin, side
        self.same: Atom | None = None
        self.parts: tuple[Atom, ...] | None = None

    def __repr__(self) -> str:
        return f"<{self.size} {id(self) % 9973}>"


Dim = tuple[Atom, ...]


def leaves(dim: Iterable[Atom]) -> Dim:
    """The atoms that a row stands for now, without those of size 1."""
    return tuple(_leaves(dim))


def _leaves(dim: Iterable[Atom]) -> Iterator[Atom]:
    for atom in dim:
        while atom.same is not None:
            atom = atom.same
        if atom.parts is not None:
            yield from _leaves(atom.parts)
        elif atom.size > 1:
            yield atom


def size(dim: Iterable[Atom]) -> int:
    return math.prod(a.size for a in dim)


def root(atom: Atom) -> Atom:
    """The atom that `atom` is an index over: itself, or what it is a twin of (split as that is)."""
    while atom.twin is not None or atom.same is not None:
        atom = atom.same if atom.same is not None else atom.twin  # type: ignore[assignment]
    return atom


class Ties:
    """Ties rows of atoms; `changes` counts what that changed."""

    def __init__(self) -> None:
        self.changes = 0

    def tie(self, left: Iterable[Atom], right: Iterable[Atom]) -> bool:
        """Make two rows of equal product one, element by element in row-major order; False where their boundaries don't nest."""
        ours, theirs = list(leaves(left)), list(leaves(right))
        if size(ours) != size(theirs):
            return False
        while ours and theirs:
            a, b = ours.pop(0), theirs.pop(0)
            if a is b:
                continue
            if root(a) is root(b):
                if a.twin is not None and b.twin is not None:
                    self._join(a, b)  # both are the second index over one extent
                continue
            if a.size == b.size:
                self._join(a, b)
            elif a.size > b.size and a.size % b.size == 0:
                ours[:0] = self._split(a, b.size)
                theirs.insert(0, b)
            elif b.size > a.size and b.size % a.size == 0:
                theirs[:0] = self._split(b, a.size)
                ours.insert(0, a)
            else:
                return False
        return True

    def _join(self, a: Atom, b: Atom) -> None:
        self.changes += 1
        b.same = a
        a.side = a.side or b.side

    def _split(self, atom: Atom, major: int) -> Dim:
        """The two parts of an atom; what it is a twin of is split alike."""
        self.changes += 1
        if atom.twin is not None:
            original = leaves((atom.twin,))
            if len(original) == 1:
                original = self._split(original[0], major)
            atom.parts = tuple(Atom(o.size, o) for o in original)
            return leaves(atom.parts) if atom.parts[0].size == major else atom.parts
        atom.parts = (Atom(major), Atom(atom.size // major))
        return atom.parts
