"""Shapes, dtypes, indices and flops of calls, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hapdsl.lang.diagnostics import HapError
from hapdsl.theory.dtypes import DTYPE_BYTES
from hapdsl.theory.instance import Given
from hapdsl.theory.instantiate import instantiate
from hapdsl.theory.library import standard
from tests.theory.helpers import call, declared, shown

I64 = "i64"
IMAGES = (4, 3, 9, 8)

# (operator, operand shapes, attributes, result shapes)
SHAPES: list[tuple[str, tuple[Any, ...], dict[str, Any], list[tuple[int, ...]]]] = [
    ("matmul", ((5, 6, 8), (8, 10)), {}, [(5, 6, 10)]),
    ("matmul", ((2, 3, 5, 6, 8), (8, 10)), {}, [(2, 3, 5, 6, 10)]),
    ("matmul_nt", ((6, 8), (10, 8)), {}, [(6, 10)]),
    ("matmul_tn", ((2, 6, 8), (2, 6, 10)), {}, [(8, 10)]),
    ("bmm", ((2, 3, 4, 5), (2, 3, 5, 6)), {}, [(2, 3, 4, 6)]),
    ("bmm", ((2, 1, 4, 5), (3, 5, 6)), {}, [(2, 3, 4, 6)]),
    ("einsum", ((2, 6, 8), (8, 4, 3)), {"spec": "bsd,dhe->bhse"}, [(2, 4, 6, 3)]),
    ("einsum", ((2, 3), (2, 3)), {"spec": "ij,ij->"}, [()]),
    ("einsum", ((2, 3),), {"spec": "row col -> col row"}, [(3, 2)]),
    ("conv2d", (IMAGES, (5, 3, 3, 2)), {}, [(4, 5, 7, 7)]),
    ("conv2d", (IMAGES, (5, 3, 3, 3)), {"stride": 2, "pad": 1}, [(4, 5, 5, 4)]),
    ("conv2d", (IMAGES, (5, 3, 3, 2)), {"dilation": 2}, [(4, 5, 5, 6)]),
    ("conv2d", ((4, 6, 9, 8), (9, 2, 3, 3)), {"groups": 3}, [(4, 9, 7, 6)]),
    ("conv2d", ((4, 6, 9, 8), (12, 1, 3, 3)), {"groups": 6, "pad": 1}, [(4, 12, 9, 8)]),
    ("conv_transpose2d", (IMAGES, (3, 5, 2, 2)), {"stride": 2}, [(4, 5, 18, 16)]),
    ("conv_transpose2d", (IMAGES, (3, 5, 3, 3)), {"stride": 2, "pad": 1, "output_pad": 1}, [(4, 5, 18, 16)]),
    ("upsample_nearest2d", (IMAGES,), {"factor": 3}, [(4, 3, 27, 24)]),
    ("avg_pool2d", (IMAGES,), {"kernel": 3, "stride": 2, "pad": 1}, [(4, 3, 5, 4)]),
    ("batch_norm_stats", (IMAGES,), {}, [(3,), (3,)]),
    ("group_norm", ((4, 6, 9), (6,), (6,)), {"groups": 2}, [(4, 6, 9)]),
    ("max_pool2d", (IMAGES,), {"kernel": 3, "pad": 1}, [(4, 3, 5, 4)]),
    ("max_pool2d", (IMAGES,), {}, [(4, 3, 4, 4)]),
    ("max_pool2d", (IMAGES,), {"kernel": 3, "stride": 2}, [(4, 3, 4, 3)]),
    ("adaptive_avg_pool2d", (IMAGES,), {"size": 5}, [(4, 3, 5, 5)]),
    # numpy's broadcasting: aligned from the right, a dim of 1 stretches
    ("add", ((4, 6), (6,)), {}, [(4, 6)]),
    ("add", ((6,), (4, 6)), {}, [(4, 6)]),
    ("add", ((4, 1), (1, 6)), {}, [(4, 6)]),
    ("add", ((), (3, 2)), {}, [(3, 2)]),
    ("add", ((1,), (1,)), {}, [(1,)]),
    ("mul", ((2, 1, 5), (7, 1)), {}, [(2, 7, 5)]),
    ("sum", ((4, 6, 8),), {"dims": 1}, [(4, 8)]),
    ("sum", ((4, 6, 8),), {"dims": [2, 0]}, [(6,)]),
    ("sum", ((4, 6, 8),), {"dims": [-1]}, [(4, 6)]),
    ("sum", ((4, 6),), {"dims": []}, [(4, 6)]),
    ("mean", ((4,),), {"dims": 0}, [()]),
    ("spread", ((6,),), {"dims": [2, 0], "sizes": [4, 5]}, [(5, 6, 4)]),
    ("max", ((4, 6, 8),), {"dims": [0, 1]}, [(8,)]),
    ("layer_norm_grad", ((4, 6, 8), (8,), (4, 6, 8)), {}, [(4, 6, 8), (8,), (8,)]),
    ("cross_entropy", ((4, 6, 10), ((4, 6), I64)), {}, [()]),
    ("embedding", (((4, 6), I64), (10, 8)), {}, [(4, 6, 8)]),
    ("embedding", (((), I64), (10, 8)), {}, [(8,)]),
    ("embedding_grad", (((4, 6), I64), (4, 6, 8)), {"rows": 10}, [(10, 8)]),
    ("embedding_bag", (((4, 6), I64), (10, 8)), {}, [(4, 8)]),
    ("lower_triangle", ((4, 5, 5),), {}, [(4, 10)]),
    ("logsumexp", ((4, 5, 6),), {}, [(4, 5)]),
    ("pick", ((4, 5, 6), ((4, 5), I64)), {}, [(4, 5)]),
    ("pick_grad", (((4, 5), I64), (4, 5)), {"size": 6}, [(4, 5, 6)]),
    ("transpose", ((4, 6, 8),), {"perm": [2, 0, 1]}, [(8, 4, 6)]),
    ("transpose", ((4, 6, 8),), {"perm": [-1, 0, -2]}, [(8, 4, 6)]),
    ("transpose", ((),), {"perm": []}, [()]),
    ("concat", ((4, 3), (4, 5), (4, 1)), {"dim": 1}, [(4, 9)]),
    ("concat", ((2, 3, 4), (5, 3, 4)), {"dim": -3}, [(7, 3, 4)]),
    ("concat", ((3,),), {}, [(3,)]),
    ("slice", ((4, 6, 8),), {"dim": -2, "start": 2, "stop": 5}, [(4, 3, 8)]),
    ("slice", ((4,),), {"start": 0, "stop": 4}, [(4,)]),
    ("unslice", ((4, 3),), {"dim": 1, "start": 2, "size": 6}, [(4, 6)]),
    ("rearrange", ((2, 6, 12),), {"spec": "b s (h e) -> b h s e", "h": 4}, [(2, 4, 6, 3)]),
    ("rearrange", ((2, 6, 12),), {"spec": "b s (h e) -> b h s e", "e": 4}, [(2, 3, 6, 4)]),
    ("rearrange", ((2, 4, 6, 3),), {"spec": "b h s e -> b s (h e)"}, [(2, 6, 12)]),
    ("rearrange", ((2, 8, 8),), {"spec": "b (h p) (w q) -> b (h w) (p q)", "p": 2, "q": 2}, [(2, 16, 4)]),
    ("rearrange", ((4, 6),), {"spec": "a b -> b 1 a"}, [(6, 1, 4)]),
    ("rearrange", ((4, 1, 6),), {"spec": "a 1 b -> (a b)"}, [(24,)]),
    ("reshape", ((12, 8),), {"shape": [16, 6]}, [(16, 6)]),
    ("reshape", ((12, 8),), {"shape": [3, -1]}, [(3, 32)]),
    ("reshape", ((1, 1),), {"shape": []}, [()]),
    ("reshape", ((),), {"shape": [1, 1]}, [(1, 1)]),
    ("attention", ((2, 4, 6, 8), (2, 4, 7, 8), (2, 4, 7, 5)), {}, [(2, 4, 6, 5)]),
    ("attention_grad", ((2, 4, 6, 8), (2, 4, 7, 8), (2, 4, 7, 5), (2, 4, 6, 5)), {}, [(2, 4, 6, 8), (2, 4, 7, 8), (2, 4, 7, 5)]),
    ("adam", ((4, 6),) * 4, {}, [(4, 6)] * 3),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "expected"), SHAPES, ids=[f"{k}-{r[0]}" for k, r in enumerate(SHAPES)]
)
def test_result_shapes(
    op: str, shapes: tuple[Any, ...], attributes: dict[str, Any], expected: list[tuple[int, ...]]
) -> None:
    assert list(call(op, *shapes, **attributes).result_shapes) == expected


def test_result_dtypes() -> None:
    assert call("add", ((4,), "bf16"), ((4,), "bf16")).result_dtypes == ("bf16",)
    assert call("embedding", ((4,), "i32"), ((10, 8), "f64")).result_dtypes == ("f64",)
    assert call("reshape", ((4,), "i64"), shape=[2, 2]).result_dtypes == ("i64",)
    assert call("cast", ((4,), "i64"), to="f16").result_dtypes == ("f16",)
    assert call("cast_like", ((4,), "f32"), ((4,), "bf16")).result_dtypes == ("bf16",)
    assert call("count_labels", ((4,), I64), to="f32").result_dtypes == ("f32",)
    assert call("adam", *(((4,), "f64"),) * 4).result_dtypes == ("f64",) * 3


def test_bytes_of_dtypes() -> None:
    assert DTYPE_BYTES == {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "i8": 1, "bool": 1}


def test_indices_of_a_broadcast() -> None:
    """A stretched dim holds no index: whoever cuts the result still needs all of that operand."""
    made = call("add", (4, 1), (1, 6))
    (a0, a1), (b0, b1) = made.operands
    assert a1 == () and b0 == ()
    assert made.results == ((a0, b1),)
    assert {made.extents[a0[0]], made.extents[b1[0]]} == {4, 6}
    shorter = call("add", (6,), (4, 6))
    assert shorter.operands[0][0] == shorter.operands[1][1] == shorter.results[0][1]


def test_indices_of_split_heads() -> None:
    made = call("rearrange", (2, 6, 12), spec="b s (h e) -> b h s e", h=4)
    assert made.operands == ((("b",), ("s",), ("h", "e")),)
    assert made.results == ((("b",), ("h",), ("s",), ("e",)),)
    assert made.extents == {"b": 2, "s": 6, "h": 4, "e": 3}
    assert made.majors("h") == ([2], [1]) and made.majors("e") is None


def test_two_stars_around_a_joined_dim() -> None:
    made = call("concat", (2, 3, 4, 5), (2, 3, 6, 5), dim=2)
    first, second = made.operands
    assert first[:2] == second[:2] == made.results[0][:2] and first[3] == second[3] == made.results[0][3]
    assert len({first[2], second[2], made.results[0][2]}) == 3  # each operand's own, and their sum
    assert made.extents[made.results[0][2][0]] == 10


def test_two_stars_around_a_dim_beside_others() -> None:
    """What stands on a seat's side of the pattern stays on that side of it."""
    between = declared("op f(x[n, *a, s, *b, m], attr dim) -> y[n, *a, *b, m] { at s = dim; sum s }")
    made = call(between, (2, 3, 4, 5, 6), dim=2)
    assert [dim[0] for dim in made.operands[0]] == ["n", "a.0", "s", "b.0", "m"]
    assert made.result_shapes == ((2, 3, 5, 6),)
    assert call(between, (2, 4, 5, 6, 7), dim=-4).result_shapes == ((2, 5, 6, 7),)


def test_counts_of_joined_operands_add_up() -> None:
    join = declared("op join(*x[*a, c]) -> y[*a, t] { whole c, t; size t = c; flops a * c; reads x = a * c }")
    made = call(join, (4, 5), (4, 3))
    assert made.result_shapes == ((4, 8),)
    assert made.flops({}) == 4 * (5 + 3) and made.flops({"a.0": 1}) == 8


def test_optional_operand() -> None:
    assert len(call("cross_entropy", (4, 10), ((4,), I64)).given) == 2
    counted = call("cross_entropy", (4, 10), ((4,), I64), ())
    assert counted.operands[2] == () and counted.result_shapes == ((),)


def test_literal_extent() -> None:
    rgb = declared("op grey(x[n, 3, h, w]) -> y[n, h, w] { flops n }")
    assert call(rgb, (2, 3, 4, 5)).result_shapes == ((2, 4, 5),)


def test_merged_dims_of_a_declaration() -> None:
    split = declared("op split(x[*i, (h e)], attr h) -> y[*i, h, e] { linear x }")
    assert call(split, (5, 7, 12), h=4).result_shapes == ((5, 7, 4, 3),)
    weighed = declared("op weigh(x[n, (h e)], w[h]) -> y[n, h, e] { linear x }")  # h is known from w
    assert call(weighed, (5, 12), (3,)).result_shapes == ((5, 3, 4),)


# A reshape's dims can be cut alike where groups of equal product begin: (from, to, {dim: (dim, units)} for cut dims).
RESHAPES: list[tuple[tuple[int, ...], list[int], dict[int, tuple[int, int]]]] = [
    ((12, 8), [16, 6], {0: (0, 4)}),  # blocks of 24 elements lead both sides: 3 rows of 8, 4 rows of 6
    ((16, 6), [12, 8], {0: (0, 4)}),
    ((6, 4), [24], {0: (0, 6)}),
    ((24,), [6, 4], {0: (0, 6)}),
    ((4, 6), [4, 2, 3], {0: (0, 4), 1: (1, 2)}),
    ((4, 2, 3), [4, 6], {0: (0, 4), 1: (1, 2)}),
    ((2, 3, 4), [6, 4], {0: (0, 2), 2: (1, 4)}),
    ((4, 1, 6), [4, 6], {0: (0, 4), 2: (1, 6)}),
    ((4, 6), [1, 4, 1, 6, 1], {0: (1, 4), 1: (3, 6)}),
    ((5, 7), [7, 5], {}),
    ((4, 6), [2, -1], {0: (0, 2)}),
    ((768, 10), [12, 64, 10], {0: (0, 12), 1: (2, 10)}),
    ((12, 64, 10), [768, 10], {0: (0, 12), 2: (1, 10)}),
]


@pytest.mark.parametrize(("shape", "target", "cut"), RESHAPES)
def test_reshape_units(shape: tuple[int, ...], target: list[int], cut: dict[int, tuple[int, int]]) -> None:
    made = call("reshape", shape, shape=target)
    found: dict[int, tuple[int, int]] = {}
    for index in made.indices:
        majors = made.majors(index)
        if index in made.wholes or majors is None or made.extents[index] == 1:
            continue
        ((ours,), (theirs,)) = majors
        if ours is not None and theirs is not None:
            found[ours] = (theirs, made.extents[index])
    assert found == cut
    # the claim itself: unit u of the cut dim holds the same elements, in the same order, on both sides
    before = np.arange(np.prod(shape)).reshape(shape)
    after = before.reshape(made.result_shapes[0])
    for ours, (theirs, units) in cut.items():
        for part, other in zip(np.split(before, units, ours), np.split(after, units, theirs), strict=True):
            assert part.ravel().tolist() == other.ravel().tolist()


# (operator, shapes, attributes, local lengths, FLOPs by hand)
FLOPS: list[tuple[str, tuple[Any, ...], dict[str, Any], dict[str, int], float]] = [
    ("matmul", ((4, 6, 8), (8, 10)), {}, {}, 2 * 4 * 6 * 8 * 10),
    ("matmul", ((4, 6, 8), (8, 10)), {}, {"n": 3, "b.0": 2}, 2 * 2 * 6 * 8 * 3),
    ("matmul", ((8,) * 2, (8, 10)), {}, {"m": 0}, 0),
    ("matmul_tn", ((4, 6, 8), (4, 6, 10)), {}, {}, 2 * 4 * 6 * 8 * 10),
    ("bmm_nt", ((4, 6, 8), (4, 10, 8)), {}, {}, 2 * 4 * 6 * 8 * 10),
    ("einsum", ((2, 6, 8), (8, 4, 3)), {"spec": "bsd,dhe->bhse"}, {"h": 1}, 2 * 2 * 6 * 8 * 1 * 3),
    ("einsum", ((2, 6),), {"spec": "ij->ji"}, {}, 0),
    ("rearrange", ((2, 6, 12),), {"spec": "b s (h e) -> b h s e", "h": 4}, {}, 0),
    ("conv2d", ((4, 3, 8, 8), (5, 3, 3, 3)), {"pad": 1}, {}, 2 * 4 * 5 * 8 * 8 * 3 * 3 * 3),
    (
        "conv2d_input_grad",
        ((4, 5, 8, 8), (5, 3, 3, 3)),
        {"height": 8, "width": 8, "pad": 1},
        {},
        2 * 4 * 5 * 8 * 8 * 3 * 3 * 3,
    ),
    ("conv2d", ((4, 6, 8, 8), (9, 2, 3, 3)), {"groups": 3}, {}, 4 * 9 * 2 * 3 * 3 * 6 * 6 * 2),
    ("conv2d", ((4, 6, 8, 8), (9, 2, 3, 3)), {"groups": 3}, {"groups": 2}, 4 * 6 * 2 * 3 * 3 * 6 * 6 * 2),
    # Each pixel under one kernel.
    (
        "conv_transpose2d",
        ((4, 3, 8, 8), (3, 5, 2, 2)),
        {"stride": 2},
        {},
        4 * 5 * 16 * 16 * 3 * 2,
    ),
    ("add", ((4, 6), (6,)), {}, {}, 24),
    ("add", ((4, 1), (1, 6)), {}, {}, 24),
    ("sum", ((4, 6),), {"dims": 0}, {}, 24),
    ("sum", ((4, 6),), {"dims": [0, 1]}, {"k.1": 2}, 12),
    ("attention", ((2, 4, 6, 8), (2, 4, 7, 8), (2, 4, 7, 5)), {}, {}, 2 * 2 * 4 * 6 * 7 * (8 + 5) + 5 * 2 * 4 * 6 * 7),
    ("max_pool2d", (IMAGES,), {}, {}, 4 * 3 * 4 * 4 * 4),
    ("adam", ((4, 6),) * 4, {}, {}, 12 * 24),
    ("transpose", ((4, 6),), {"perm": [1, 0]}, {}, 0),
]


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "lengths", "expected"), FLOPS, ids=[f"{k}-{r[0]}" for k, r in enumerate(FLOPS)]
)
def test_flops(
    op: str, shapes: tuple[Any, ...], attributes: dict[str, Any], lengths: dict[str, int], expected: float
) -> None:
    assert call(op, *shapes, **attributes).flops(lengths) == expected


@pytest.mark.parametrize("count", ["flops by", "reads x = by", 'flops "many"', "flops [i, i]"])
def test_a_count_is_a_number(count: str) -> None:
    made = call(declared(f"op f(x[i], attr by) -> y[i] {{ {count} }}"), (4,), by="x")
    with pytest.raises(HapError) as stop:
        made.flops({})
        made.reads({})
    assert [d.code for d in stop.value.diagnostics] == ["HAP202"]


def test_flops_of_several_devices_at_once() -> None:
    found = call("matmul", (6, 8), (8, 10)).flops({"m": np.array([3, 2, 1, 0])})
    assert found.tolist() == [480, 320, 160, 0]


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "expected"),
    [
        ("slice", ((4, 6, 5),), {"dim": 1, "start": 2, "stop": 4}, {0: 4 * 2 * 5}),
        ("lower_triangle", ((3, 6, 6),), {}, {0: 3 * (5 + 4 + 3 + 2 + 1)}),
        ("pick", ((4, 6), ((4,), I64)), {}, {0: 4}),
        ("embedding", (((4, 3), I64), (10, 8)), {}, {1: 4 * 3 * 8}),
        ("embedding_bag", (((4, 3), I64), (10, 8)), {}, {1: 4 * 3 * 8}),
        ("matmul", ((4, 6), (6, 8)), {}, {}),
    ],
)
def test_what_takes_a_part_of_an_operand_reads_no_more(
    op: str, shapes: tuple[Any, ...], attributes: dict[str, Any], expected: dict[int, int]
) -> None:
    """Elements read, by operand; of all others every element is read."""
    assert call(op, *shapes, **attributes).reads({}) == expected


LOOKED_UP = {("embedding", "v"), ("embedding_grad", "v"), ("embedding_bag", "v"), ("pick", "c")}


def test_sharded_work_adds_up() -> None:
    """Whatever index is cut, the pieces' FLOPs add up to the whole's: every op, on one of its own rules. Who holds a part of what is
    looked up looks for everything."""
    for name, shapes, attributes, _ in SHAPES:
        made = call(name, *shapes, **attributes)
        whole = made.flops({})
        for index in made.indices:
            if index.isdigit() or made.extents[index] < 2 or index in made.wholes or made.majors(index) is None:
                continue
            parts = sum(made.flops({index: n}) for n in (made.extents[index] - 1, 1))
            repeats = 2 if (name, index) in LOOKED_UP else 1
            assert parts == pytest.approx(repeats * whole) or whole == 0, (name, index)


def test_every_operator_says_what_it_costs() -> None:
    free = {n for n, d in standard().items() if d.flops is None and d.notation is None}
    # detach is no call of any graph, the others move alone
    assert free == {"detach", "transpose", "concat", "slice", "unslice"}


def test_operands_are_passed_by_declaration() -> None:
    add = standard()["add"]
    made = instantiate(add, [Given("a", (4,), "f32"), Given("b", (4,), "f32")], {})
    assert made.decl is add and made.linear == ((0, 1),)


def test_a_size_that_an_operand_contradicts() -> None:
    three = declared("op three(x[n]) -> y[n] {\n    size n = 3\n    flops n\n}")
    assert call(three, (3,)).result_shapes == ((3,),)
    with pytest.raises(HapError, match="index n would have extent 3, but an operand has 4") as stop:
        call(three, (4,))
    assert stop.value.diagnostics[0].code == "HAP302"


def test_an_operand_that_is_left_out_is_no_partial_sum() -> None:
    """Of two groups of operands that may be partial sums, the one that isn't there gives no rule."""
    text = "op mix(x[*i], b[*i]?) -> y[*i] {\n    linear x\n    linear b\n    flops i\n}"
    assert shown(call(declared(text), (4,), (4,))) == {"S(0),S(0)->S(0)", "P,R->P", "R,P->P"}
    assert shown(call(declared(text), (4,))) == {"S(0)->S(0)", "P->P"}
