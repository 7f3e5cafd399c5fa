"""Kernels against torch's own functions and optimizers, in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hapdsl.graph.training import Node
from hapdsl.lang.diagnostics import HapError
from hapdsl.run.call import prepare
from hapdsl.run.context import DTYPES, Clock, Range, dtypes_at, whole
from hapdsl.run.kernels import KERNELS, resolve
from hapdsl.run.samples import samples
from hapdsl.run.validate import Trial, lesser_gradients
from hapdsl.theory.instance import Given
from hapdsl.theory.instantiate import instantiate
from hapdsl.theory.library import standard
from tests.run.image_kernels import IMAGES

OPS = standard()


def call(name, operands, attributes=None, *, step=1, seed=0, names=None, pieces=None, results=None):
    """One operator on one device, or on the piece of it that `pieces` and `results` give."""
    decl = OPS[name]
    names = names or [o.name for o in decl.operands][: len(operands)]
    kinds = {v: k for k, v in DTYPES.items()}
    shapes = [tuple(r.extent for r in p) for p in pieces] if pieces else [tuple(t.shape) for t in operands]
    given = [Given(n, s, kinds[t.dtype]) for n, s, t in zip(names, shapes, operands, strict=True)]
    full = {n: getattr(e, "value", None) for n, e in decl.attributes.items()} | dict(attributes or {})
    instance = instantiate(decl, given, full)
    node = Node(instance, tuple(names), tuple(r.name for r in decl.results), "forward", "here")
    here = pieces or [whole(s) for s in shapes]
    made = results or [whole(s) for s in instance.result_shapes]
    out = prepare(node, here, made, Clock(seed, step), dtypes_at(None))(operands)
    return out[0] if len(out) == 1 else out


def one_hot_loss(z, label):
    """Written out, without torch's own loss."""
    z = z.reshape(-1, z.shape[-1]).numpy()
    label = label.reshape(-1).numpy()
    logs = z - np.log(np.exp(z).sum(-1, keepdims=True))
    return torch.tensor(-logs[np.arange(len(label)), label].mean())


# What each forward kernel must equal; gradients are compared with torch's autograd through these in test_rules.
WORDS = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}

EXPECTED = {
    "matmul_nt": lambda x, w: F.linear(x, w),
    "matmul_tn": lambda x, g: torch.einsum("...k,...n->kn", x, g),
    "bmm_nt": lambda a, b: torch.einsum("...mk,...nk->...mn", a, b),
    "bmm_tn": lambda a, b: torch.einsum("...km,...kn->...mn", a, b),
    "einsum": lambda *x, spec: torch.einsum(spec, *x),
    "scale": lambda x, by: torch.from_numpy(by * x.numpy()),
    "shift": lambda x, by: torch.from_numpy(by + x.numpy()),
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "cast": lambda x, to: x.to(DTYPES[to]),
    "cast_like": lambda g, x: g.to(x.dtype),
    "sum": lambda x, dims: reduced(np.add, x, dims),
    "mean": lambda x, dims: torch.mean(x, dim=dims),
    "max": lambda x, dims: reduced(np.maximum, x, dims),
    "spread": lambda g, dims, sizes: spread(g, dims, sizes),
    "softmax": lambda x: torch.exp(x) / torch.exp(x).sum(-1, True),
    "log_softmax": lambda x: torch.log(torch.nn.Softmax(-1)(x)),
    "layer_norm": lambda x, w, b, eps: (
        (x - x.mean(-1, True)) / torch.sqrt(x.var(-1, correction=0, keepdim=True) + eps) * w + b
    ),
    "cross_entropy": lambda z, label, count=None: (
        one_hot_loss(z, label) * (1 if count is None else label.numel() / count)
    ),
    "count_labels": lambda label, ignore, to: torch.tensor(float(label.numel()), dtype=torch.float64),
    "mse_loss": lambda x, target: torch.nn.MSELoss()(x, target),
    "accuracy": lambda z, label: (z.argmax(-1) == label).double().mean(),
    "transpose": lambda x, perm: torch.from_numpy(np.transpose(x.numpy(), perm).copy()),
    "concat": lambda *x, dim: torch.from_numpy(np.concatenate([t.numpy() for t in x], dim)),
    "slice": lambda x, dim, start, stop: torch.index_select(x, dim, torch.arange(start, stop)),
    "unslice": lambda g, dim, start, size: torch.zeros(
        [size if d == dim % g.dim() else n for d, n in enumerate(g.shape)], dtype=g.dtype
    ).index_copy(dim, torch.arange(start, start + g.shape[dim]), g),
    "leaky_relu": lambda x, slope: torch.maximum(x, slope * x),
    "elu": lambda x, alpha: torch.where(x > 0, x, alpha * torch.expm1(x)),
    "pad": lambda x, dim, before, after, value: padded(x, dim, before, after, value),
    "standardize": lambda x, eps: (x - x.mean(-1, True)) / torch.sqrt(x.var(-1, correction=0, keepdim=True) + eps),
    "embedding": lambda ids, table, padding: F.one_hot(ids, len(table)).double() @ table,
    **IMAGES,
    "attention": lambda q, k, v, mask=None, *, causal: attend(q, k, v, mask, causal),
    "rotary": lambda x, base, direction: turn(x, base, direction),
    "rms_norm": lambda x, w, eps: F.rms_norm(x, w.shape, w, eps),
    "top_k_gate": lambda gates, k, capacity, normalize: route(gates, k, capacity, normalize)[0],
    "top_k_count": lambda gates, k: torch.stack(
        [torch.bincount(g.argsort(-1)[:, -k:].flatten(), minlength=g.shape[-1]) for g in gates]
    ),
    "causal_mask": lambda x: torch.where(torch.ones(x.shape[-2:]).tril().bool(), x, -math.inf),
    "sum_squares": lambda x, to: torch.linalg.vector_norm(x) ** 2,
    "clip_factor": lambda norm, limit, eps: (limit / (norm + eps)).minimum(torch.ones_like(norm)),
    "clip": lambda g, factor: g * factor.item(),
    "accumulate": lambda x: x,
    **{
        n: lambda a, b=None, value=0, n=n: torch.from_numpy(
            getattr(np, WORDS[n])(a.numpy(), value if b is None else b.numpy())
        )
        for n in WORDS
    },
    "where": lambda c, a, b: torch.from_numpy(np.where(c.numpy(), a.numpy(), b.numpy())),
    "masked_fill": lambda x, mask, value: torch.from_numpy(np.where(mask.numpy(), value, x.numpy())),
    "cumsum": lambda x, dim, direction: torch.from_numpy(
        np.flip(np.cumsum(np.flip(x.numpy(), dim), dim), dim).copy() if direction < 0 else np.cumsum(x.numpy(), dim)
    ),
    "gather": lambda x, index: torch.from_numpy(np.take_along_axis(x.numpy(), index.numpy(), -1)),
    "one_hot": lambda index, classes: torch.from_numpy(np.eye(classes, dtype=np.int64)[index.numpy()]),
    "flip": lambda x, dim: torch.from_numpy(np.flip(x.numpy(), dim).copy()),
    "argmax": lambda x, dim: torch.from_numpy(np.argmax(x.numpy(), dim)),
    "running": lambda now, kept: now,
}
# Compared in tests of their own below.
APART = {"rearrange", "binary_cross_entropy", "dropout", "drop_path", "sgd", "momentum", "adam", "adamw"}


def attend(q, k, v, mask, causal):
    """Head by head; -inf where a key is hidden, and no result where all are."""
    shared = q.shape[1] // k.shape[1]
    heads = []
    for h in range(q.shape[1]):
        scores = torch.einsum("bse,bte->bst", q[:, h], k[:, h // shared]) / math.sqrt(q.shape[-1])
        if causal:
            scores = torch.where(torch.ones(scores.shape[-2:]).tril().bool(), scores, -math.inf)
        if mask is not None:
            scores = torch.where(mask[:, None] != 0, scores, -math.inf)
        weights = torch.exp(scores - torch.logsumexp(scores, -1, True))
        heads.append(torch.einsum("bst,btf->bsf", weights.nan_to_num(0), v[:, h // shared]))
    return torch.stack(heads, 1)


def reduced(step, x, dims):
    return torch.from_numpy(np.asarray(step.reduce(x.numpy(), axis=tuple(np.atleast_1d(dims)))))


def padded(x, dim, before, after, value):
    sides = [
        torch.full([n if d == dim % x.dim() else m for d, m in enumerate(x.shape)], value, dtype=x.dtype)
        for n in (before, after)
    ]
    return torch.cat([sides[0], x, sides[1]], dim)


def turn(x, base, direction):
    """As complex numbers."""
    half = x.shape[-1] // 2
    angle = torch.outer(torch.arange(x.shape[-2]).double(), base ** -(torch.arange(half).double() / half))
    made = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), direction * angle)
    return torch.cat([made.real, made.imag], -1)


def route(gates, k, capacity, normalize):
    """Combine weights and dispatch mask, dealt out one token at a time."""
    combine = torch.zeros(*gates.shape, capacity, dtype=gates.dtype)
    for b, group in enumerate(gates):
        served = [0] * group.shape[-1]
        ranked = group.argsort(-1, descending=True)[:, :k]
        for choice in range(k):
            for s, token in enumerate(group):
                e = int(ranked[s, choice])
                if served[e] < capacity:
                    combine[b, s, e, served[e]] = token[e] / (sum(token[ranked[s]]) if normalize else 1)
                    served[e] += 1
    return combine, (combine != 0).to(gates.dtype)


def spread(g, dims, sizes):
    shape = list(g.shape)
    for d, n in sorted(zip(dims, sizes, strict=True)):
        g = g.unsqueeze(d)
        shape.insert(d, n)
    return g + torch.zeros(shape, dtype=g.dtype)


def test_binary_cross_entropy_of_probabilities():
    p, target = torch.tensor([0.0, 0.25, 0.9, 1.0, 1.0]).double(), torch.tensor([0.0, 1.0, 0.25, 1.0, 0.0]).double()
    by_hand = [
        0,
        math.log(4),
        -0.25 * math.log(0.9) - 0.75 * math.log(0.1),
        0,
        100,
    ]  # no logarithm below -100, as in torch
    assert call("binary_cross_entropy", [p, target]).tolist() == pytest.approx(by_hand)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_slope_of_binary_cross_entropy_is_a_number_at_the_ends(dtype):
    p, target = (
        torch.tensor([0.0, 1.0, 0.0, 1.0, 0.5], dtype=dtype),
        torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0], dtype=dtype),
    )
    slope = call("binary_cross_entropy_grad", [p, target, torch.ones(5, dtype=dtype)])
    assert slope[:2].tolist() == [0, 0] and slope[4] == -2
    assert slope[2] < -1e4 and slope[3] > 1e4 and bool(slope.isfinite().all())


def test_every_forward_kernel_is_compared():
    forward = {n for n in KERNELS if not n.endswith("_grad")}
    assert forward == EXPECTED.keys() | APART


def test_every_gradient_kernel_is_the_gradient_of_something():
    asked = [(decl, only) for decl in OPS.values() for only in (None, *lesser_gradients(decl))]
    reached = {n.op for decl, only in asked for s in samples(decl) if not s.tentative for n in Trial.of(decl, OPS, s, "0", frozenset(), only).graph.nodes if n.section == "backward"}  # fmt: skip
    assert {n for n in KERNELS if n.endswith("_grad")} <= reached


@pytest.mark.parametrize("name", EXPECTED)
def test_forward_kernels_equal_torch(name):
    tried = 0
    for k, sample in enumerate(samples(OPS[name])):
        if sample.tentative:
            continue
        trial = Trial.of(OPS[name], OPS, sample, f"kernel/{k}", frozenset())
        made = trial.alone()
        want = EXPECTED[name](*(trial.values[n] for n in trial.node.inputs), **dict(trial.node.instance.attributes))
        wanted = want if isinstance(want, tuple) else (want,)
        # The first ones, where a case says no more.
        for output, tensor in zip(trial.node.outputs, wanted, strict=False):
            torch.testing.assert_close(made[output], tensor, rtol=1e-12, atol=1e-12)
        tried += 1
    assert tried


REARRANGED = [
    ("b s (h e) -> b h s e", (2, 3, 12), {"h": 4}, lambda x: x.reshape(2, 3, 4, 3).permute(0, 2, 1, 3)),
    ("b h s e -> b s (h e)", (2, 4, 3, 5), {}, lambda x: x.permute(0, 2, 1, 3).flatten(2)),
    ("n c (h p) (w q) -> n (h w) (p q c)", (2, 3, 8, 6), {"p": 4, "q": 2}, lambda x: torch.stack(
        [x[:, :, i * 4 : i * 4 + 4, j * 2 : j * 2 + 2].permute(0, 2, 3, 1).flatten(1) for i in range(2) for j in range(3)], 1)),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "shape", "sizes", "want"), REARRANGED)
def test_rearrange_equals_reshape_and_permute(spec, shape, sizes, want):
    x = torch.randn(shape, dtype=torch.float64)
    assert torch.equal(call("rearrange", [x], {"spec": spec, **sizes}), want(x))


@pytest.mark.parametrize(
    ("shape", "target"), [((12, 8), [16, 6]), ((2, 3, 4), [-1]), ((24,), [2, -1, 3]), ((1, 6), [6, 1])]
)
def test_reshape_is_row_major(shape, target):
    x = torch.randn(shape, dtype=torch.float64)
    assert torch.equal(call("reshape", [x], {"shape": target}), x.reshape(target))


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.01}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.8, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_equal_torch_optim_over_steps(name):
    maker, attributes = OPTIMIZERS[name]
    theirs = dict(attributes)
    if "beta1" in theirs:
        theirs["betas"] = (theirs.pop("beta1"), theirs.pop("beta2"))
    torch.manual_seed(0)
    start = torch.randn(5, 3, dtype=torch.float64)
    parameter = start.clone().requires_grad_(True)
    optimizer = maker([parameter], **theirs)
    held = [start.clone(), *(torch.zeros_like(start) for _ in OPS[name].states)]
    for step in range(1, 6):
        gradient = torch.randn(5, 3, dtype=torch.float64)
        parameter.grad = gradient.clone()
        optimizer.step()
        before = [t.clone() for t in held]
        made = call(name, [held[0], gradient, *held[1:]], attributes, step=step)
        assert all(torch.equal(a, b) for a, b in zip(held, before, strict=True)), "an operand was changed"
        held = list(made) if isinstance(made, tuple) else [made]
        torch.testing.assert_close(held[0], parameter.detach(), rtol=1e-15, atol=1e-15)


# -- losses and labels ------------------------------------------------------------


def test_ignored_labels_leave_no_trace():
    z = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    label = torch.tensor([0, -100, 3, 1, -100, 2])
    want = F.cross_entropy(z, label)
    want.backward()
    count = call("count_labels", [label], {"to": "f64"})
    assert count == 4
    torch.testing.assert_close(call("cross_entropy", [z.detach(), label, count]), want.detach(), rtol=1e-14, atol=1e-14)
    one = torch.ones((), dtype=torch.float64)
    made = call("cross_entropy_grad", [z.detach(), label, one, count])
    torch.testing.assert_close(made, z.grad, rtol=1e-14, atol=1e-14)


def test_nothing_but_ignored_labels():
    """As torch: the loss is no number, the gradient is zero."""
    z, label = torch.randn(2, 4, dtype=torch.float64), torch.tensor([-100, -100])
    count, one = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)
    assert call("cross_entropy", [z, label, count]).isnan() == F.cross_entropy(z, label).isnan()
    assert torch.equal(call("cross_entropy_grad", [z, label, one, count]), torch.zeros(2, 4, dtype=torch.float64))


@pytest.mark.parametrize(
    ("op", "operands", "code"),
    [
        ("cross_entropy", (torch.zeros(2, 3), torch.tensor([0, 3])), "HAP702"),
        ("cross_entropy", (torch.zeros(2, 3), torch.tensor([-1, 0])), "HAP702"),
        ("cross_entropy", (torch.zeros(2, 3), torch.tensor([0, -100])), "HAP703"),
        ("cross_entropy_grad", (torch.zeros(2, 3), torch.tensor([0, -100]), torch.ones(())), "HAP703"),
        ("accuracy", (torch.zeros(2, 3), torch.tensor([0, 5])), "HAP702"),
        ("embedding", (torch.tensor([0, 4]), torch.zeros(4, 2)), "HAP704"),
        ("embedding", (torch.tensor([-1, 0]), torch.zeros(4, 2)), "HAP704"),
    ],
)
def test_numbers_out_of_range_are_named(op, operands, code):
    with pytest.raises(HapError) as stop:
        call(op, list(operands))
    assert [d.code for d in stop.value.diagnostics] == [code]


def test_a_mean_divides_by_the_global_count():
    """Three of ten rows are here: their share of the mean is their sum over ten."""
    x = torch.randn(3, 2, dtype=torch.float64)
    made = call("mean", [x], {"dims": [0]}, pieces=[(Range(10, 4, 3), Range(2, 0, 2))], results=[(Range(2, 0, 2),)])
    torch.testing.assert_close(made, x.sum(0) / 10, rtol=1e-15, atol=1e-15)


def test_an_empty_share_gives_zeros_without_a_kernel():
    x = torch.empty(0, 5, dtype=torch.float64)
    made = call("max", [x], {"dims": [1]}, pieces=[(Range(4, 2, 0), Range(5, 0, 5))], results=[(Range(4, 2, 0),)])
    assert made.shape == (0,)
    partial = call("sum", [x], {"dims": [0]}, pieces=[(Range(4, 2, 0), Range(5, 0, 5))], results=[(Range(5, 0, 5),)])
    assert torch.equal(partial, torch.zeros(5, dtype=torch.float64))


# -- experts ------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "capacity"), [(1, 2), (2, 2), (2, 3), (3, 12)])
def test_routing(k, capacity):
    """Slots are used once, nobody has more than its capacity or goes to an expert that isn't among its best."""
    gates = torch.softmax(torch.randn(3, 12, 4, dtype=torch.float64), -1)
    combine, dispatch = call("top_k_gate", [gates], {"k": k, "capacity": capacity})
    assert torch.equal(dispatch, (combine > 0).double()) and torch.equal(dispatch, route(gates, k, capacity, True)[1])
    assert dispatch.sum(1).max() == 1  # a slot holds one token
    asked = call("top_k_count", [gates], {"k": k})
    assert asked.dtype == torch.int64 and (asked.sum(-1) == 12 * k).all()
    # An expert is full before anyone is left out.
    assert torch.equal(dispatch.sum((1, 3)), asked.clamp(max=capacity).double())
    if capacity == 12:
        torch.testing.assert_close(combine.sum((2, 3)), torch.ones(3, 12, dtype=torch.float64))


# -- dropout ------------------------------------------------------------------------


def mask(shape, *, p=0.3, key="h", **clock):
    return call("dropout", [torch.ones(shape, dtype=torch.float64)], {"p": p, "seed": 0, "key": key}, **clock)


def test_dropout_drops_the_right_part_and_scales_the_rest():
    made = mask((400, 300))
    kept = made != 0
    assert abs(kept.double().mean() - 0.7) < 0.005
    assert torch.allclose(made[kept], torch.tensor(1 / 0.7, dtype=torch.float64))
    rows, columns = kept.double().mean(0), kept.double().mean(1)
    assert rows.std() < 2 * math.sqrt(0.21 / 400) and columns.std() < 2 * math.sqrt(0.21 / 300)


def test_dropout_masks_are_independent_between_steps_keys_and_seeds():
    base = mask((200, 100)) != 0
    others = [mask((200, 100), step=2), mask((200, 100), seed=1), mask((200, 100), key="g")]
    for other in others:
        agree = ((other != 0) == base).double().mean()
        assert abs(agree - (0.49 + 0.09)) < 0.02
    assert torch.equal(mask((200, 100)) != 0, base)


def test_dropout_is_a_function_of_the_global_index():
    full = mask((8, 6, 5))
    rows = (Range(8, 3, 2), Range(6, 0, 6), Range(5, 0, 5))
    columns = (Range(8, 0, 8), Range(6, 4, 2), Range(5, 1, 3))
    for piece in (rows, columns):
        ones = torch.ones([r.length for r in piece], dtype=torch.float64)
        attributes = {"p": 0.3, "seed": 0, "key": "h"}
        made = call("dropout", [ones], attributes, pieces=[piece], results=[piece])
        assert torch.equal(made, full[tuple(slice(r.offset, r.offset + r.length) for r in piece)])


def test_drop_path_takes_whole_samples_whatever_lies_where():
    """Kept ones are scaled by 1 / (1 - p), about p of them go, others at the next step; a piece is a piece of the whole."""
    attributes = {"p": 0.3, "seed": 0, "key": "h"}
    full = call("drop_path", [torch.ones(4000, 2, 3, dtype=torch.float64)], attributes)
    assert torch.equal(full, full[:, :1, :1].expand_as(full)) and set(full.unique().tolist()) == {0.0, 1 / 0.7}
    assert abs((full[:, 0, 0] == 0).double().mean() - 0.3) < 0.03
    later = call("drop_path", [torch.ones(4000, 2, 3, dtype=torch.float64)], attributes, step=2)
    assert abs((full == later).double().mean() - 0.58) < 0.03
    piece = (Range(4000, 30, 20), Range(2, 1, 1), Range(3, 0, 2))
    made = call("drop_path", [torch.ones(20, 1, 2, dtype=torch.float64)], attributes, pieces=[piece], results=[piece])
    assert torch.equal(made, full[30:50, 1:, :2])


@pytest.mark.parametrize(("p", "want"), [(0.0, 1.0), (1.0, 0.0)])
def test_dropout_of_nothing_and_of_all(p, want):
    assert torch.equal(mask((3, 4), p=p), torch.full((3, 4), want, dtype=torch.float64))


def test_kernels_resolve_for_all_operators():
    assert all(callable(resolve(decl)) for decl in OPS.values())
