"""Programs over nodes as programs over their devices: proven from their texts, equal to one device in numbers, and priced by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hapdsl.check.expand import expand
from hapdsl.check.write import write
from hapdsl.cost.evaluate import evaluate
from hapdsl.lang.print import to_text
from hapdsl.live import Live
from hapdsl.search.baselines import baselines
from hapdsl.search.planner import plan
from hapdsl.theory.placements import P, R, S
from hapdsl.virtual import planned, positions, spread
from hapdsl.workbench import Workbench
from tests.programs.helpers import WRITTEN, compare, reread, written
from tests.search.planned import example
from tests.texts import LAB, PROGRAM, PROGRAMS, TINY

ONE_AXIS = [name for name in WRITTEN if name != "mesh"]
SPEEDS = {1: [[1.0]] * 4, 2: [[3.0, 1.0]] * 4, 3: [[2.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 1.0, 3.0], [5.0, 1.0, 0.1]]}


@pytest.mark.parametrize("inner", SPEEDS)
@pytest.mark.parametrize("name", ONE_AXIS)
def test_what_people_wrote_is_proven_when_expanded(name: str, inner: int) -> None:
    found = written(name)
    made = expand(found.program, SPEEDS[inner])
    assert made.layout.mesh == (("nodes", 4), ("devices", inner))
    reread(made)
    # what nodes hold is what they held: the outer entry of every value was in the program
    before = {(v.tensor, v.placement[0]) for i in found.program.instructions for v in (*i.inputs, *i.outputs)}
    assert {(v.tensor, v.placement[0]) for i in made.instructions for v in (*i.inputs, *i.outputs)} == before
    # and parameters are whole within a node
    assert all(
        v.placement[1] == R
        for i in made.instructions
        if i.op in ("param", "state") and i.node is None
        for v in i.outputs
    )


@pytest.mark.parametrize("name", ONE_AXIS)
def test_in_numbers_it_is_one_device(name: str) -> None:
    found = written(name)
    compare(reread(expand(found.program, SPEEDS[3])), found.graph, torch.float64, 1e-12, count=2)


@pytest.mark.parametrize("name", ["mlp_data_parallel", "layer_data_parallel", "layer_zero"])
def test_the_batch_is_cut_by_speed_within_each_node(name: str) -> None:
    found = written(name)
    program = expand(found.program, SPEEDS[2])
    batch = found.graph.batch
    assert batch is not None
    outer = found.program.layout.shares[batch][(0,)]
    rows = program.layout.shares[batch][(0, 1)].reshape(4, 2)
    assert rows.sum(axis=1).tolist() == outer.tolist()
    assert (np.abs(rows - outer[:, None] * [0.75, 0.25]) < 1).all()
    assert program.layout.shares[batch][(0,)].tolist() == np.repeat(outer, 2).tolist()


def test_gradients_are_scattered_within_and_reduced_across() -> None:
    """Plain data parallelism: three messages for all gradients together, a device's card carries each byte once."""
    found = written("mlp_data_parallel")
    program = expand(found.program, SPEEDS[2])
    messages = [(i.op, i.axis, [v.tensor for v in i.inputs]) for i in program.instructions if i.is_collective]
    gradients = ["w1.grad", "b1.grad", "w2.grad"]
    assert messages == [("reduce_scatter", 1, gradients), ("all_reduce", 0, gradients), ("all_gather", 1, gradients)]


def test_tensor_parallelism_keeps_its_pieces_across_nodes() -> None:
    """Megatron over nodes: activations travel in the pieces of the batch, gradients of weights only within nodes."""
    found = written("mlp_megatron")
    program = expand(found.program, SPEEDS[2])
    across = [i for i in program.instructions if i.is_collective and i.axis == 0]
    assert [(i.op, [str(v) for v in i.inputs]) for i in across] == [("all_reduce", ["z@(P, S(0))"])]
    within = Counter(v.tensor for i in program.instructions if i.is_collective and i.axis == 1 for v in i.inputs)
    assert within == {"w1.grad": 1, "b1.grad": 1, "w2.grad": 1}


@pytest.mark.parametrize("speeds", [[[1.0]] * 3, [[1.0, 1.0]] * 3 + [[1.0]], [[]] * 4])
def test_speeds_that_don_t_fit(speeds: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="speeds"):
        expand(written("mlp_zero").program, speeds)
    with pytest.raises(ValueError, match="one axis"):
        expand(expand(written("mlp_zero").program, SPEEDS[2]), [[1.0]] * 8)


# -- on clusters --------------------------------------------------------------------------


def bench(tmp_path: Path, program: str = PROGRAM, cluster: str = LAB) -> Workbench:
    path = tmp_path / "lab.hap"
    path.write_text(TINY[: TINY.index("cluster")] + cluster + program.replace("on pair", "on lab"))
    return Workbench(path)


def test_a_program_over_nodes_is_one_over_all_devices(tmp_path: Path) -> None:
    made = bench(tmp_path)
    cluster = made.cluster("lab")
    (tree,) = made.programs()
    assert (cluster.virtual, len(cluster), positions(tree, cluster)) == (True, 4, 2)
    checked, _, cost = made.cost(tree)
    assert checked.program.layout.mesh == (("nodes", 2), ("devices", 2))
    assert cost.sync_s == evaluate(checked.program, cluster).sync_s
    assert spread(checked.program, cluster) is checked.program
    batch = checked.program.layout.shares["batch"][(0, 1)]
    assert batch.tolist() == [6, 6, 3, 1]  # [12, 4] by speeds 1:1 and 3:1


def test_a_program_that_names_no_cluster_is_priced_on_the_file_s(tmp_path: Path) -> None:
    """As if it named it: on the command line and in an editor."""
    made = bench(tmp_path)
    named = made.cost(made.program())[2].sync_s
    text = made.path.read_text().replace("for tiny on lab", "for tiny")
    alone = Workbench(made.path, text)
    assert alone.program().cluster is None and alone.cost(alone.program())[2].sync_s == named
    (live,) = Live(made.path).update(text).programs
    assert live.cost is not None and live.cost.sync_s == named and live.lines


def test_the_synchronisation_inside_is_charged(tmp_path: Path) -> None:
    """Both gradients are 6 × 8 and 8 × 4 floats. Within: scatter and gather halves, 320 bytes over a ring of two at 1 GB/s and 1 us. Across:
    each of two rings of two moves a half, sharing the card of 0.1 GB/s, 10 us a step."""
    made = bench(tmp_path)
    _, _, cost = made.cost(made.program())
    stages = {s.collective: s for s in cost.stages}
    whole = (6 * 8 + 8 * 4) * 4
    for op in ("reduce_scatter", "all_gather"):
        assert stages[op].comm_s == pytest.approx(whole / 2 / 1e9 + 1e-6)
    ring = 2 * 1 / 2 * (whole / 2) / (0.1e9 / 2) + 2 * 10e-6
    assert (stages["all_reduce"].comm_s, stages["all_reduce"].method) == (pytest.approx(ring), "ring")


def test_a_program_may_say_its_mesh_itself(tmp_path: Path) -> None:
    """The expansion's own text, on the same cluster, is left as it is and costs the same."""
    made = bench(tmp_path)
    checked, _, cost = made.cost(made.program())
    again = bench(tmp_path, to_text(write(checked.program)))
    other, _, same = again.cost(again.program())
    assert other.program.layout.mesh == checked.program.layout.mesh
    assert same.sync_s == pytest.approx(cost.sync_s)


def test_what_nodes_look_like_from_outside(tmp_path: Path) -> None:
    outer = bench(tmp_path).cluster("lab").outer()
    assert [(d.name, d.kind, d.flops["f32"], d.bandwidth, d.memory) for d in outer.devices] == [
        ("big", "fast+fast", 6e9, 16e9, 2**30), ("mixed", "fast+slow", 4e9, 16e9, 2**30),
    ]  # fmt: skip
    assert outer.link([0, 1]).ring.bandwidth == 0.1e9
    assert not outer.virtual


@pytest.mark.parametrize("model", ["mlp", "cnn", "gpt"])
def test_plans_over_nodes_expand_and_are_no_faster_than_their_bounds(model: str, tmp_path: Path) -> None:
    graph = example(model)
    cluster = bench(tmp_path).cluster("lab")
    found = plan(graph, cluster.outer())
    made = planned(found, cluster)
    assert made.program.layout.mesh == (("nodes", 2), ("devices", 2))
    reread(made.program)
    assert made.cost_s >= made.bound_s > 0
    for name, candidate in made.baselines.items():
        if candidate is not None:
            assert made.cost_s <= candidate.cost.sync_s * (1 + 1e-9)
            priced = found.baselines[name]
            assert priced is not None and priced.cost.sync_s == pytest.approx(candidate.cost.sync_s, rel=0.1)
    assert found.cost_s == pytest.approx(made.cost_s, rel=0.1)


def test_lines_over_nodes_cost_what_their_expansions_do(tmp_path: Path) -> None:
    """Data parallelism: gradients are scattered within nodes, summed up across them and gathered, each line by itself as in the whole program but for
    the latencies of messages that are shared there; updates, which every device does whole, aren't divided among a node's devices."""
    cluster = bench(tmp_path).cluster("lab")
    found = baselines(example("mlp"), cluster.outer())["dp_proportional"]
    assert found is not None
    exact = evaluate(spread(found.program, cluster), cluster)
    assert found.cost.sync_s == pytest.approx(exact.sync_s, rel=0.01)
    outside = evaluate(found.program, replace(cluster.outer(), within=None))
    assert outside.sync_s < exact.sync_s * 0.99  # what the nodes do inside isn't in it
    assert (
        found.cost.memory_bytes >= exact.memory_bytes.reshape(2, 2).max(axis=1)
    ).all()  # every device's largest piece
    assert (found.cost.memory_bytes < outside.memory_bytes).any()


def test_messages_within_decide_between_plans(tmp_path: Path) -> None:
    """Where a node's own links are slow, the plan that knows is the better one."""
    slow = LAB.replace("over { bandwidth = 1 GB/s, latency = 1 us }", "over { bandwidth = 0.02 GB/s, latency = 1 us }")
    cluster = Workbench("lab.hap", slow).cluster("lab")
    blind = planned(plan(example("mlp"), replace(cluster.outer(), within=None), baselines=False), cluster)
    knowing = planned(plan(example("mlp"), cluster.outer(), baselines=False), cluster)
    assert knowing.cost_s < blind.cost_s * 0.99


SCATTERED = PROGRAM.replace(
    "w2.grad@R, w1.grad@R = all_reduce(w2.grad@P, w1.grad@P)",
    "w1.grad@S(0), w2.grad@S(0) = reduce_scatter(w1.grad@P, w2.grad@P)",
)
SCATTERED = (
    SCATTERED[: SCATTERED.index("    update")]
    + """    update {
        w1@S(0)     = slice(w1@R)
        w2@S(0)     = slice(w2@R)
        w1.new@S(0) = sgd(w1@S(0), w1.grad@S(0))
        w2.new@S(0) = sgd(w2@S(0), w2.grad@S(0))
        w1.new@R, w2.new@R = all_gather(w1.new@S(0), w2.new@S(0))
    }
}
"""
)


def test_what_is_gathered_across_nodes_at_the_end_is_whole_within_them(tmp_path: Path) -> None:
    """Updates in pieces: the last message leaves new parameters in pieces of a node, which is then made whole."""
    made = bench(tmp_path, SCATTERED)
    checked, _, _ = made.cost(made.program())
    reread(checked.program)
    last = checked.program.instructions[-1]
    assert (last.op, last.axis, {str(v) for v in last.outputs}) == ("all_gather", 1, {"w1.new@(R, R)", "w2.new@(R, R)"})
    compare(checked.program, checked.program.graph, torch.float64, 1e-12)


def test_every_rule_has_its_use() -> None:
    """What a call's operands need within a node: pieces of the batch, sums passed on, or all of it on every device."""
    program = expand(written("layer_megatron").program, SPEEDS[2])
    used = {p for i in program.instructions if i.is_compute for v in i.outputs for p in v.placement[1:]}
    assert used == {R, P, S(0)}


@pytest.mark.parametrize("model", ["accumulate", "cnn", "decoder", "rezero"])
def test_baselines_over_nodes_are_proven_when_expanded(model: str, tmp_path: Path) -> None:
    """Gradient accumulation, convolutions, grouped attention, shared scales; replicated, fully sharded and tensor parallel."""
    made = Workbench(PROGRAMS / "models" / f"{model}.hap")
    graph = made.graph(made.model().name)
    found = baselines(graph, bench(tmp_path).cluster("lab").outer())
    assert sum(c is not None for c in found.values()) >= 3
    for candidate in found.values():
        if candidate is not None:
            reread(expand(candidate.program, [[1.0, 1.0], [3.0, 1.0]]))
