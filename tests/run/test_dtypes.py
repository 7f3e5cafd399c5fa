"""What the theory says of dtypes and what kernels do: an operand that a kernel can't take is refused, and what is made is of the dtype
that was said."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from hapdsl.graph.training import Node
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.parse import parse
from hapdsl.run.call import prepare
from hapdsl.run.context import DTYPES, Clock, whole
from hapdsl.run.inplace import passes
from hapdsl.run.samples import Sample, samples
from hapdsl.theory.dtypes import FLOATS, INTS
from hapdsl.theory.instance import Given, Instance
from hapdsl.theory.instantiate import instantiate
from hapdsl.theory.library import declare_all, standard
from tests.graph.helpers import graph_of

OPS = standard()


def instance_of(name: str, sample: Sample, dtypes: Sequence[str]) -> Instance | None:
    """The call with operands of these dtypes (integers by their role stay so), None where it is refused."""
    given = [
        Given(o, shape, "i64" if o in sample.below else d)
        for (o, shape), d in zip(sample.operands, dtypes, strict=True)
    ]
    target = next((d for d in dtypes if d in FLOATS), "f32")
    attributes = {k: target if v == "f64" else v for k, v in sample.attributes.items()}
    try:
        return instantiate(OPS[name], given, attributes)
    except HapError as stop:
        assert [d.code for d in stop.diagnostics] == ["HAP305"], stop.diagnostics
        return None


def agrees(instance: Instance, sample: Sample) -> None:
    """Run the kernel; `Call` itself compares dtypes and shapes with what the theory says. What isn't said to pass operands on makes new tensors."""
    draw = torch.Generator().manual_seed(0)
    made = [
        torch.randint(sample.below[o], g.shape, generator=draw)
        if o in sample.below
        else (torch.rand(g.shape, generator=draw) * 2 + 0.5).to(DTYPES[g.dtype])
        for g, (o, _) in zip(instance.given, sample.operands, strict=True)
    ]
    names = tuple(f"x{k}" for k in range(len(made)))
    node = Node(instance, names, tuple(f"y{k}" for k in range(len(instance.result_shapes))), "forward", "trial")
    ranges = [whole(g.shape) for g in instance.given]
    found = prepare(node, ranges, [whole(s) for s in instance.result_shapes], Clock(), DTYPES)(made)
    given = {t.untyped_storage().data_ptr() for t in made if t.numel()}
    assert passes(node) or not given & {t.untyped_storage().data_ptr() for t in found}


@pytest.mark.parametrize("name", list(OPS))
def test_any_dtype_runs_or_is_refused(name: str) -> None:
    ran = set()
    for sample in [s for s in samples(OPS[name]) if not s.tentative][:2]:
        count = len(sample.operands)
        rows = [[d] * count for d in (*FLOATS, *INTS, "bool")]
        for k in range(count):  # one operand differs from the others
            for own, others in (("i64", "f32"), ("f32", "i64"), ("bool", "f32"), ("i32", "bf16"), ("bool", "i64")):
                rows.append([own if j == k else others for j in range(count)])
        for row in rows:
            instance = instance_of(name, sample, row)
            if instance is not None:
                agrees(instance, sample)
                ran.add(row[0])
    assert set(FLOATS) <= ran


@pytest.mark.parametrize(
    "op", ["mean(X, dims = 0)", "div(X, X)", "exp(X)", "softmax(X)", "scale(X, by = 0.5)", "gelu(X)"]
)
def test_whole_numbers_are_cast_first(op: str) -> None:
    """torch refuses mean(int64), or makes floats of it: neither is silently done."""
    text = "model m { input x : i64[4]; y = %s; output y }"
    with pytest.raises(HapError) as stop:
        graph_of(text % op.replace("X", "x"))
    (found,) = stop.value.diagnostics
    assert found.code == "HAP305" and "cast(x, to = f32)" in found.help
    assert graph_of(text % op.replace("X", "cast(x, to = f32)")).tensors["y"].dtype == "f32"


def test_whole_numbers_stay_whole() -> None:
    for op in (
        "sum(x, dims = 0)",
        "add(x, x)",
        "shift(x, by = 1)",
        "scale(x, by = 3)",
        "neg(x)",
        "max(x, dims = 0)",
        "reshape(x, shape = [2, 2])",
    ):
        for dtype in INTS:
            graph = graph_of(f"model m {{ input x : {dtype}[4]; y = {op}; output y }}")
            assert graph.tensors["y"].dtype == dtype


def test_an_operator_of_ones_own() -> None:
    text = 'op twice(x[*i]) -> y[*i] { flops i; torch "torch.add" }'
    (op,) = declare_all(parse(text).items).values()
    with pytest.raises(HapError) as stop:
        instantiate(op, [Given("x", (4,), "i64")], {})
    assert "dtype y = number" in stop.value.diagnostics[0].help
    (op,) = declare_all(parse(text.replace("flops", "dtype y = number; flops")).items).values()
    assert instantiate(op, [Given("x", (4,), "i64")], {}).result_dtypes == ("i64",)
    (op,) = declare_all(parse(text.replace("flops", "dtype x = int; dtype y = f32; flops")).items).values()
    assert instantiate(op, [Given("x", (4,), "i32")], {}).result_dtypes == ("f32",)
    with pytest.raises(HapError) as stop:
        instantiate(op, [Given("x", (4,), "f32")], {})
    assert "it must be int" in stop.value.diagnostics[0].message
