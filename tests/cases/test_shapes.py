"""Reshapes across shards, dims of length one, weights used twice.

Elsewhere: a view across a sharded dim was let through and mixed elements; dims of length one were sharded, and their gradients
never exchanged; tied weights were renamed, or got one of their two gradients.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hapdsl.graph.build import build, operators
from hapdsl.lang.load import load_text
from hapdsl.theory.rules import rules
from hapdsl.workbench import Workbench
from tests.cases.helpers import case, run, same
from tests.texts import PROGRAMS

MODELS = sorted((PROGRAMS / "models").glob("*.hap"))

RESHAPED = """
model m() {{
    input x : f32[{source}]
    y = reshape(x, shape = [{target}])
    output y
}}
program p for m {{
    shares {shares}
    forward {{
        x@S({dim}) = input()
        y@S({into}) = reshape(x@S({dim}))
    }}
}}
"""


@pytest.mark.parametrize(
    ("source", "target", "dim", "into", "shares", "code", "help"),
    [
        ("12, 8", "16, 6", 1, 0, "x.1 = [4, 4]", "HAP533", "`x@S(0) = all_to_all(x@S(1))`"),
        ("12, 8", "16, 6", 1, 1, "x.1 = [4, 4]", "HAP533", "`x@R = all_gather(x@S(1))`; it gives y@R"),
        ("12, 8", "96", 1, 0, "x.1 = [4, 4]", "HAP533", "`x@S(0) = all_to_all(x@S(1))`"),
        ("96", "12, 8", 0, 1, "x.0 = [6, 6]", "HAP534", "then `y@S(1) = all_to_all(y@S(0))`"),
        ("4, 6, 2", "24, 2", 1, 0, "x.1 = [3, 3]", "HAP533", "`x@S(0) = all_to_all(x@S(1))`"),
    ],
)
def test_a_reshape_across_shards_is_refused(
    source: str, target: str, dim: int, into: int, shares: str, code: str, help: str
) -> None:
    found = case(RESHAPED.format(source=source, target=target, dim=dim, into=into, shares=shares))
    assert found.codes[-1] == (code, 10)
    assert help in found.helps


@pytest.mark.parametrize(
    ("source", "target", "dim", "into", "shares"),
    [
        ("12, 8", "16, 6", 0, 0, "x.0 = [3, 1]"),  # 4 units of 3 rows, which are 4 rows afterwards
        ("12, 8", "96", 0, 0, "x.0 = [5, 7]"),
        ("12, 8", "3, 4, 8", 0, 0, "x.0 = [2, 1]"),
        ("4, 6, 2", "4, 12", 0, 0, "x.0 = [3, 1]"),
    ],
)
def test_a_reshape_of_whole_pieces_is_taken(source: str, target: str, dim: int, into: int, shares: str) -> None:
    ran = run(RESHAPED.format(source=source, target=target, dim=dim, into=into, shares=shares))
    assert torch.equal(ran["y"], ran.whole["x"].reshape(ran["y"].shape))


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_no_rule_of_any_model_cuts_a_dim_of_one(path: Path) -> None:
    graph = Workbench(path).graph(path.stem)
    for node in graph.nodes:
        for rule in rules(node.instance):
            for names, placed in ((node.inputs, rule.inputs), (node.outputs, rule.outputs)):
                for name, p in zip(names, placed, strict=True):
                    assert p.kind != "S" or graph.tensors[name].shape[p.dim] > 1, (node.op, name, rule)
    assert not any(1 in (graph.tensors[t].shape[d] for t, d in cls.members) for cls in graph.classes.values())


BROADCAST = """
model m(batch = 6, d = 4) {
    input x    : f32[batch, d]
    param gain : f32[1, d]
    param w    : f32[d, 2]
    s = mul(x, gain)
    z = matmul(s, w)
    loss = mean(z, dims = [0, 1])
    train loss with sgd(lr = 1)
}
program p for m {
    shares batch = [4, 1, 1]
    forward {
        x@S(0) = input()
        gain@R, w@R = param()
        s@S(0) = mul(x@S(0), gain@R)
        z@S(0) = matmul(s@S(0), w@R)
        loss@P = mean(z@S(0))
    }
    backward {
        loss.grad@R = seed()
        BACK
    }
    update {
        gain.new@R = sgd(gain@R, gain.grad@R)
        w.new@R = sgd(w@R, w.grad@R)
    }
}
"""


def broadcast_program() -> str:
    """The backward lines follow the graph, whatever it calls its tensors."""
    bundle = load_text(BROADCAST.replace("BACK", ""))
    graph = build(bundle.models["m"], {}, operators({}), {})
    lines, placed = [], {"x": "S(0)", "gain": "R", "w": "R", "s": "S(0)", "z": "S(0)", "loss.grad": "R"}
    for node in graph.nodes:
        if node.section != "backward":
            continue
        given = [placed[n] for n in node.inputs]
        by_batch = [
            r
            for r in node.rules
            if [str(p) for p in r.inputs] == given and {str(p) for p in r.inputs + r.outputs} != {"R"}
        ]
        rule = by_batch[0] if by_batch else node.rules[0]
        for n, p in zip(node.outputs, rule.outputs, strict=True):
            placed[n] = str(p)
        left = ", ".join(f"{n}@{placed[n]}" for n in node.outputs)
        right = ", ".join(f"{n}@{p}" for n, p in zip(node.inputs, rule.inputs, strict=True))
        lines.append(f"{left} = {node.op}({right})")
    for name in ("gain.grad", "w.grad"):
        own = graph.resolve(name)
        if placed[own] == "P":
            lines.append(f"{own}@R = all_reduce({own}@P)")
    return BROADCAST.replace("BACK", "\n        ".join(lines))


def test_the_gradient_of_a_stretched_dim_is_exchanged() -> None:
    text = broadcast_program()
    assert "gain.grad@R = all_reduce(gain.grad@P)" in text, "what stretches over the batch is summed over it"
    ran = run(text)
    x = ran.whole["x"]
    gain, w = (ran.whole[n].clone().requires_grad_() for n in ("gain", "w"))
    ((x * gain) @ w).mean().backward()
    assert gain.grad is not None and w.grad is not None
    assert same(ran["gain.new"], (gain - gain.grad).detach())
    assert same(ran["w.new"], (w - w.grad).detach())
    left_out = text.replace("gain.grad@R = all_reduce(gain.grad@P)", "").replace(
        "sgd(gain@R, gain.grad@R)", "sgd(gain@R, gain.grad@P)"
    )
    assert "HAP533" in [c for c, _ in case(left_out).codes]


TIED = """
model m(batch = 4, seq = 3, vocab = 6, d = 2) {
    input tokens, target : i64[batch, seq]
    param table : f32[vocab, d] init normal(std = 1)
    x = embedding(tokens, table)
    z = einsum("bsd,vd->bsv", x, table)
    loss = cross_entropy(z, target)
    train loss with sgd(lr = 1)
}
program p for m {
    shares batch = [2, 0, 2]
    shares d     = [1, 1, 0]
    forward {
        tokens@S(0), target@S(0) = input()
        table@S(1) = param()
        table@R = all_gather(table@S(1))
        x@S(0) = embedding(tokens@S(0), table@R)
        z@S(0) = einsum(x@S(0), table@R)
        loss@P = cross_entropy(z@S(0), target@S(0))
    }
    backward {
        loss.grad@R = seed()
        z.grad@S(0) = cross_entropy_grad(z@S(0), target@S(0), loss.grad@R)
        x.grad@S(0) = einsum(z.grad@S(0), table@R)
        table.grad.1@P = einsum(z.grad@S(0), x@S(0))
        table.grad.2@P = embedding_grad(tokens@S(0), x.grad@S(0))
        table.grad@P = add(table.grad.1@P, table.grad.2@P)
        table.grad@S(1) = reduce_scatter(table.grad@P)
    }
    update {
        table.new@S(1) = sgd(table@S(1), table.grad@S(1))
    }
}
"""


def test_a_weight_used_twice_is_one_parameter_with_one_summed_gradient() -> None:
    ran = run(TIED)
    assert [t.name for t in ran.case.graph.of_kind("param")] == ["table"]
    table = ran.whole["table"].clone().requires_grad_()
    x = table[ran.whole["tokens"]]
    loss = torch.nn.functional.cross_entropy((x @ table.T).reshape(-1, 6), ran.whole["target"].reshape(-1))
    loss.backward()
    assert table.grad is not None
    assert same(ran["loss"], loss.detach())
    assert same(ran["table.new"], (table - table.grad).detach())


@pytest.mark.parametrize("forgotten", ["table.grad.1", "table.grad.2"])
def test_one_of_two_gradients_is_not_enough(forgotten: str) -> None:
    other = {"table.grad.1": "table.grad.2", "table.grad.2": "table.grad.1"}[forgotten]
    text = TIED.replace("table.grad@P = add(table.grad.1@P, table.grad.2@P)", "").replace(
        "table.grad@S(1) = reduce_scatter(table.grad@P)", f"{other}@S(1) = reduce_scatter({other}@P)"
    ).replace("sgd(table@S(1), table.grad@S(1))", f"sgd(table@S(1), {other}@S(1))")  # fmt: skip
    assert "HAP532" in [c for c, _ in case(text).codes]
