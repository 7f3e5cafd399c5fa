"""Symbols for dims: batch, seq, d, heads, ffn, vocab.

The example names the dims of inputs. Others are named after the part they play, which operators tell. A dim without a part stays a number.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence

from hapdsl.importing.atoms import Atom, Dim, leaves, root, size
from hapdsl.importing.values import Declared, Notation, Sizes, Statement
from hapdsl.lang import nodes

MOST_OF_A_KIND = 3  # hidden widths that get a symbol of their own; beyond that numbers read better


class Symbols:
    """Names for atoms, and for rows of them. `values` are the model's parameters, in order."""

    def __init__(
        self,
        given: Mapping[str, Dim],
        taken: Iterable[str] = (),
        measured: Mapping[Atom, tuple[list[Dim], int]] | None = None,
    ) -> None:
        self.values: dict[str, int] = {}
        self.atoms: dict[int, str] = {}
        self.rows: dict[tuple[int, ...], str] = {}
        self.kept: list[Atom] = []  # keeps ids alive
        self.taken = set(taken)
        self.used: set[str] = set()
        self.sums: dict[int, tuple[list[Dim], int]] = {}  # of atoms whose length is a sum
        for atom, made in (measured or {}).items():
            own = leaves((atom,))
            if len(own) == 1:
                self.sums.setdefault(id(root(own[0])), made)
        for name, dim in given.items():
            found = leaves(dim)
            self.values[name] = size(dim)
            if len(found) == 1:
                self.bind(found[0], name)
            elif found:
                self.rows[tuple(id(root(a)) for a in found)] = name

    def bind(self, atom: Atom, name: str) -> None:
        self.kept.append(root(atom))
        self.atoms.setdefault(id(root(atom)), name)

    def of(self, atom: Atom) -> str | None:
        return self.atoms.get(id(root(atom)))

    def name(self, atom: Atom, wanted: str) -> None:
        """Call an atom `wanted`, if it has no name yet and the word isn't used for another extent."""
        if self.of(atom) is not None or wanted in self.taken:
            return
        if self.values.setdefault(wanted, atom.size) == atom.size:
            self.bind(atom, wanted)

    def extent(self, dim: Dim, plus: int = 0) -> nodes.Expr:
        """The length of a row of atoms as the text says it."""
        found = leaves(dim)
        if plus:
            return _plus(self.extent(dim), plus)
        row = self.rows.get(tuple(id(root(a)) for a in found))
        if row is not None:
            self.used.add(row)
            return nodes.Name(row)
        factors: list[nodes.Expr] = []
        number = 1
        for a in found:
            name = self.of(a)
            if name is None and (summed := self.summed(a)) is not None:
                factors.append(summed)
            elif name is None:
                number *= a.size
            else:
                self.used.add(name)
                factors.append(nodes.Name(name))
        if number > 1 or not factors:
            factors.append(nodes.Number(number))
        expr = factors[0]
        for f in factors[1:]:
            expr = nodes.Binary("*", expr, f)
        return expr

    def summed(self, atom: Atom) -> nodes.Expr | None:
        """An atom's length as a sum of others', where one of these has a name."""
        made = self.sums.pop(id(root(atom)), None)  # no sum holds itself
        if made is None:
            return None
        rows, plus = made
        terms = [self.extent(row) for row in rows]
        self.sums[id(root(atom))] = made
        named = [t for t in terms if not isinstance(t, nodes.Number)]
        if not named:
            return None
        plus += sum(int(t.value) for t in terms if isinstance(t, nodes.Number))
        return _plus(functools.reduce(lambda a, b: nodes.Binary("+", a, b), named), plus)

    def parameters(self) -> tuple[nodes.Parameter, ...]:
        return tuple(nodes.Parameter(n, nodes.Number(v)) for n, v in self.values.items() if n in self.used)


def _plus(expr: nodes.Expr, plus: int) -> nodes.Expr:
    if isinstance(expr, nodes.Binary) and expr.op in "+-" and isinstance(expr.right, nodes.Number):
        plus += int(expr.right.value) * (1 if expr.op == "+" else -1)
        expr = expr.left
    if plus == 0:
        return expr
    if isinstance(expr, nodes.Number):
        return nodes.Number(int(expr.value) + plus)
    return nodes.Binary("+" if plus > 0 else "-", expr, nodes.Number(abs(plus)))


def general(name: str) -> str:
    """A parameter's name with the numbers of layers left open."""
    return re.sub(r"(?<=\.)\d+(?=\.)", "*", name)


def find_parts(symbols: Symbols, statements: Sequence[Statement], declared: Mapping[str, Declared]) -> None:
    """Name atoms after their parts: tables, attention, losses, then widths between two weights."""
    by_tensor = {id(d.tensor): d for d in declared.values()}
    for s in statements:
        shapes = [by_tensor.get(id(t)) for t in s.operands]
        if s.op == "embedding" and (table := shapes[1]) is not None and shapes[0] is not None:
            _name_dim(symbols, table.dims[0], "vocab")
            _name_dim(symbols, table.dims[1], "d")
        if s.op == "top_k_gate":
            _name_dim(symbols, s.shapes[0][2], "experts")
        if (
            s.op == "bmm"
            and len(s.shapes[0]) == 4
            and any(a.twin for a in s.shapes[0][-1])
            and len(s.shapes[1][-1]) == 1
        ):
            symbols.name(s.shapes[1][-1][0], "head_dim")
        if s.op == "attention" or (
            s.op in ("bmm", "bmm_nt") and s.shapes[0][-1:] and not any(a.twin for a in s.shapes[0][-1])
        ):
            _name_heads(symbols, s)
    for s in statements:
        if s.op in ("layer_norm", "rms_norm") and (w := by_tensor.get(id(s.operands[1]))) is not None:
            _name_dim(symbols, w.dims[-1], "d")
        if s.op == "cross_entropy":
            _name_classes(symbols, s)
    _name_widths(symbols, statements, by_tensor)


def _name_dim(symbols: Symbols, dim: Dim, name: str) -> None:
    found = leaves(dim)
    if len(found) == 1:
        symbols.name(found[0], name)


def _name_heads(symbols: Symbols, s: Statement) -> None:
    """Heads are the second dim of what attention reads; two atoms are groups that share keys and values."""
    shape = s.shapes[0] if s.shapes else ()
    if len(shape) != 4:
        return
    heads, width = leaves(shape[1]), leaves(shape[3])
    if len(heads) == 1:
        symbols.name(heads[0], "heads")
    elif len(heads) == 2:
        symbols.name(heads[0], "kv_heads")
        symbols.name(heads[1], "group")
    widths = [width, leaves(s.shapes[2][3])] if s.op == "attention" else [width]
    for found in widths:
        if len(found) == 1:
            symbols.name(found[0], "head_dim")


def _name_classes(symbols: Symbols, s: Statement) -> None:
    shape = s.shapes[0] if s.shapes else ()
    if shape:
        _name_dim(symbols, shape[-1], "classes" if len(shape) == 2 else "vocab")


def _name_widths(symbols: Symbols, statements: Sequence[Statement], by_tensor: Mapping[int, Declared]) -> None:
    """What one weight makes and another one sums."""
    made: dict[int, tuple[Atom, str]] = {}
    summed: set[int] = set()
    for s in statements:
        if s.op not in ("matmul", "matmul_nt", "einsum") or len(s.operands) != 2:
            continue
        w = by_tensor.get(id(s.operands[1]))
        if w is None:
            continue
        result = {id(root(a)) for d in s.made for a in d}
        for a in (a for d in w.dims for a in leaves(d)):
            if id(root(a)) in result:
                made.setdefault(id(root(a)), (a, general(w.name)))
            else:
                summed.add(id(root(a)))
    widths = [(a, key) for k, (a, key) in made.items() if k in summed and symbols.of(a) is None]
    kinds = list(dict.fromkeys(key for _, key in widths))
    if len(kinds) > MOST_OF_A_KIND:
        return
    word = "ffn" if "d" in symbols.values else "hidden"
    for a, key in widths:
        k = kinds.index(key)
        symbols.name(a, word if k == 0 else f"{word}{k + 1}")


# -- notations --------------------------------------------------------------------------------

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def notation(symbols: Symbols, spec: Notation) -> tuple[str, dict[int, str]]:
    """The text of an index notation, and what it calls each row (einsum) or atom (rearrange)."""
    words: dict[int, str] = {}
    keep: list[object] = []

    def word(atom: Atom) -> str:
        if id(atom) not in words:
            keep.append(atom)
            own = symbols.of(atom) or ""
            start = {"head_dim": "e", "batch": "b", "kv_heads": "k"}.get(own, own[:1].lower())
            options = (
                ([start] if start.isalpha() else []) + [c for c in _LETTERS if c not in "bsdhekg"] + list(_LETTERS)
            )
            words[id(atom)] = next(c for c in options if c not in words.values())
        return words[id(atom)]

    if spec.letters:
        terms = ["".join(word(d[0]) for d in layout) for layout in spec.operands]
        return f"{','.join(terms)}->{''.join(word(d[0]) for d in spec.result)}", words

    def term(layout: Sequence[Dim]) -> str:
        return " ".join(
            "1" if not d else word(d[0]) if len(d) == 1 else f"({' '.join(word(a) for a in d)})" for d in layout
        )

    return f"{', '.join(term(o) for o in spec.operands)} -> {term(spec.result)}", words


def sizes(symbols: Symbols, wanted: Sizes, words: Mapping[int, str]) -> dict[str, nodes.Expr]:
    """The extents that a rearrange needs: of each merged dim on its left all atoms but one."""
    found: dict[str, nodes.Expr] = {}
    for dim in wanted.dims:
        given = [a for a in dim if symbols.of(a) not in ("batch", "seq")]
        left_out = dim[-1] if len(given) == len(dim) else next(a for a in dim if symbols.of(a) in ("batch", "seq"))
        for a in dim:
            if a is not left_out:
                found[words[id(a)]] = symbols.extent((a,))
    return found
