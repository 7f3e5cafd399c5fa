"""A loss over a vocabulary that is cut: blocks of every row of logits by themselves, then their results."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.nn.functional as F

from hapdsl.search.plan import Plan
from hapdsl.search.planner import plan
from tests.graph.helpers import gradient, graph_of, same, step, values
from tests.programs.helpers import compare, placed, reread, shares, three

MODEL = """
def in_blocks(z, label, blocks) {{
    parts = logsumexp(rearrange(z, "b (k c) -> b k c", k = blocks))
    lost  = sub(logsumexp(parts), pick(z, label))
    return mean(lost, dims = 0)
}}
def at_once(z, label, blocks) {{
    return cross_entropy(z, label)
}}
model tagger(batch = 40, d = 16, vocab = 3000, blocks = 10) {{
    input word, tag : i64[batch]
    param table : f32[vocab, d] init normal(std = 0.5)
    param head  : f32[d, vocab] init normal(std = 0.5)
    h = tanh(embedding(word, table))
    z = matmul(h, head)
    loss = {loss}(z, tag, blocks)
    output z
    train loss with sgd(lr = 0.1)
}}"""


@cache
def planned(loss: str) -> Plan:
    return plan(graph_of(MODEL.format(loss=loss)), three("0.1 GB/s"), baselines=False)


def test_blocks_give_the_same_loss_and_gradients() -> None:
    graph = graph_of(MODEL.format(loss="in_blocks"), batch=5, d=4, vocab=30)
    tensors = values(graph, {"word": 30, "tag": 30})
    leaves = {n: tensors[n].clone().requires_grad_() for n in ("table", "head")}
    loss = F.cross_entropy(torch.tanh(leaves["table"][tensors["word"]]) @ leaves["head"], tensors["tag"])
    loss.backward()
    made = step(graph, tensors)
    same(made["loss"], loss)
    for name, leaf in leaves.items():
        assert leaf.grad is not None
        same(gradient(graph, made, name), leaf.grad, name)


def test_a_cut_vocabulary_is_found() -> None:
    """Logits by columns all the way to the loss: a number per row and block is gathered, one per row reduced."""
    program = planned("in_blocks").program
    by_op = {i.op: placed(i) for i in program.instructions if i.node is not None}
    assert by_op["matmul"] == "R, S(1) -> S(1)" and by_op["pick"] == "S(1), R -> P"
    moved = {v.tensor for i in program.instructions if i.is_collective for v in i.inputs}
    assert not moved & {"z", "z.grad", "head.grad", "table.grad"}
    assert shares(planned("in_blocks"), "vocab") == [6, 2, 2]  # in blocks of 300
    compare(reread(program), program.graph, torch.float64, 1e-9)


def test_blocks_cost_less_than_rows_of_logits() -> None:
    """Where the loss needs whole rows, logits travel: 40 rows of 3000, forth and back."""
    assert planned("in_blocks").cost_s < planned("at_once").bound_s
    assert "cross_entropy" in {i.op for i in planned("at_once").program.instructions}


@pytest.mark.parametrize("blocks", [1, 30])
def test_as_many_blocks_as_one_likes(blocks: int) -> None:
    graph = graph_of(MODEL.format(loss="in_blocks"), batch=5, d=4, vocab=30, blocks=blocks)
    assert graph.classes["vocab"].units == (30 if blocks == 1 else blocks)
