"""Broadcasting and reshapes on generated shapes, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hapdsl.lang.diagnostics import HapError
from hapdsl.theory.rules import rules
from tests.theory.helpers import call

SHAPES = st.lists(st.integers(1, 4), max_size=4).map(tuple)


@settings(deadline=None, max_examples=150)
@given(SHAPES, SHAPES)
def test_broadcasting_is_numpys(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    try:
        expected = np.broadcast_shapes(a, b)
    except ValueError:
        with pytest.raises(HapError) as stop:
            call("add", a, b)
        assert stop.value.diagnostics[0].code == "HAP302"
        return
    assert call("add", a, b).result_shapes == (expected,)


@settings(deadline=None, max_examples=150)
@given(SHAPES, SHAPES, st.data())
def test_rules_of_a_broadcast_hold(a: tuple[int, ...], b: tuple[int, ...], data: st.DataObject) -> None:
    """Cut the operands as a rule says, multiply piece by piece, and lay the pieces together: the whole product."""
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return
    x, y = (np.arange(1, np.prod(s) + 1).reshape(s) for s in (a, b))
    whole = x * y
    for rule in rules(call("mul", a, b)):
        if rule.index is None:
            continue
        (out,) = rule.outputs
        cut = data.draw(st.integers(0, whole.shape[out.dim]))
        pieces = []
        for k in range(2):
            parts = [
                np.split(v, [cut], p.dim)[k] if p.kind == "S" else v for v, p in zip((x, y), rule.inputs, strict=True)
            ]
            pieces.append(parts[0] * parts[1])
        assert np.array_equal(np.concatenate(pieces, out.dim), whole)


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int]]:
    """Two factorisations of one number."""
    factors = draw(st.lists(st.sampled_from([1, 2, 2, 3, 3, 5]), min_size=1, max_size=6))

    def grouped() -> list[int]:
        order = draw(st.permutations(factors))
        cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=4)))
        return [int(np.prod(order[i:j])) for i, j in zip([0, *cuts], [*cuts, len(order)], strict=True)]

    return tuple(grouped()), grouped()


@settings(deadline=None, max_examples=300)
@given(reshapes(), st.data())
def test_a_reshape_of_pieces_is_a_piece_of_the_reshape(
    case: tuple[tuple[int, ...], list[int]], data: st.DataObject
) -> None:
    """Whatever dim the rules let through: cut in units there, each piece reshaped by itself is the other side's piece."""
    shape, target = case
    made = call("reshape", shape, shape=target)
    x = np.arange(np.prod(shape)).reshape(shape)
    y = x.reshape(target)
    for rule in rules(made):
        if rule.index is None:
            continue
        (source,), (out,) = rule.inputs, rule.outputs
        units = made.extents[rule.index]
        unit = data.draw(st.integers(0, units))
        pieces = np.split(x, [unit * shape[source.dim] // units], source.dim)
        others = np.split(y, [unit * target[out.dim] // units], out.dim)
        for piece, other in zip(pieces, others, strict=True):
            assert piece.ravel().tolist() == other.ravel().tolist()
