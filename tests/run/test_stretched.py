"""Operands that stretch as numpy's do: every kernel gives what it gives for operands laid out in full."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from hapdsl.lang.diagnostics import HapError
from hapdsl.run.samples import Sample, samples
from hapdsl.theory.instance import Given
from hapdsl.theory.instantiate import instantiate
from hapdsl.theory.library import standard
from hapdsl.theory.ops import OpDecl
from tests.run.test_kernels import call

Shape = tuple[int, ...]
OPS = {n: d for n, d in standard().items() if not d.is_update and sum(not o.default for o in d.operands) > 1}


def stretched(decl: OpDecl, sample: Sample) -> Iterator[tuple[int, Shape, Shape]]:
    """Which operand gets another shape, that shape, and with dims of 1 in the places of those left out."""
    dims = {o.name: o.dims for o in decl.operands}
    for k, (name, shape) in enumerate(sample.operands):
        at = next((d for d, i in enumerate(dims[name]) if i.star), None)
        length = len(shape) - len(dims[name]) + 1
        if at is None or length < 1:
            continue
        before, star, after = shape[:at], shape[at : at + length], shape[at + length :]
        for ones in {(1, *star[1:]), (*star[:-1], 1), (1,) * length}:
            yield k, (*before, *ones, *after), (*before, *ones, *after)
        if at == 0:
            yield k, after, (*(1,) * length, *after)


def drawn(sample: Sample, dtype: torch.dtype) -> list[Tensor]:
    source = torch.Generator().manual_seed(3)
    return [
        torch.randint(sample.below[n], shape, generator=source)
        if n in sample.below
        else torch.rand(shape, generator=source).to(dtype) / 2 + 0.25
        for n, shape in sample.operands
    ]


def stretches(decl: OpDecl, sample: Sample, operands: list[Tensor], kind: str) -> bool:
    """Does the theory take these operands for results as large as those of the operands in full?"""
    full = [Given(n, shape, "i64" if n in sample.below else kind) for n, shape in sample.operands]
    short = [Given(g.operand, tuple(t.shape), g.dtype) for g, t in zip(full, operands, strict=True)]
    try:
        one, other = (instantiate(decl, given, sample.attributes) for given in (short, full))
    except HapError:
        return False
    return one.result_shapes == other.result_shapes


@pytest.mark.parametrize(("kind", "dtype"), [("f64", torch.float64), ("f32", torch.float32)])
def test_stretched_operands_are_read_as_if_laid_out_in_full(kind: str, dtype: torch.dtype) -> None:
    tried = set()
    for name, decl in OPS.items():
        for sample in (s for s in samples(decl) if not s.tentative):
            names, full = [n for n, _ in sample.operands], drawn(sample, dtype)
            for k, shape, ones in stretched(decl, sample):
                part = full[k][tuple(slice(n) for n in ones)]
                short, laid = part.reshape(shape), part.expand(full[k].shape).contiguous()
                operands = [*full[:k], short, *full[k + 1 :]]
                if not stretches(decl, sample, operands, kind):
                    continue
                tried.add(name)
                made = call(name, operands, sample.attributes, names=names)
                wanted = call(name, [*full[:k], laid, *full[k + 1 :]], sample.attributes, names=names)
                said = f"{name}, {names[k]} {shape} of {tuple(full[k].shape)}"
                torch.testing.assert_close(made, wanted, equal_nan=True, msg=lambda m, said=said: f"{said}: {m}")
    assert tried >= {
        "div",
        "cast_like",
        "cross_entropy_grad",
        "elu_grad",
        "gelu_grad",
        "group_norm_grad",
        "log_softmax_grad",
    }
    assert tried >= {"layer_norm_input_grad", "relu_grad", "silu_grad", "softmax_grad", "standardize_grad", "where"}
