"""Whole programs: totals and stages worked out by hand, and held against a second, plain reading of the rules."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from hapdsl.cluster import Cluster, Device, Host, Interference, Link
from hapdsl.cost import Cost, Pricer, evaluate
from hapdsl.cost.evaluate import stages_of
from hapdsl.cost.overlap import Beside
from hapdsl.graph.program import Instruction, Layout, Program, Value
from hapdsl.graph.training import DimensionClass, Tensor, TrainingGraph
from hapdsl.lang.diagnostics import HapError
from hapdsl.theory.placements import P, R, S
from hapdsl.workbench import Workbench
from tests.cost import mlp_by_hand as hand

SPEEDS, SHARES = [400, 200, 100, 100], [6, 3, 3, 0]


def small() -> Cost:
    return evaluate(hand.data_parallel(hand.graph(), SHARES), hand.cluster(SPEEDS))


# -- by hand: 400, 200, 100, 100 FLOP/s; 1000 bytes/s of memory; 100 bytes/s and 0.5 s between devices ----------------


def test_stages_by_hand() -> None:
    cost = small()
    first, scatter, reduce, gather = cost.stages
    # matmul 96 flops a row; relu 64 bytes a row (8 flops on the slow ones); matmul and matmul_tn 64 flops a row each
    by_hand = [1.44 + 0.384 + 0.96 + 0.96, 1.44 + 0.192 + 0.96 + 0.96, 2.88 + 0.24 + 1.92 + 1.92, 0]
    assert first.compute_s == pytest.approx(by_hand)
    assert (first.collective, first.bytes, first.comm_s, first.first, first.last) == (None, 0, 0, 0, 5)
    # w2.grad is 8 x 4 floats, 32 bytes a device, in three steps; then matmul_nt 64 and matmul_tn 96 flops a row
    assert (scatter.collective, scatter.method, scatter.tensors) == ("reduce_scatter", "padded", ("w2.grad",))
    assert scatter.bytes == 8 * 4 * 4
    assert scatter.comm_s == pytest.approx(3 * 32 / 100 + 3 * 0.5)
    assert scatter.compute_s == pytest.approx([0.96 + 1.44, 0.96 + 1.44, 1.92 + 2.88, 0])
    # w1.grad is 6 x 8 floats
    assert reduce.comm_s == pytest.approx(2 * 3 / 4 * 192 / 100 + 6 * 0.5)
    assert reduce.compute_s == pytest.approx([0, 0, 0, 0])
    # sgd is 2 flops an element, on every device, or three tensors through memory
    assert gather.compute_s == pytest.approx([0.576 + 0.384, 0.576 + 0.384, 0.96 + 0.64, 0.96 + 0.64])
    assert (gather.first, gather.last) == (10, 12)


def test_the_synchronous_total_by_hand() -> None:
    """The paper's: every collective, and the slowest device of every stage."""
    assert small().sync_s == pytest.approx(6.96 + (2.46 + 4.8) + 5.88 + (2.46 + 1.6))


def test_the_overlapped_total_by_hand() -> None:
    """The reduce-scatter runs beside the rest of the backward pass, so on device 2, the slowest: 6.96 + 4.8 of compute,
    then the all_reduce, the all_gather, and w2's update."""
    cost = small()
    assert cost.overlap_s == pytest.approx(6.96 + 4.8 + 5.88 + 2.46 + 0.64)
    assert cost.starts_s[6] == pytest.approx([6.96] * 4)  # the reduce-scatter waits for the slowest
    assert cost.starts_s[7] == pytest.approx([3.744, 3.552, 6.96, 0])  # h.grad for nobody
    assert cost.starts_s[11] == pytest.approx([6.96 + 4.8 + 5.88] * 4)  # w1's update needn't wait for the all-gather


def test_memory_by_hand() -> None:
    """Device 0 holds most during w1's update: its 6 rows of x, g and y, both weights, both gradients, w1.new."""
    cost = small()
    w1, w2, rows = 6 * 8 * 4, 8 * 4 * 4, 6 * 4
    held = rows * (6 + 4 + 4) + w1 + w2
    assert cost.memory.live[10:, 0].tolist() == [
        held + w1 + (w2 + w2),  # all_gather: a padded buffer and its result; its shard has ended when that was packed
        held + (w1 + w1) + w2,
        held + w1 + (w2 + w2),
    ]
    assert cost.memory_bytes[0] == held + w1 + w1 + w2 == 1168
    assert cost.memory.peak_instruction(0) == 11
    holders = dict(cost.memory_holders[0])
    assert holders == {
        "x@S(0)": rows * 6, "g@S(0)": rows * 4, "y@S(0)": rows * 4,
        "w1@R": w1, "w2@R": w2, "w1.grad@R": w1, "w2.grad@R": w2, "w1.new@R": w1,
    }  # fmt: skip


def test_buffers_of_an_all_reduce() -> None:
    """A ring sums in place; over nodes the pieces are joined into another whole one; several operands are flattened into one more."""
    program = hand.data_parallel(hand.graph(), SHARES)
    pricer = Pricer(program.graph, program.layout, hand.cluster(SPEEDS))
    one = program.instructions[9]
    two = Instruction(
        "all_reduce",
        tuple(Value(n, (P,)) for n in ("w1.grad", "w2.grad")),
        tuple(Value(n, (R,)) for n in ("w1.grad", "w2.grad")),
        "backward",
    )
    w1, w2 = 6 * 8 * 4, 8 * 4 * 4
    for instruction, method, expected in (
        (one, "ring", 0),
        (one, "hierarchical", w1),
        (two, "ring", w1 + w2),
        (two, "hierarchical", 2 * (w1 + w2)),
    ):
        assert pricer.price(replace(instruction, method=method)).buffer.tolist() == [expected] * 4


def test_a_device_without_rows_computes_only_the_updates() -> None:
    cost = small()
    assert [s.compute_s[3] for s in cost.stages[:3]] == [0, 0, 0]
    everything = cost.stages[3].compute_s[3] + sum(s.comm_s for s in cost.stages)
    assert sum(s[3] for s in cost.per_instruction_s) == pytest.approx(everything)


def test_json_is_plain() -> None:
    found = small().as_json()
    assert {"sync_s", "overlap_s", "memory_bytes", "stages"} <= set(found)
    assert {"collective", "bytes", "comm_s", "compute_s"} <= set(found["stages"][1])
    assert all(type(b) is int for b in found["memory_bytes"])
    assert all(type(c) is float for s in found["stages"] for c in s["compute_s"])


def test_what_fits_is_compared_with_the_cluster() -> None:
    cluster = hand.cluster(SPEEDS)
    assert small().fits
    tight = replace(cluster, devices=tuple(replace(d, memory=900.0) for d in cluster.devices))
    assert not evaluate(hand.data_parallel(hand.graph(), SHARES), tight).fits


def test_another_number_of_devices_is_a_coded_error() -> None:
    with pytest.raises(HapError) as raised:
        evaluate(hand.data_parallel(hand.graph(), SHARES), hand.cluster([1, 2, 3]))
    assert raised.value.diagnostics[0].code == "HAP420"


def test_a_pricer_of_another_cluster_is_refused() -> None:
    program = hand.data_parallel(hand.graph(), SHARES)
    pricer = Pricer(program.graph, program.layout, hand.cluster(SPEEDS))
    with pytest.raises(ValueError, match="pricer"):
        evaluate(program, hand.cluster(SPEEDS), pricer)


def test_an_empty_program_costs_nothing() -> None:
    program = hand.data_parallel(hand.graph(), SHARES)
    program.instructions = []
    cost = evaluate(program, hand.cluster(SPEEDS))
    assert (cost.sync_s, cost.overlap_s, cost.stages, cost.memory_bytes.tolist()) == (0, 0, [], [0] * 4)
    assert stages_of([]) == [] and cost.memory.holders(0) == [] and cost.memory.peak_instruction(1) == -1


def test_a_program_that_begins_with_a_collective_has_no_empty_stage() -> None:
    program = hand.data_parallel(hand.graph(), SHARES)
    program.instructions = program.instructions[6:8]
    assert [s.collective for s in evaluate(program, hand.cluster(SPEEDS)).stages] == ["reduce_scatter"]


def test_computing_beside_a_message_by_hand() -> None:
    """The reduce-scatter takes 2.46 s from 6.96 on. Device 2 has 4.8 s to compute then, at half its pace as long as that lasts: 1.23 s longer. Where
    it gets on with the message only by a fifth less meanwhile, that takes 2.46 / .8 = 3.075 s there."""
    plain = hand.cluster(SPEEDS)
    for message, lasts in ((0.0, 2.46), (0.2, 3.075)):
        devices = tuple(
            replace(d, interference=Interference(0.5, message) if k == 2 else Interference())
            for k, d in enumerate(plain.devices)
        )
        cost = evaluate(hand.data_parallel(hand.graph(), SHARES), replace(plain, devices=devices))
        assert cost.ends_s[8] == pytest.approx([3.744 + 2.4, 3.552 + 2.4, 6.96 + 4.8 + lasts / 2, 0])
        assert cost.sync_s == small().sync_s


def test_a_message_that_is_late_by_hand() -> None:
    """Device 0 computes 3 s beside a message of 2 s, each at half its pace: the message is there after 4 s. Device 1 has nothing to compute, and the
    message after 2 s. The next one, of 1 s, begins on each when the first is there."""
    beside = Beside(np.array([[0.5, 0.5], [0.5, 0.5]]))
    messages = [(np.array([0.0, 0.0]), np.array([2.0, 2.0])), (np.array([2.0, 2.0]), np.array([3.0, 3.0]))]
    for start, end in messages:
        beside.sent(start, end)
    done = np.array([3.0, 0.0])
    beside.slow(np.zeros(2), done)
    (_, first), (start, second) = messages
    assert first.tolist() == [4.0, 2.0]
    # A second's computing is left when the first message is there: beside the second one it takes two.
    assert done.tolist() == [6.0, 0.0]
    assert (start.tolist(), second.tolist()) == ([4.0, 2.0], [6.0, 3.0])


def beside_messages() -> Program:
    """A message of 2.92 s and one of 2.28 s beside 4 s of computing; what was sent is cut at once, with something that nobody makes."""
    g = hand.graph()
    layout = Layout((("devices", 2),), {"hidden": {(0,): np.array([4, 4])}})
    lines = [
        hand.line(g, "all_reduce", "w1.grad@P", "w1.grad@R"),
        hand.line(g, "all_reduce", "w2.grad@P", "w2.grad@R"),
        hand.line(g, "matmul", "x@R w1@R", "u@R"),
        hand.line(g, "slice", "w1.grad@R w2.grad@R h.grad@R", "w1.grad@S(1) w2.grad@S(0) h.grad@S(1)"),
        hand.line(g, "slice", "w1@R w2@R", "w1@S(1) w2@S(0)"),
        hand.line(g, "sgd", "w1@S(1) w1.grad@S(1)", "w1.new@S(1)"),
    ]
    return Program("cut", g, layout, lines)


def test_what_is_cut_of_late_messages_is_late_by_hand() -> None:
    """1152 FLOP at 288 FLOP/s. Where a device gets on with messages at half their pace meanwhile, the first is there after 2.92 + 4 / 2 s, and the second
    2.28 s behind it: so are their pieces, and the update waits for them."""
    plain = hand.cluster([288, 288])
    for message, there in ((0.0, 2.92 + 2.28), (0.5, 2.92 + 2 + 2.28)):
        devices = tuple(replace(d, interference=Interference(0.0, message)) for d in plain.devices)
        cost = evaluate(beside_messages(), replace(plain, devices=devices))
        assert cost.ends_s[3] == pytest.approx([there] * 2)
        assert cost.starts_s[4] == pytest.approx([0, 0])  # nothing of it was sent, and nobody made it
        assert cost.starts_s[5] == pytest.approx([there] * 2)


# -- liveness, point by point --------------------------------------------------------------------------


def test_a_value_made_again_lives_twice() -> None:
    """w2 gathered (its pieces are there beside it until they are laid together), read, gathered again and read again: in between nobody holds it."""
    g = hand.graph()
    layout = Layout((("devices", 2),), {"batch": {(0,): np.array([6, 6])}, "hidden": {(0,): np.array([4, 4])}})
    lines = [
        hand.line(g, "input", "", "x@S(0) g@S(0)"),
        hand.line(g, "param", "", "w1@R w2@S(0)"),
        hand.line(g, "all_gather", "w2@S(0)", "w2@R", "grouped"),
        hand.line(g, "matmul_nt", "g@S(0) w2@R", "h.grad@S(0)"),
        hand.line(g, "matmul_tn", "x@S(0) h.grad@S(0)", "w1.grad@P"),
        hand.line(g, "all_gather", "w2@S(0)", "w2@R", "grouped"),
        hand.line(g, "matmul_nt", "g@S(0) w2@R", "h.grad@S(0)"),
    ]
    cost = evaluate(Program("twice", g, layout, lines), hand.cluster([1, 1]))
    gathered, held = 8 * 4 * 4, 6 * (6 + 4) * 4 + 6 * 8 * 4 + 4 * 4 * 4
    gradient, h_grad = 6 * 8 * 4, 6 * 8 * 4
    assert cost.memory.live[:, 0].tolist() == [
        held, held, held + 2 * gathered, held + gathered + h_grad, held + h_grad + gradient, held + 2 * gathered,
        held + gathered + h_grad,
    ]  # fmt: skip


def test_a_replaced_parameter_is_held_beside_the_old_one_only_as_it_is_held() -> None:
    """w1 is held replicated, its update made in shards and gathered: the shards die, the gathered one stays."""
    g = hand.graph()
    layout = Layout((("devices", 2),), {"hidden": {(0,): np.array([4, 4])}})
    lines = [
        hand.line(g, "param", "", "w1@R"),
        hand.line(g, "slice", "w1@R", "w1@S(1)"),
        hand.line(g, "sgd", "w1@S(1) w1.grad@S(1)", "w1.new@S(1)"),
        hand.line(g, "all_gather", "w1.new@S(1)", "w1.new@R", "grouped"),
        hand.line(g, "relu", "u@R", "h@R"),
    ]
    cost = evaluate(Program("zero", g, layout, lines), hand.cluster([1, 1]))
    activations = 2 * 12 * 8 * 4
    assert cost.memory.live[-1, 0] == 2 * 6 * 8 * 4 + activations


def test_where_gradients_are_in_f16_new_values_lie_beside_the_old_ones() -> None:
    """A step in which one is infinite changes nothing. In bf16 the update of `w` is written over it."""
    peaks = []
    for dtype in ("bf16", "f16"):
        text = f"""
model half(batch = 2, d = 64) {{
    input x : {dtype}[batch, d]
    param w : {dtype}[d, d]
    loss = sum(matmul(x, w), dims = [0, 1])
    train loss with sgd(lr = 0.1)
}}
"""
        graph = Workbench("half.hap", text).graph("half", {})
        (update,) = (n for n in graph.nodes if n.section == "update")
        lines = [
            Instruction("param", (), (hand.one("w@R"),)),
            Instruction("sgd", (hand.one("w@R"), hand.one("w.grad@R")), (hand.one("w.new@R"),), "update", update),
        ]
        program = Program("half", graph, Layout((("devices", 1),), {}), lines)
        peaks.append(evaluate(program, hand.cluster([1])).memory_bytes.tolist())
    w = 64 * 64 * 2
    assert peaks == [[2 * w], [3 * w]]


# -- two axes -----------------------------------------------------------------------------------------


def two_by_two(axis: int) -> tuple[Program, Cluster]:
    """w1's gradient summed over one axis of a mesh of two nodes with two devices each; hidden is cut inside nodes."""
    g = hand.graph()
    layout = Layout((("nodes", 2), ("devices", 2)), {"hidden": {(1,): np.array([6, 2, 6, 2])}})
    before, after = ((P, S(1)), (R, S(1))) if axis == 0 else ((R, P), (R, R))
    line = Instruction("all_reduce", (Value("w1.grad", before),), (Value("w1.grad", after),), axis=axis)
    flat = hand.cluster([1] * 4)
    inside, network = Link(100.0, 0.5), Link(10.0, 2.0)
    hosts = (Host("a", (0, 1), inside), Host("b", (2, 3), replace(inside, bandwidth=50.0)))
    return Program("two", g, layout, [line]), replace(flat, nodes=hosts, network=network)


def test_groups_along_the_outer_axis_share_the_network() -> None:
    """Devices 0 and 2 exchange 6 of 8 columns, 1 and 3 the other 2; both pass each node's one network card."""
    cost = evaluate(*two_by_two(0))
    larger, smaller = (2 * 1 / 2 * (6 * columns * 4) / (10 / 2) + 2 * 2.0 for columns in (6, 2))
    assert cost.per_instruction_s[0] == pytest.approx([larger, smaller, larger, smaller])
    assert cost.sync_s == pytest.approx(larger)
    assert cost.stages[0].bytes == 6 * 6 * 4


def test_groups_along_the_inner_axis_use_their_node_s_link() -> None:
    cost = evaluate(*two_by_two(1))
    fast, slow = (192 / bandwidth + 2 * 0.5 for bandwidth in (100, 50))
    assert cost.per_instruction_s[0] == pytest.approx([fast, fast, slow, slow])
    assert cost.sync_s == pytest.approx(slow)
    assert cost.ends_s[0] == pytest.approx([fast, fast, slow, slow])


# -- size ---------------------------------------------------------------------------------------------


def deep(layers: int) -> Program:
    """h{k+1} = relu(h{k} w{k}) with sharded weights: four instructions a layer."""
    tensors = {"h0": Tensor("h0", (256, 512), "f32", "input", ("batch", "d"))}
    lines, nodes = [Instruction("input", (), (hand.one("h0@S(0)"),))], []
    for k in range(layers):
        tensors[f"w{k}"] = Tensor(f"w{k}", (512, 512), "f32", "param", ("d", "e"))
        tensors[f"u{k}"] = Tensor(f"u{k}", (256, 512), "f32", "value", ("batch", "e"))
        tensors[f"h{k + 1}"] = Tensor(f"h{k + 1}", (256, 512), "f32", "value", ("batch", "e"))
        product = hand.call("matmul", [("x", f"h{k}"), ("w", f"w{k}")], [f"u{k}"], tensors)
        relu = hand.call("relu", [("x", f"u{k}")], [f"h{k + 1}"], tensors)
        nodes += [product, relu]
        h, w, u, after = (hand.one(v) for v in (f"h{k}@S(0)", f"w{k}@R", f"u{k}@S(0)", f"h{k + 1}@S(0)"))
        shard = hand.one(f"w{k}@S(0)")
        lines += [
            Instruction("param", (), (shard,)),
            Instruction("all_gather", (shard,), (w,), method="padded"),
            Instruction("matmul", (h, w), (u,), node=product),
            Instruction("relu", (u,), (after,), node=relu),
        ]
    classes = {c: DimensionClass(c, units, ()) for c, units in {"batch": 256, "d": 512, "e": 512}.items()}
    layout = Layout((("devices", 8),), {"batch": {(0,): Layout.even(256, 8)}, "d": {(0,): Layout.even(512, 8)}})
    return Program("deep", TrainingGraph("deep", {}, tensors, nodes, classes, None), layout, lines)


def test_three_thousand_instructions_are_priced_at_once() -> None:
    """About 40 ms on an idle core; the bound leaves room for a busy one, not for anything quadratic."""
    program, cluster = deep(750), hand.cluster([1e12] * 2 + [5e11] * 6, 1e11, Link(1e10, 1e-5))
    began = time.process_time()
    cost = evaluate(program, cluster)
    assert time.process_time() - began < 1.0
    one = evaluate(deep(1), cluster)
    assert cost.sync_s == pytest.approx(750 * one.sync_s)


def test_a_table_is_read_by_the_rows_that_are_looked_up() -> None:
    """256 lookups in 10,000 rows of 16 on two devices, the batch cut in halves: 128 rows are read and written, and 128 numbers of 8 bytes; a small
    table at most whole."""
    text = """
model look(batch = 256, rows = 10000) {
    input ids : i64[batch]
    param table : f32[rows, 16] init normal(std = 1.0)
    e = embedding(ids, table)
    loss = mean(e, dims = [0, 1])
    train loss with sgd(lr = 0.1)
}
"""
    for rows, read in ((10_000, 128), (20, 20)):
        graph = Workbench("look.hap", text).graph("look", {"rows": rows})
        layout = Layout(
            (("devices", 2),),
            {c.name: {(0,): np.array([c.units - c.units // 2, c.units // 2])} for c in graph.classes.values()},
        )
        device = Device("d", "d", {"f32": 1e12}, 1e9, 1e6)
        cluster = Cluster("two", (device, device), (Host("h", (0, 1), Link(1e9, 0.0)),))
        call = next(n for n in graph.nodes if n.op == "embedding")
        rule = next(r for r in call.rules if r.inputs == (S(0), R))
        line = Instruction(
            "embedding",
            (Value(call.inputs[0], (S(0),)), Value(call.inputs[1], (R,))),
            (Value(call.outputs[0], rule.outputs),),
            node=call,
        )
        seconds = Pricer(graph, layout, cluster).price(line).seconds
        assert seconds == pytest.approx([(128 * 8 + (read + 128) * 16 * 4) / 1e6] * 2)
