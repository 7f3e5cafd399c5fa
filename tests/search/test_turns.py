"""Programs whose batch is taken in turns, put into another order."""

from __future__ import annotations

from dataclasses import replace

from hapdsl.graph.training import TURN
from hapdsl.search.order import Tasks
from hapdsl.search.reorder import reordered

from .examples import example
from .small import CLUSTERS, cluster, reread, training
from .test_reorder import same_results, sharded, work


def test_turns_of_a_batch_stay_apart_from_the_updates() -> None:
    graph = example("accumulate")
    program, pricer = sharded(graph, cluster(CLUSTERS["network"]))
    found = reordered(program, pricer, "overlap")
    assert found is not program
    sections = ["update" if i.section == "accumulate" else i.section for i in found.instructions]
    assert sections == sorted(sections, key=("forward", "backward", "update").index)
    for tensor, section in {(v.tensor, i.section) for i in program.instructions if i.is_compute for v in i.outputs}:
        own = {i.section for i in found.instructions if i.is_compute for v in i.outputs if v.tensor == tensor}
        assert {s in ("forward", "backward") for s in own} == {section in ("forward", "backward")}


TWO_LOSSES = """model two(batch = 12, d = 6) {
    input x : f32[batch, d]
    param w1, w2 : f32[d, d]
    microbatch 2 {
        y = relu(matmul(relu(matmul(x, w1)), w2))
        loss = add(sum(y, [0, 1]), mean(x, dims = [0, 1]))
    }
    train loss with sgd(lr = 0.1)
}"""


def test_what_is_done_in_every_turn_stays_in_the_turns_wherever_it_stands_among_them() -> None:
    """Whatever needs no gradient and has none, behind all that makes gradients: as near to the updates as to the forward pass."""
    graph, made = training(TWO_LOSSES), cluster(CLUSTERS["pair"])
    program, pricer = sharded(graph, made, zero=False)
    tasks = Tasks([pricer.line(i) for i in program.instructions], pricer)
    left, order = set(range(len(tasks))), list[int]()
    while left:
        ready = [t for t in left if not left & set(tasks.before[t])]
        backward = [program.instructions[tasks.line_of[t]].section == "backward" for t in ready]
        order.append(min(zip(ready, backward, strict=True), key=lambda e: (tasks.part[e[0]], not e[1], e[0]))[0])
        left.discard(order[-1])
    moved = replace(program, instructions=[line.instruction for line in tasks.ordered(order)])
    made_last = [v.tensor for i in moved.instructions if i.section in TURN and i.is_compute for v in i.outputs]
    assert made_last[-1] == "loss.turn" and work(moved) == work(program)
    assert reread(moved, graph, len(made)).ok
    same_results(program, moved)
