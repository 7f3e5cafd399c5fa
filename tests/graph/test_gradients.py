"""Every operator that declares a gradient (or whose gradient follows from its notation), against torch autograd in float64.

Each case is a call as a model writes it and the same function in torch's words. The loss weighs every element of
the result differently, so a gradient that is right only in sum fails.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hapdsl.run.reference import Reference
from hapdsl.theory.library import standard
from tests.graph.cases import Case, Shape, case
from tests.graph.helpers import gradient, graph_of, same, step, values
from tests.graph.vision_cases import DEFS as VISION_DEFS
from tests.graph.vision_cases import VISION_CASES


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, w.shape, w, b, 1e-5)


def causal(x: Tensor) -> Tensor:
    """Softmax behind the mask, so that no weight multiplies an infinity."""
    rows, columns = x.shape[-2:]
    later = torch.arange(columns)[None, :] > torch.arange(rows)[:, None]
    return torch.softmax(x.masked_fill(later, -torch.inf), -1)


def padded(x: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(x[:, :2]), x, torch.zeros_like(x[:, :1])], 1)


def spread(x: Tensor) -> Tensor:
    return x[None, :, None].expand(4, -1, 3)


def loss_of(x: Tensor, y: Tensor) -> Tensor:
    return ((x - y) * (x - y)).sum() / x.numel()


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ v


def padded_out(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.bool()[:, None, None])


def rotary(x: Tensor, base: float = 10000.0) -> Tensor:
    """As transformers' Llama applies it: cos and sin of the angles twice, the halves swapped."""
    angle = torch.outer(
        torch.arange(x.shape[-2]).double(), 1 / base ** (torch.arange(0, x.shape[-1], 2).double() / x.shape[-1])
    )
    angle = torch.cat([angle, angle], -1)
    first, second = x.chunk(2, -1)
    return x * angle.cos() + torch.cat([-second, first], -1) * angle.sin()


def routed(logits: Tensor, k: int, capacity: int, normalize: bool) -> Tensor:
    """Combine weights plus the dispatch mask, token by token, through the values of the largest gates."""
    gates = torch.softmax(logits, -1)
    weights = gates.topk(k, -1)
    cells = gates.new_zeros(*gates.shape, capacity)
    taken = torch.zeros(gates.shape[0], gates.shape[2], dtype=torch.int64)
    for choice in range(k):
        for b, s in itertools.product(*map(range, gates.shape[:2])):
            e = int(weights.indices[b, s, choice])
            if taken[b, e] < capacity:
                total = weights.values[b, s].sum() if normalize else 1
                cell = F.one_hot(torch.tensor(e * capacity + int(taken[b, e])), gates.shape[2] * capacity).view(
                    -1, capacity
                )
                here = torch.arange(gates.shape[1]) == s
                one = (torch.arange(gates.shape[0]) == b)[:, None, None, None] * here[None, :, None, None] * cell
                cells = cells + one * weights.values[b, s, choice] / total
                taken[b, e] += 1
    return cells + (cells > 0)


# What a case's call may name beside operators.
DEFS = """
def routed(logits, k, capacity, normalize) {
    gates = softmax(logits)
    combine, dispatch = top_k_gate(gates, k = k, capacity = capacity, normalize = normalize)
    return add(combine, dispatch)
}
"""

SQUARE: Shape = (4, 6)
CASES: dict[str, list[Case]] = {
    "matmul": [
        case("matmul(a, b)", lambda a, b: a @ b, a=(3, 4), b=(4, 5)),
        case("matmul(a, b)", lambda a, b: a @ b, a=(2, 2, 3, 4), b=(4, 5)),
        case("matmul(a, a)", lambda a: a @ a, a=(4, 4)),
    ],
    "matmul_nt": [case("matmul_nt(a, b)", lambda a, b: a @ b.T, a=(2, 3, 4), b=(5, 4))],
    "matmul_tn": [case("matmul_tn(a, b)", lambda a, b: torch.einsum("xyi,xyj->ij", a, b), a=(2, 3, 4), b=(2, 3, 5))],
    "bmm": [
        case("bmm(a, b)", lambda a, b: a @ b, a=(2, 3, 4), b=(2, 4, 5)),
        case("bmm(a, b)", lambda a, b: a @ b, a=(2, 1, 3, 4), b=(3, 4, 5)),
    ],
    "bmm_nt": [case("bmm_nt(a, b)", lambda a, b: a @ b.mT, a=(2, 3, 4), b=(2, 5, 4))],
    "bmm_tn": [case("bmm_tn(a, b)", lambda a, b: a.mT @ b, a=(2, 4, 3), b=(2, 4, 5))],
    "einsum": [
        case('einsum("bsd,dhe->bhse", a, b)', lambda a, b: torch.einsum("bsd,dhe->bhse", a, b), a=(2, 3, 4), b=(4, 2, 5)),
        case('einsum("bhse,hed->bsd", a, b)', lambda a, b: torch.einsum("bhse,hed->bsd", a, b), a=(2, 2, 3, 5), b=(2, 5, 4)),
        case('einsum("ij,ij->", a, b)', lambda a, b: (a * b).sum(), a=SQUARE, b=SQUARE),
        case('einsum("ij->ji", a)', lambda a: a.T, a=(3, 4)),
        case('einsum("i,j->ij", a, b)', torch.outer, a=(3,), b=(4,)),
        case('einsum("ab,bc,cd->da", a, b, c)', lambda a, b, c: (a @ b @ c).T, a=(2, 3), b=(3, 4), c=(4, 5)),
        case('einsum("ab,cb->ac", a, a)', lambda a: a @ a.T, a=(3, 4)),
        case('einsum("row k, k col -> row col", a, b)', lambda a, b: a @ b, a=(3, 4), b=(4, 5)),
        case('einsum("b h e -> b (h e)", a)', lambda a: a.flatten(1), a=(2, 3, 4)),
        case('einsum("b h e, h -> b (h e)", a, c)', lambda a, c: (a * c[:, None]).flatten(1), a=(2, 3, 4), c=(3,)),
    ],
    "add": [
        case("add(a, b)", lambda a, b: a + b, a=SQUARE, b=SQUARE),
        case("add(a, b)", lambda a, b: a + b, a=(4, 6), b=(6,)),
        case("add(a, b)", lambda a, b: a + b, a=(6,), b=(4, 6)),
        case("add(a, b)", lambda a, b: a + b, a=(4, 1), b=(1, 6)),
        case("add(a, b)", lambda a, b: a + b, a=(4, 6), b=()),
        case("add(a, b)", lambda a, b: a + b, a=(3, 4, 6), b=(3, 1, 1)),
        case("add(a, a)", lambda a: a + a, a=(4,)),
    ],
    "sub": [case("sub(a, b)", lambda a, b: a - b, a=SQUARE, b=SQUARE), case("sub(a, b)", lambda a, b: a - b, a=(6,), b=(4, 6))],
    "mul": [
        case("mul(a, b)", lambda a, b: a * b, a=SQUARE, b=SQUARE),
        case("mul(a, b)", lambda a, b: a * b, a=(4, 1), b=(6,)),
        case("mul(a, a)", lambda a: a * a, a=(4,)),
    ],
    "div": [
        case("div(a, b)", lambda a, b: a / b, positive="b", a=SQUARE, b=SQUARE),
        case("div(a, b)", lambda a, b: a / b, positive="b", a=(4, 6), b=(6,)),
        case("div(a, b)", lambda a, b: a / b, positive="b", a=(6,), b=(4, 1)),
    ],
    "neg": [case("neg(a)", lambda a: -a, a=(4,))],
    "scale": [case("scale(a, by = -1.5)", lambda a: -1.5 * a, a=(4,))],
    "shift": [case("shift(a, by = 2)", lambda a: a + 2, a=(4,))],
    "exp": [case("exp(a)", torch.exp, a=(4,))],
    "cos": [case("cos(a)", torch.cos, a=(4,))],
    "sin": [case("sin(a)", torch.sin, a=(4,))],
    "where": [case("where(gt(a, value = 0.25), a, b)", lambda a, b: torch.where(a > 0.25, a, b), a=(4, 5), b=(4, 5))],
    "masked_fill": [case("masked_fill(a, lt(a, value = 0.2), value = 3)", lambda a: a.masked_fill(a < 0.2, 3), a=(4, 5))],
    "maximum": [case("maximum(a, b)", torch.maximum, a=(4, 5), b=(4, 5)), case("maximum(a, a)", lambda a: torch.maximum(a, a), a=(4, 5))],
    "minimum": [case("minimum(a, b)", torch.minimum, a=(4, 5), b=(5,))],
    "pow": [case("pow(a, exponent = 3)", lambda a: a**3, a=(4, 5)), case("pow(exp(a), exponent = 0.3)", lambda a: a.exp() ** 0.3, a=(4, 5))],
    "erf": [case("erf(a)", torch.erf, a=(4, 5))],
    "cumsum": [case("cumsum(a, dim = 1)", lambda a: a.cumsum(1), a=(4, 5)), case("cumsum(a, direction = -1)", lambda a: a.flip(0).cumsum(0).flip(0), a=(4, 5))],
    "flip": [case("flip(a, dim = -1)", lambda a: a.flip(-1), a=(4, 5))],
    "clamp": [case("clamp(a, min = -0.5, max = 0.75)", lambda a: a.clamp(-0.5, 0.75), a=(4, 3))],
    "log": [case("log(a)", torch.log, positive="a", a=(4,))],
    "sqrt": [case("sqrt(a)", torch.sqrt, positive="a", a=(4,))],
    "relu": [case("relu(a)", F.relu, a=(40,))],
    "tanh": [case("tanh(a)", torch.tanh, a=(4,))],
    "sigmoid": [case("sigmoid(a)", torch.sigmoid, a=(4,))],
    "gelu": [case("gelu(a)", F.gelu, a=(40,))],
    "gelu_tanh": [case("gelu_tanh(a)", lambda a: a / 2 * (1 + torch.tanh((2 / math.pi) ** 0.5 * (a + 0.044715 * a**3))), a=(40,))],
    "silu": [case("silu(a)", F.silu, a=(40,))],
    "dropout": [case("dropout(a, p = 1e-12)", lambda a: a, a=(4,))],  # larger p below
    "drop_path": [case("drop_path(a, p = 1e-12)", lambda a: a, a=(4, 3))],  # likewise
    "cast": [case("cast(a, to = f64)", lambda a: a, a=(4,))],  # narrower ones below
    "sum": [
        case("sum(a, dims = 1)", lambda a: a.sum(1), a=(3, 4, 5)),
        case("sum(a, dims = [2, 0])", lambda a: a.sum((0, 2)), a=(3, 4, 5)),
        case("sum(a, dims = [-1])", lambda a: a.sum(-1), a=(2, 2, 4)),  # 2 * 2 = 4
        case("sum(a, dims = [0, 1])", lambda a: a.sum((0, 1)), a=(2, 2, 4)),
        case("sum(a, dims = 2)", lambda a: a.sum(2), a=(4, 2, 4)),
        case("sum(a, dims = [])", lambda a: a, a=(3, 1)),
    ],
    "mean": [
        case("mean(a, dims = 1)", lambda a: a.mean(1), a=(3, 4, 5)),
        case("mean(a, dims = [0, -1])", lambda a: a.mean((0, 2)), a=(3, 4, 5)),
        case("mean(a, dims = [0])", lambda a: a.mean(0), a=(4, 2, 2)),
        case("mean(a, dims = 0)", lambda a: a.mean(0), a=(1, 3)),
    ],
    "spread": [case("spread(a, dims = [0, 2], sizes = [4, 3])", spread, a=(5,))],
    "max": [
        case("max(a, dims = 1)", lambda a: a.amax(1), a=(3, 4, 5)),
        case("max(a, dims = [0, -1])", lambda a: a.amax((0, 2)), a=(3, 4, 5)),
    ],
    "softmax": [case("softmax(a)", lambda a: torch.softmax(a, -1), a=(2, 3, 4))],
    "log_softmax": [case("log_softmax(a)", lambda a: torch.log_softmax(a, -1), a=(2, 3, 4))],
    "layer_norm": [
        case("layer_norm(x, w, b)", layer_norm, x=(2, 3, 4), w=(4,), b=(4,)),
        case("layer_norm(x, w, b)", layer_norm, x=(4,), w=(4,), b=(4,)),
        case("layer_norm(x, x, x)", lambda x: layer_norm(x, x, x), x=(4,)),
    ],
    "cross_entropy": [
        case("cross_entropy(z, label)", F.cross_entropy, {"label": ((6,), 5)}, z=(6, 5)),
        case("cross_entropy(z, label)", lambda z, y: F.cross_entropy(z.flatten(0, 1), y.flatten()), {"label": ((2, 3), 5)}, z=(2, 3, 5)),
        case("cross_entropy(z, label, count_labels(label, to = f64))", F.cross_entropy, {"label": ((6,), 5)}, z=(6, 5)),
    ],
    "mse_loss": [
        case("mse_loss(a, b)", loss_of, a=SQUARE, b=SQUARE),
        case("mse_loss(a, a)", lambda a: loss_of(a, a), a=(4,)),
    ],
    "transpose": [
        case("transpose(a, perm = [2, 0, 1])", lambda a: a.permute(2, 0, 1), a=(3, 4, 5)),
        case("transpose(a, perm = [-1, 0, -2])", lambda a: a.permute(2, 0, 1), a=(3, 4, 5)),
    ],
    "rearrange": [
        case('rearrange(a, "b s (h e) -> b h s e", h = 2)', lambda a: a.unflatten(2, (2, 3)).permute(0, 2, 1, 3), a=(2, 5, 6)),
        case('rearrange(a, "b h s e -> b s (h e)")', lambda a: a.permute(0, 2, 1, 3).flatten(2), a=(2, 3, 4, 5)),
        case('rearrange(a, "a (b 3) -> b 1 (a 3)")', lambda a: a.unflatten(1, (2, 3)).permute(1, 0, 2).reshape(2, 1, 12), a=(4, 6)),
    ],
    "reshape": [
        case("reshape(a, [16, 6])", lambda a: a.reshape(16, 6), a=(12, 8)),
        case("reshape(a, [1, -1])", lambda a: a.reshape(1, 12), a=(3, 4)),
    ],
    "concat": [
        case("concat(a, b, dim = 1)", lambda a, b: torch.cat([a, b], 1), a=(2, 3), b=(2, 4)),
        case("concat(a, b, c, dim = -2)", lambda a, b, c: torch.cat([a, b, c], 1), a=(2, 3, 4), b=(2, 1, 4), c=(2, 2, 4)),
        case("concat(a, b, a)", lambda a, b: torch.cat([a, b, a]), a=(3,), b=(2,)),
    ],
    "slice": [
        case("slice(a, dim = 1, start = 2, stop = 5)", lambda a: a[:, 2:5], a=(3, 6)),
        case("slice(a, dim = -1, stop = 2)", lambda a: a[..., :2], a=(3, 4, 5)),
    ],
    "pad": [case("pad(a, dim = 1, before = 2, after = 1)", padded, a=(2, 3))],
    "abs": [case("abs(a)", torch.abs, a=(2, 3))],
    "leaky_relu": [case("leaky_relu(a, slope = 0.2)", lambda a: F.leaky_relu(a, 0.2), a=(4, 5))],
    "elu": [case("elu(a, alpha = 0.7)", lambda a: F.elu(a, 0.7), a=(4, 5))],
    "softplus": [case("softplus(a)", F.softplus, a=(4, 5))],
    "hardswish": [case("hardswish(scale(a, by = 4))", lambda a: F.hardswish(4 * a), a=(4, 5))],
    "hardsigmoid": [case("hardsigmoid(scale(a, by = 4))", lambda a: F.hardsigmoid(4 * a), a=(4, 5))],
    "reciprocal": [case("reciprocal(a)", torch.reciprocal, a=(2, 3))],
    "standardize": [
        case("standardize(x)", lambda x: F.layer_norm(x, (4,)), x=(2, 3, 4)),
        case("standardize(x, eps = 0.1)", lambda x: F.layer_norm(x, (4,), eps=0.1), x=(4,)),
    ],
    "unslice": [case("unslice(a, dim = 1, start = 2, size = 6)", padded, a=(2, 3))],
    "embedding": [
        case("embedding(ids, a)", lambda a, ids: a[ids], {"ids": ((4, 3), 5)}, a=(5, 6)),
        case("embedding(ids, a)", lambda a, ids: a[ids], {"ids": ((), 5)}, a=(5, 6)),
        case("embedding(ids, a, padding = 1)", lambda a, ids: F.embedding(ids, a, padding_idx=1), {"ids": ((4, 3), 5)}, a=(5, 6)),
    ],
    "attention": [
        case("attention(q, k, v)", written_out, q=(2, 3, 4, 5), k=(2, 3, 6, 5), v=(2, 3, 6, 7)),
        case("attention(q, k, v, causal = true)", lambda q, k, v: causal(q @ k.mT / 5**0.5) @ v, q=(2, 3, 4, 5), k=(2, 3, 4, 5), v=(2, 3, 4, 5)),
        case("attention(q, k, v)", lambda q, k, v: written_out(q, *(x.repeat_interleave(2, 1) for x in (k, v))), q=(2, 6, 4, 5), k=(2, 3, 6, 5), v=(2, 3, 6, 7)),
        case("attention(q, k, v)", written_out, q=(2, 6, 4, 5), k=(2, 1, 6, 5), v=(2, 1, 6, 7)),
        case("attention(q, k, v, mask)", padded_out, {"mask": ((2, 6), 2)}, q=(2, 3, 4, 5), k=(2, 3, 6, 5), v=(2, 3, 6, 7)),
        case("attention(q, q, q)", lambda q: written_out(q, q, q), q=(2, 3, 4, 5)),
    ],
    "rotary": [case("rotary(a)", rotary, a=(2, 3, 5, 6)), case("rotary(a, base = 500)", lambda a: rotary(a, 500), a=(7, 4))],
    "rms_norm": [
        case("rms_norm(x, w)", lambda x, w: F.rms_norm(x, w.shape, w, 1e-6), x=(2, 3, 4), w=(4,)),
        case("rms_norm(x, w, eps = 0.1)", lambda x, w: F.rms_norm(x, w.shape, w, 0.1), x=(4,), w=(4,)),
    ],
    "top_k_gate": [
        case("routed(a, 2, 7, true)", lambda a: routed(a, 2, 7, True), a=(2, 9, 4)),
        case("routed(a, 3, 5, false)", lambda a: routed(a, 3, 5, False), a=(2, 9, 4)),
    ],
    "causal_mask": [case("softmax(causal_mask(a))", causal, a=(2, 4, 4)), case("softmax(causal_mask(a))", causal, a=(4, 3))],
    **VISION_CASES,
}  # fmt: skip


def differentiable() -> set[str]:
    return {n for n, d in standard().items() if d.grads or d.notation}


def test_every_operator_with_a_gradient_has_a_case() -> None:
    assert set(CASES) == differentiable()


EVERY = [(name, k) for name, cases in CASES.items() for k in range(len(cases))]


@pytest.mark.parametrize(("name", "number"), EVERY, ids=[f"{n}-{k}" for n, k in EVERY])
def test_gradients(name: str, number: int) -> None:
    check(CASES[name][number])


def check(item: Case) -> None:
    draw = torch.Generator().manual_seed(7)
    operands = {n: torch.randn(s, generator=draw, dtype=torch.float64) for n, s in item.operands.items()}
    for name in item.positive:
        operands[name] = 0.5 + 1.5 * torch.rand(item.operands[name], generator=draw, dtype=torch.float64)
    integers = {n: torch.randint(top, s, generator=draw) for n, (s, top) in item.integers.items()}
    leaves = {n: x.clone().requires_grad_() for n, x in operands.items()}
    out = item.oracle(*leaves.values(), *integers.values())
    weight = torch.randn(out.shape, generator=draw, dtype=torch.float64)
    loss = (out * weight).sum()
    loss.backward()

    graph = graph_of(model(item, tuple(out.shape)))
    made = step(graph, {**operands, **integers, "weight": weight})
    same(made["y"], out, "value")
    same(made["loss"], loss, "loss")
    for name, leaf in leaves.items():
        assert leaf.grad is not None
        same(gradient(graph, made, name), leaf.grad, f"{name}.grad")


def model(item: Case, out: Shape) -> str:
    def listed(shape: Shape) -> str:
        return ", ".join(map(str, shape))

    lines = [f"    param {n} : f64[{listed(s)}]" for n, s in item.operands.items()]
    lines += [f"    input {n} : i64[{listed(s)}]" for n, (s, _) in item.integers.items()]
    lines += [f"    input weight : f64[{listed(out)}]", f"    y = {item.call}", "    weighed = mul(y, weight)"]
    lines += [f"    loss = sum(weighed, dims = [{listed(tuple(range(len(out))))}])"]
    lines += ["    output y", "    train loss with sgd(lr = 0.1)"]
    return DEFS + VISION_DEFS + "model case() {\n" + "\n".join(lines) + "\n}\n"


def test_ties_of_max_share_the_gradient() -> None:
    """Two equal largest elements get half each, as torch.amax gives them."""
    graph = graph_of(
        "model m() { param a : f64[2, 3]\n y = max(a, dims = 1)\n loss = sum(y, dims = 0)\n train loss with sgd() }"
    )
    a = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], dtype=torch.float64)
    leaf = a.clone().requires_grad_()
    leaf.amax(1).sum().backward()
    assert leaf.grad is not None
    same(gradient(graph, step(graph, {"a": a}), "a"), leaf.grad)


def test_ignored_labels() -> None:
    """Rows labelled -100 count neither in the sum nor in its divisor."""
    graph = graph_of(
        """model m() { param z : f64[5, 4]
        input label : i64[5]
        loss = cross_entropy(z, label, count_labels(label, to = f64))
        train loss with sgd() }"""
    )
    tensors = values(graph, {"label": 4})
    tensors["label"][1] = tensors["label"][4] = -100
    leaf = tensors["z"].clone().requires_grad_()
    loss = F.cross_entropy(leaf, tensors["label"], ignore_index=-100)
    loss.backward()
    made = step(graph, tensors)
    assert leaf.grad is not None
    same(made["loss"], loss)
    same(gradient(graph, made, "z"), leaf.grad)


@pytest.mark.parametrize(("op", "shape"), [("dropout", "4000"), ("drop_path", "4000, 2")])
def test_dropout_keeps_one_mask_in_both_directions(op: str, shape: str) -> None:
    graph = graph_of(
        f"model m() {{ param a : f64[{shape}]\n y = {op}(a, p = 0.3)\n loss = sum(y, dims = {[0, 1][: shape.count(',') + 1]})\n"
        " output y\n train loss with sgd() }"
    )
    tensors = values(graph)
    first, again, later = (step(graph, tensors, n) for n in (1, 1, 2))
    mask = first["y"] != 0
    same(first["y"], torch.where(mask, tensors["a"] / 0.7, 0))
    same(gradient(graph, first, "a"), mask.double() / 0.7)
    assert 0.66 < mask.double().mean().item() < 0.74
    if op == "drop_path":  # a row stays or goes whole
        assert torch.equal(mask[:, 0], mask[:, 1])
    same(again["y"], first["y"], tolerance=0)
    assert not torch.equal(later["y"] != 0, mask)


def test_cast_rounds_forward_and_returns_the_gradient_in_the_operands_dtype() -> None:
    graph = graph_of(
        """model m() { param a : f64[5]
        h = cast(a, to = f32)
        s = mul(h, h)
        loss = sum(s, dims = 0)
        output h
        train loss with sgd() }"""
    )
    a = torch.randn(5, dtype=torch.float64)
    made = Reference(graph).step({"a": a})
    leaf = a.clone().requires_grad_()
    narrow = leaf.to(torch.float32)
    (narrow * narrow).sum().backward()
    assert made["h"].dtype == torch.float32 and made[graph.resolve("a.grad")].dtype == torch.float64
    assert torch.equal(made["h"], narrow) and leaf.grad is not None
    assert torch.equal(made[graph.resolve("a.grad")], leaf.grad)


def test_a_gradient_that_nobody_asked_for_gets_a_name_of_its_own() -> None:
    """Two norms of one input: both backward calls make a gradient of x, which needs none."""
    graph = graph_of(
        """model m() { input x : f64[4, 3]
        param w1, b1, w2, b2 : f64[3]
        a = layer_norm(x, w1, b1)
        b = layer_norm(x, w2, b2)
        y = mul(a, b)
        loss = sum(y, dims = [0, 1])
        train loss with sgd() }"""
    )
    tensors = values(graph)
    leaves = {n: tensors[n].clone().requires_grad_() for n in ("w1", "b1", "w2", "b2")}
    a = layer_norm(tensors["x"], leaves["w1"], leaves["b1"])
    (a * layer_norm(tensors["x"], leaves["w2"], leaves["b2"])).sum().backward()
    made = step(graph, tensors)
    for name, leaf in leaves.items():
        assert leaf.grad is not None
        same(gradient(graph, made, name), leaf.grad, name)
