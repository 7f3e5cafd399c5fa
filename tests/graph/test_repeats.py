"""Repeats in a model's text: what each turn's tensors are called, and what a turn hands to the next."""

from __future__ import annotations

from tests.graph.helpers import calls, gradient, graph_of, same, step, values


def test_repeat_names_each_turn() -> None:
    """`layer.i.x` is x as turn i finds it, plain x the last result."""
    graph = graph_of(
        """model m(layers = 3) {
            input x0 : f32[2, 4]
            x = relu(x0)
            repeat layer in layers {
                param w : f32[4, 4]
                x = matmul(x, w)
            }
            loss = sum(x, dims = [0, 1])
            train loss with sgd()
        }"""
    )
    assert calls(graph)[:4] == [
        "layer.0.x = relu(x0)",
        "layer.1.x = matmul(layer.0.x, layer.0.w)",
        "layer.2.x = matmul(layer.1.x, layer.1.w)",
        "x = matmul(layer.2.x, layer.2.w)",
    ]
    assert graph.repeats == {"layer": 3}
    turns = [n.repeat for n in graph.nodes if n.op == "matmul"]
    assert turns == [(("layer", k),) for k in range(3)]


def test_repeat_over_an_input() -> None:
    """An input keeps its name; the first turn has a second one for it."""
    graph = graph_of("model m() { input x : f32[2]\n h = neg(x)\n y = x\n repeat t in 2 { y = add(y, h) }\n output y }")
    assert calls(graph) == ["h = neg(x)", "t.1.y = add(x, h)", "y = add(t.1.y, h)"]
    assert graph.resolve("t.0.y") == "x"


NESTED = """model m(outer = 2, inner = 2) {
    input x0 : f64[3]
    x = neg(x0)
    repeat stage in outer {
        repeat layer in inner {
            param w : f64[3]
            x = mul(x, w)
        }
        x2 = exp(x)
    }
    y = sum(x, dims = 0)
    train y with sgd()
}"""


def test_nested_repeats_carry_on() -> None:
    """The second stage goes on from the first one's result."""
    graph = graph_of(NESTED)
    assert calls(graph)[:5] == [
        "stage.0.x = neg(x0)",
        "stage.0.layer.1.x = mul(stage.0.x, stage.0.layer.0.w)",
        "stage.1.x = mul(stage.0.layer.1.x, stage.0.layer.1.w)",
        "stage.1.layer.1.x = mul(stage.1.x, stage.1.layer.0.w)",
        "x = mul(stage.1.layer.1.x, stage.1.layer.1.w)",
    ]
    assert graph.resolve("stage.0.layer.0.x") == "stage.0.x"
    assert graph.resolve("stage.1.layer.0.x") == "stage.1.x"
    assert graph.repeats == {"stage": 2, "stage.0.layer": 2, "stage.1.layer": 2}
    tensors = values(graph)
    made = step(graph, tensors)
    product = -tensors["x0"]
    for name in ("stage.0.layer.0.w", "stage.0.layer.1.w", "stage.1.layer.0.w", "stage.1.layer.1.w"):
        product = product * tensors[name]
    same(made["y"], product.sum())
    same(gradient(graph, made, "stage.0.layer.0.w"), product / tensors["stage.0.layer.0.w"])


def test_a_turn_that_prepares_and_then_repeats() -> None:
    """x bound in the turn, then carried by a repeat within: three names, no two alike."""
    graph = graph_of(
        """model m() {
            input x : f32[3]
            y = neg(x)
            repeat stage in 2 {
                y = exp(y)
                repeat layer in 2 { y = relu(y) }
            }
            output y
        }"""
    )
    assert calls(graph) == [
        "stage.0.y = neg(x)",
        "stage.0.layer.0.y = exp(stage.0.y)",
        "stage.0.layer.1.y = relu(stage.0.layer.0.y)",
        "stage.1.y = relu(stage.0.layer.1.y)",
        "stage.1.layer.0.y = exp(stage.1.y)",
        "stage.1.layer.1.y = relu(stage.1.layer.0.y)",
        "y = relu(stage.1.layer.1.y)",
    ]


def test_one_turn() -> None:
    graph = graph_of("model m() { input x : f32[3]\n y = neg(x)\n repeat t in 1 { y = exp(y) }\n output y }")
    assert calls(graph) == ["t.0.y = neg(x)", "y = exp(t.0.y)"]
