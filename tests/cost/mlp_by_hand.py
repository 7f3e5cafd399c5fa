"""A two-layer training step, its graph and its program written out by hand: nothing here comes from the elaborator.

u = x w1;  h = relu(u);  y = h w2;  and back, with SGD on both weights
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hapdsl.cluster import Cluster, Device, Host, Link
from hapdsl.graph.program import Instruction, Layout, Program, Value
from hapdsl.graph.training import DimensionClass, Node, Tensor, TrainingGraph
from hapdsl.theory.instance import Given
from hapdsl.theory.instantiate import instantiate
from hapdsl.theory.library import standard
from hapdsl.theory.placements import P, Placements, R, S

BATCH, IN, HIDDEN, OUT = 12, 6, 8, 4


def call(
    op: str, operands: Sequence[tuple[str, str]], outputs: Sequence[str], tensors: dict[str, Tensor], **attributes: int
) -> Node:
    """`outputs = op(tensors, attributes)`; `operands` are (operand of the declaration, tensor)."""
    given = [Given(operand, tensors[t].shape, tensors[t].dtype) for operand, t in operands]
    instance = instantiate(standard()[op], given, attributes)
    return Node(instance, tuple(t for _, t in operands), tuple(outputs), "forward", op)


def graph(batch: int = BATCH, d: int = IN, hidden: int = HIDDEN, out: int = OUT, dtype: str = "f32") -> TrainingGraph:
    tensors = {
        name: Tensor(name, shape, dtype, kind, classes)
        for name, shape, kind, classes in [
            ("x", (batch, d), "input", ("batch", "d")),
            ("g", (batch, out), "input", ("batch", "out")),
            ("w1", (d, hidden), "param", ("d", "hidden")),
            ("w2", (hidden, out), "param", ("hidden", "out")),
            ("u", (batch, hidden), "value", ("batch", "hidden")),
            ("h", (batch, hidden), "value", ("batch", "hidden")),
            ("y", (batch, out), "value", ("batch", "out")),
            ("w2.grad", (hidden, out), "value", ("hidden", "out")),
            ("h.grad", (batch, hidden), "value", ("batch", "hidden")),
            ("w1.grad", (d, hidden), "value", ("d", "hidden")),
            ("w1.new", (d, hidden), "value", ("d", "hidden")),
            ("w2.new", (hidden, out), "value", ("hidden", "out")),
        ]
    }
    nodes = [
        call("matmul", [("x", "x"), ("w", "w1")], ["u"], tensors),
        call("relu", [("x", "u")], ["h"], tensors),
        call("matmul", [("x", "h"), ("w", "w2")], ["y"], tensors),
        call("matmul_tn", [("x", "h"), ("g", "g")], ["w2.grad"], tensors),
        call("matmul_nt", [("x", "g"), ("w", "w2")], ["h.grad"], tensors),
        call("matmul_tn", [("x", "x"), ("g", "h.grad")], ["w1.grad"], tensors),
        call("sgd", [("w", "w1"), ("g", "w1.grad")], ["w1.new"], tensors),
        call("sgd", [("w", "w2"), ("g", "w2.grad")], ["w2.new"], tensors),
    ]
    sizes = {"batch": batch, "d": d, "hidden": hidden, "out": out}
    classes = {
        name: DimensionClass(
            name, units, tuple((t.name, k) for t in tensors.values() for k, c in enumerate(t.classes) if c == name)
        )
        for name, units in sizes.items()
    }
    updates = {"w1": "w1.new", "w2": "w2.new"}
    return TrainingGraph("mlp", {}, tensors, nodes, classes, None, outputs=("y",), updates=updates)


def one(value: str) -> Value:
    """ "h@S(0)" on one axis."""
    tensor, _, placement = value.partition("@")
    placements: Placements = (R,) if placement == "R" else (P,) if placement == "P" else (S(int(placement[2:-1])),)
    return Value(tensor, placements)


def line(g: TrainingGraph, op: str, inputs: str, outputs: str, method: str | None = None) -> Instruction:
    """One instruction; a compute operator is found by what it makes."""
    ins, outs = tuple(map(one, inputs.split())), tuple(map(one, outputs.split()))
    node = next((n for n in g.nodes if n.op == op and n.outputs == tuple(v.tensor for v in outs)), None)
    return Instruction(op, ins, outs, node=node, method=method)


def data_parallel(g: TrainingGraph, shares: Sequence[int], method: str = "padded") -> Program:
    """The batch cut by `shares`, replicated weights; w2's gradient exchanged by a reduce-scatter and an all-gather."""
    lines = [
        line(g, "input", "", "x@S(0) g@S(0)"),
        line(g, "param", "", "w1@R w2@R"),
        line(g, "matmul", "x@S(0) w1@R", "u@S(0)"),
        line(g, "relu", "u@S(0)", "h@S(0)"),
        line(g, "matmul", "h@S(0) w2@R", "y@S(0)"),
        line(g, "matmul_tn", "h@S(0) g@S(0)", "w2.grad@P"),
        line(g, "reduce_scatter", "w2.grad@P", "w2.grad@S(0)", method),
        line(g, "matmul_nt", "g@S(0) w2@R", "h.grad@S(0)"),
        line(g, "matmul_tn", "x@S(0) h.grad@S(0)", "w1.grad@P"),
        line(g, "all_reduce", "w1.grad@P", "w1.grad@R"),
        line(g, "all_gather", "w2.grad@S(0)", "w2.grad@R", method),
        line(g, "sgd", "w1@R w1.grad@R", "w1.new@R"),
        line(g, "sgd", "w2@R w2.grad@R", "w2.new@R"),
    ]
    n = len(shares)
    layout = Layout(
        (("devices", n),),
        {"batch": {(0,): np.array(shares)}, "hidden": {(0,): Layout.even(g.classes["hidden"].units, n)}},
    )
    return Program("dp", g, layout, lines)


def cluster(speeds: Sequence[float], bandwidth: float = 1e3, link: Link | None = None, launch: float = 0.0) -> Cluster:
    """One node whose device k has speeds[k] FLOP/s and `bandwidth` bytes/s to its memory."""
    devices = tuple(Device(f"d.{k}", f"k{s}", {"f32": s}, 1e9, bandwidth, launch) for k, s in enumerate(speeds))
    return Cluster("hand", devices, (Host("d", tuple(range(len(speeds))), link or Link(100.0, 0.5)),))
