"""Dimension classes by hand, and fingerprints."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hapdsl.graph.training import TrainingGraph
from tests.graph.helpers import MODELS, example, graph_of, source
from tests.texts import REPOSITORY


def units(graph: TrainingGraph) -> dict[str, int]:
    return {name: c.units for name, c in graph.classes.items()}


def of(graph: TrainingGraph, tensor: str) -> tuple[str | None, ...]:
    return graph.tensors[tensor].classes


def test_mlp() -> None:
    graph = example("mlp")
    assert units(graph) == {"batch": 256, "d": 784, "hidden": 1024, "classes": 10}
    assert of(graph, "x") == ("batch", "d") and of(graph, "w1") == ("d", "hidden")
    assert of(graph, "w2.grad") == ("hidden", "classes") and of(graph, "w2.m.new") == ("hidden", "classes")
    assert of(graph, "loss") == ()


def test_gpt() -> None:
    """Two layers share their classes; q and k share a dim of their own, and so do v and the output projection."""
    graph = example("gpt")
    assert units(graph) == {
        "batch": 8, "seq": 256, "d": 768, "heads": 12, "ffn": 3072, "vocab": 32000,
        "layer.0.block.k.3": 64, "layer.0.block.c.3": 64,
    }  # fmt: skip
    assert of(graph, "layer.1.block.wq") == ("d", "heads", "layer.0.block.k.3")
    assert of(graph, "layer.1.block.wo") == ("heads", "layer.0.block.c.3", "d")
    assert of(graph, "z") == ("batch", "seq", "vocab")


def test_features_in_heads() -> None:
    """768 features in 12 heads are 12 units of 64, in every tensor that the features run through."""
    graph = graph_of(
        """model m(batch = 4, seq = 6, d = 768, heads = 12) {
            input x : f32[batch, seq, d]
            param w : f32[d, 768]
            q = matmul(x, w)
            h = rearrange(q, "b s (h e) -> b h s e", h = heads)
            y = softmax(h)
            loss = sum(y, dims = [0, 1, 2, 3])
            train loss with sgd()
        }"""
    )
    name = of(graph, "w")[1]
    assert name is not None and graph.classes[name].units == 12
    assert of(graph, "q")[2] == of(graph, "h")[1] == of(graph, "w.grad")[1] == name
    assert graph.tensors["q"].shape[2] == 768 and graph.tensors["h"].shape[1] == 12
    assert units(graph)["d"] == 768  # the other dim of w is another class


def test_equal_sizes_are_not_tied() -> None:
    graph = graph_of("model m() { input a : f32[8]\n input b : f32[8]\n y = neg(a)\n z = neg(b)\n output y, z }")
    assert of(graph, "a") == of(graph, "y") != of(graph, "b") == of(graph, "z")
    assert of(graph, "a") == ("a.0",)  # a literal dim takes the shortest tensor's name


def test_symbols_tie_dims_that_no_operator_does() -> None:
    graph = graph_of("model m(d = 8) { input a : f32[d]\n input b : f32[d]\n y = neg(a)\n z = neg(b)\n output y, z }")
    assert of(graph, "a") == of(graph, "b") == ("d",)


def test_symbols_pass_through_defs() -> None:
    graph = graph_of(
        "def f(x, width) {\n param w : f32[width]\n return mul(x, w)\n}\nmodel m(d = 8) { input x : f32[d]\n y = f(x, d)\n output y }"
    )
    assert of(graph, "f.w") == ("d",)


def test_one_class_of_two_symbols_takes_the_first_parameters_name() -> None:
    graph = graph_of("model m(b = 8, a = 8) { input x : f32[a]\n input y : f32[b]\n z = add(x, y)\n output z }")
    assert of(graph, "z") == ("b",)


def test_a_dim_of_one_has_no_class() -> None:
    graph = graph_of(
        "model m(batch = 1) { input x : f32[batch, 4]\n param w : f32[1, 4]\n y = mul(x, w)\n loss = sum(y, dims = [0, 1])\n train loss with sgd() }"
    )
    assert of(graph, "x") == of(graph, "w") == (None, "w.1")
    assert graph.shardable("x") == (1,)


def test_a_stretched_dim_is_not_tied() -> None:
    graph = graph_of("model m() { input x : f32[4, 6]\n input y : f32[4, 1]\n z = mul(x, y)\n output z }")
    assert of(graph, "y") == (of(graph, "x")[0], None)


def test_reshape_cuts_where_both_sides_can() -> None:
    """(12, 8) as (16, 6): four units, each of three rows of 8 and four rows of 6."""
    graph = graph_of("model m() { input x : f32[12, 8]\n y = reshape(x, [16, 6])\n output y }")
    cls = of(graph, "x")[0]
    assert cls is not None and of(graph, "y")[0] == cls and graph.classes[cls].units == 4
    assert of(graph, "x")[1] != of(graph, "y")[1]


def test_units_are_common_to_all_that_is_tied() -> None:
    """Cut by 6 heads here and by 4 there: 2 units."""
    graph = graph_of(
        """model m() { input x : f32[2, 24]
            a = rearrange(x, "b (h e) -> b h e", h = 6)
            c = rearrange(x, "b (h e) -> b h e", h = 4)
            output a, c }"""
    )
    cls = of(graph, "x")[1]
    assert cls is not None and graph.classes[cls].units == 2
    assert of(graph, "a")[1] == of(graph, "c")[1] == cls


def test_turns_of_a_repeat_share_classes() -> None:
    graph = graph_of(
        "model m() { input x : f32[8]\n y = neg(x)\n repeat t in 3 { param w : f32[5, 8]\n h = mul(w, y)\n y = sum(h, dims = 0) }\n output y }"
    )
    names = {of(graph, f"t.{k}.w")[0] for k in range(3)}
    assert len(names) == 1 and units(graph)[names.pop() or ""] == 5


def test_nested_turns_share_classes() -> None:
    graph = graph_of(
        "model m() { input x : f32[8]\n y = neg(x)\n repeat s in 2 { repeat t in 2 { param w : f32[5, 8]\n h = mul(w, y)\n y = sum(h, dims = 0) } }\n output y }"
    )
    assert len({of(graph, f"s.{j}.t.{k}.w")[0] for j in range(2) for k in range(2)}) == 1


def test_every_dim_longer_than_one_is_in_one_class() -> None:
    for path in sorted(MODELS.glob("*.hap")):
        graph = example(path.stem)
        for t in graph.tensors.values():
            for d, (extent, cls) in enumerate(zip(t.shape, t.classes, strict=True)):
                assert (cls is None) == (extent == 1)
                if cls is not None:
                    assert (t.name, d) in graph.classes[cls].members
                    assert extent % graph.classes[cls].units == 0
        assert sum(len(c.members) for c in graph.classes.values()) == sum(
            n > 1 for t in graph.tensors.values() for n in t.shape
        )


# -- fingerprints --------------------------------------------------------------------

CHANGES = [
    ("batch = 256", "batch = 128"),  # a size
    ("f32", "f64"),  # a dtype
    ("h = relu(a)", "h = tanh(a)"),  # an operator
    ("adam(lr = 0.001)", "adam(lr = 0.002)"),  # an attribute
    ("adam(lr = 0.001)", "sgd(lr = 0.001)"),
    ("std = 0.05)\n    param b1", "std = 0.06)\n    param b1"),  # an initial value
    ("    output z\n", ""),  # what it gives back
    ("add(u, b1)", "add(b1, u)"),  # the order of operands
    ("hidden", "width"),  # the name of a class: shares of another name fit no more
    ("param w2    : f32[hidden, classes]", "frozen w2   : f32[hidden, classes]"),
]


@pytest.mark.parametrize(("old", "new"), CHANGES, ids=[c[1].strip() or "nothing" for c in CHANGES])
def test_a_fingerprint_changes_with_the_model(old: str, new: str) -> None:
    text = source("mlp")
    assert old in text
    assert graph_of(text.replace(old, new)).fingerprint != graph_of(text).fingerprint


def test_a_fingerprint_sees_what_computes_an_operator() -> None:
    text = 'op own(x[*i]) -> y[*i] {\n flops i\n torch "torch.relu"\n}\nmodel m() { input x : f32[4]\n y = own(x)\n output y }'
    assert graph_of(text).fingerprint != graph_of(text.replace("torch.relu", "torch.tanh")).fingerprint


def test_a_fingerprint_does_not_depend_on_layout_or_comments() -> None:
    text = source("mlp")
    assert graph_of("# more\n" + text.replace("    ", "  ")).fingerprint == graph_of(text).fingerprint


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    program = (
        "from hapdsl.workbench import Workbench;"
        "print(*(Workbench(f'programs/models/{n}.hap').graph(n).fingerprint for n in ('mlp', 'gpt', 'cnn')))"
    )
    seen = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=env, cwd=REPOSITORY, capture_output=True, text=True, check=True
        )
        seen.add(done.stdout)
    seen.add(" ".join(example(n).fingerprint for n in ("mlp", "gpt", "cnn")) + "\n")
    assert len(seen) == 1
