"""Cells of recurrent networks, one step of a sequence that the module goes along itself."""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from hapdsl.importing.atoms import leaves, size
from hapdsl.importing.build import Builder
from hapdsl.importing.handlers import handles
from hapdsl.importing.on_choices import call, minus, plus, times
from hapdsl.importing.on_layout import part
from hapdsl.importing.on_matrices import linear
from hapdsl.importing.on_numbers import fresh
from hapdsl.importing.values import Value

UNROLL = "go along the sequence with nn.LSTMCell or nn.GRUCell: for t in range(x.shape[1]): h = self.cell(x[:, t], h)"


@handles("aten.gru_cell.default")
def gru_cell(
    b: Builder, node: Node, x: Value, h: Value, w: Value, u: Value, bias: Value | None = None, own: Value | None = None
) -> Value:
    """n + z (h - n), where r and z are sigmoids, and n = tanh(of x + r * of h)."""
    given = _gates(b, "given", linear(b, node, fresh(x), fresh(w), bias), 3)
    kept = _gates(b, "kept", linear(b, node, fresh(h), fresh(u), own), 3)
    r, z = (call(b, "sigmoid", _sum(b, given[k], kept[k])) for k in (0, 1))
    new = call(b, "tanh", _sum(b, given[2], times(b, r, kept[2])))
    return _sum(b, new, times(b, z, minus(b, h, new)))


@handles("aten.lstm_cell.default")
def lstm_cell(
    b: Builder,
    node: Node,
    x: Value,
    state: Sequence[Value],
    w: Value,
    u: Value,
    bias: Value | None = None,
    own: Value | None = None,
) -> tuple[Value, Value]:
    """The output and the cell: o tanh(c), where c = f c + i tanh(g), and i, f and o are sigmoids."""
    h, c = state
    both = _sum(b, linear(b, node, fresh(x), fresh(w), bias), linear(b, node, fresh(h), fresh(u), own))
    i, f, g, o = _gates(b, "both", both, 4)
    c = _sum(b, times(b, call(b, "sigmoid", f), c), times(b, call(b, "sigmoid", i), call(b, "tanh", g)))
    return times(b, call(b, "sigmoid", o), call(b, "tanh", fresh(c))), c


@handles("aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")
def whole_sequence(b: Builder, node: Node, *_: object, **__: object) -> Value:
    raise b.refuse(f"{str(node.target).split('.')[1]} over a whole sequence", UNROLL)


def _gates(b: Builder, key: str, x: Value, count: int) -> list[Value]:
    """The parts of a dim in which gates stand one behind the other."""
    gates, within = b.new_dim((key, "gates"), count), b.new_dim((key, "within"), size(x.dims[-1]) // count)
    b.tie(x.dims[-1], (*gates, *within))
    x = fresh(x)
    dims = (*x.dims[:-1], leaves(within))
    return [fresh(part(b, x, leaves(gates), k, k + 1, (), dims)) for k in range(count)]


def _sum(b: Builder, x: Value, y: Value) -> Value:
    return fresh(plus(b, x, y))
