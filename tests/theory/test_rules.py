"""Which placements each operator takes to which: expectations from the mathematics, written by hand.

`S(0),R->S(0)` reads: the first operand sharded on dim 0 and the second replicated give a result sharded on dim 0. The lists
are complete: any other rule would be wrong, any missing one a program that can't be written.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.theory.helpers import call, declared, shown

I64 = "i64"

# (operator, shapes, attributes, all rules but the replicated one)
RULES: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    # products: a shared index that vanishes gives partial sums, and each factor may itself be partial
    ("matmul", ((4, 6, 8), (8, 10)), {}, "S(0),R->S(0) S(1),R->S(1) S(2),S(0)->P R,S(1)->S(2) P,R->P R,P->P"),
    ("matmul", ((1, 8), (8, 1)), {}, "S(1),S(0)->P P,R->P R,P->P"),
    ("matmul_nt", ((6, 8), (10, 8)), {}, "S(0),R->S(0) S(1),S(1)->P R,S(0)->S(1) P,R->P R,P->P"),
    ("matmul_tn", ((4, 6, 8), (4, 6, 10)), {}, "S(0),S(0)->P S(1),S(1)->P S(2),R->S(0) R,S(2)->S(1) P,R->P R,P->P"),
    ("bmm", ((4, 6, 8), (4, 8, 10)), {}, "S(0),S(0)->S(0) S(1),R->S(1) S(2),S(1)->P R,S(2)->S(2) P,R->P R,P->P"),
    ("bmm_nt", ((4, 6, 8), (4, 10, 8)), {}, "S(0),S(0)->S(0) S(1),R->S(1) S(2),S(2)->P R,S(1)->S(2) P,R->P R,P->P"),
    ("bmm_tn", ((4, 8, 6), (4, 8, 10)), {}, "S(0),S(0)->S(0) S(1),S(1)->P S(2),R->S(1) R,S(2)->S(2) P,R->P R,P->P"),
    (
        "einsum", ((2, 6, 8), (8, 4, 3)), {"spec": "bsd,dhe->bhse"},
        "S(0),R->S(0) S(1),R->S(2) S(2),S(0)->P R,S(1)->S(1) R,S(2)->S(3) P,R->P R,P->P",
    ),
    (
        "einsum", ((4, 6), (6, 5), (5,)), {"spec": "ij,jk,k->i"},
        "S(0),R,R->S(0) S(1),S(0),R->P R,S(1),S(0)->P P,R,R->P R,P,R->P R,R,P->P",
    ),
    ("conv2d", ((4, 3, 8, 8), (6, 3, 3, 3)), {}, "S(0),R->S(0) S(1),S(1)->P R,S(0)->S(1) P,R->P R,P->P"),
    (
        "conv2d_input_grad", ((4, 6, 6, 6), (6, 3, 3, 3)), {"height": 8, "width": 8},
        "S(0),R->S(0) S(1),S(0)->P R,S(1)->S(1) P,R->P R,P->P",
    ),
    (
        "conv2d_weight_grad", ((4, 3, 8, 8), (4, 6, 6, 6)), {"kernel_height": 3, "kernel_width": 3},
        "S(0),S(0)->P S(1),R->S(1) R,S(1)->S(0) P,R->P R,P->P",
    ),
    # of one group, channels are cut apart; of several, both kinds go together
    ("conv2d", ((4, 6, 8, 8), (9, 2, 3, 3)), {"groups": 3}, "S(0),R->S(0) S(1),S(0)->S(1) P,R->P R,P->P"),
    ("conv2d", ((4, 6, 8, 8), (6, 1, 3, 3)), {"groups": 6}, "S(0),R->S(0) S(1),S(0)->S(1) P,R->P R,P->P"),
    (
        "conv2d_weight_grad", ((4, 6, 8, 8), (4, 9, 6, 6)), {"kernel_height": 3, "kernel_width": 3, "groups": 3},
        "S(0),S(0)->P S(1),S(1)->S(0) P,R->P R,P->P",
    ),
    ("conv_transpose2d", ((4, 3, 8, 8), (3, 6, 2, 2)), {"stride": 2}, "S(0),R->S(0) S(1),S(0)->P R,S(1)->S(1) P,R->P R,P->P"),
    ("conv_transpose2d", ((4, 6, 8, 8), (6, 3, 2, 2)), {"groups": 2}, "S(0),R->S(0) S(1),S(0)->S(1) P,R->P R,P->P"),
    # elementwise: any dim of all operands; partial sums only where the function is linear
    ("add", ((4, 6), (4, 6)), {}, "S(0),S(0)->S(0) S(1),S(1)->S(1) P,P->P"),
    ("add", ((4, 6), (6,)), {}, "S(0),R->S(0) S(1),S(0)->S(1) P,P->P"),
    ("add", ((4, 1), (1, 6)), {}, "S(0),R->S(0) R,S(1)->S(1) P,P->P"),
    ("sub", ((4,), (4,)), {}, "S(0),S(0)->S(0) P,P->P"),
    ("mul", ((4, 6), (4, 1)), {}, "S(0),S(0)->S(0) S(1),R->S(1) P,R->P R,P->P"),
    ("div", ((4,), (4,)), {}, "S(0),S(0)->S(0) P,R->P"),
    ("neg", ((4,),), {}, "S(0)->S(0) P->P"),
    ("scale", ((4,),), {"by": 0.5}, "S(0)->S(0) P->P"),
    ("shift", ((4,),), {"by": 1.0}, "S(0)->S(0)"),
    ("exp", ((4,),), {}, "S(0)->S(0)"),
    ("relu", ((4, 6),), {}, "S(0)->S(0) S(1)->S(1)"),
    ("relu_grad", ((4,), (4,)), {}, "S(0),S(0)->S(0) R,P->P"),
    ("gelu", ((4,),), {}, "S(0)->S(0)"),
    ("gelu_tanh", ((4,),), {}, "S(0)->S(0)"),
    ("gelu_tanh_grad", ((4,), (4,)), {}, "S(0),S(0)->S(0) R,P->P"),
    ("gelu_grad", ((4,), (4,)), {}, "S(0),S(0)->S(0) R,P->P"),
    ("dropout", ((4, 6),), {"key": "h"}, "S(0)->S(0) S(1)->S(1) P->P"),
    ("drop_path", ((4, 6),), {"key": "h"}, "S(0)->S(0) S(1)->S(1) P->P"),
    ("cast", ((4,),), {"to": "f64"}, "S(0)->S(0) P->P"),
    # reductions
    ("sum", ((4, 6, 8),), {"dims": [0, 2]}, "S(0)->P S(1)->S(0) S(2)->P P->P"),
    ("sum", ((4, 6, 8),), {"dims": -1}, "S(0)->S(0) S(1)->S(1) S(2)->P P->P"),
    ("mean", ((4, 6),), {"dims": 0}, "S(0)->P S(1)->S(0) P->P"),
    ("spread", ((6,),), {"dims": [0, 2], "sizes": [4, 8]}, "S(0)->S(1) R->S(0) R->S(2) P->P"),
    ("max", ((4, 6),), {"dims": 1}, "S(0)->S(0)"),
    ("max_grad", ((4, 6), (4,), (4,)), {"dims": 1}, "S(0),S(0),S(0)->S(0) R,R,P->P"),
    ("softmax", ((4, 6),), {}, "S(0)->S(0)"),
    ("softmax_grad", ((4, 6), (4, 6)), {}, "S(0),S(0)->S(0) R,P->P"),
    ("logsumexp", ((2, 4, 6),), {}, "S(0)->S(0) S(1)->S(1)"),
    ("logsumexp_grad", ((4, 6), (4,), (4,)), {}, "S(0),S(0),S(0)->S(0) S(1),R,R->S(1) R,R,P->P"),
    ("pick", ((4, 6), ((4,), I64)), {}, "S(0),S(0)->S(0) S(1),R->P P,R->P"),
    ("pick_grad", (((4,), I64), (4,)), {"size": 6}, "S(0),S(0)->S(0) R,R->S(1) R,P->P"),
    ("log_softmax", ((2, 4, 6),), {}, "S(0)->S(0) S(1)->S(1)"),
    ("layer_norm", ((4, 6, 8), (8,), (8,)), {}, "S(0),R,R->S(0) S(1),R,R->S(1)"),
    ("layer_norm_grad", ((4, 8), (8,), (4, 8)), {}, "S(0),R,S(0)->S(0),P,P R,R,P->P,P,P"),
    ("rms_norm", ((4, 6, 8), (8,)), {}, "S(0),R->S(0) S(1),R->S(1)"),
    ("rms_norm_grad", ((4, 8), (8,), (4, 8)), {}, "S(0),R,S(0)->S(0),P R,R,P->P,P"),
    ("cross_entropy", ((4, 10), ((4,), I64)), {}, "S(0),S(0)->P"),
    ("cross_entropy", ((4, 6, 10), ((4, 6), I64), ()), {}, "S(0),S(0),R->P S(1),S(1),R->P"),
    ("cross_entropy_grad", ((4, 10), ((4,), I64), ()), {}, "S(0),S(0),R->S(0) R,R,P->P"),
    ("count_labels", (((4, 6), I64),), {"to": "f32"}, "S(0)->P S(1)->P"),
    ("mse_loss", ((4, 6), (4, 6)), {}, "S(0),S(0)->P S(1),S(1)->P"),
    ("binary_cross_entropy_with_logits", ((4, 6), (4, 6)), {}, "S(0),S(0)->P S(1),S(1)->P"),
    ("binary_cross_entropy_with_logits_grad", ((4, 6), (4, 6), ()), {}, "S(0),S(0),R->S(0) S(1),S(1),R->S(1) R,R,P->P"),
    ("accuracy", ((4, 10), ((4,), I64)), {}, "S(0),S(0)->P"),
    # routing: a token's slot depends on all tokens before it and on all experts
    ("top_k_gate", ((4, 6, 5),), {"capacity": 2}, "S(0)->S(0),S(0)"),
    ("top_k_gate_grad", ((4, 6, 5), (4, 6, 5, 2)), {}, "S(0),S(0)->S(0) R,P->P"),
    ("top_k_count", ((4, 6, 5),), {}, "S(0)->S(0) S(1)->P"),
    # moving elements: linear, except that causal_mask puts -inf somewhere
    ("embedding", (((4, 6), I64), (10, 8)), {}, "S(0),R->S(0) S(1),R->S(1) R,S(1)->S(2) R,S(0)->P R,P->P"),
    ("embedding_grad", (((4, 6), I64), (4, 6, 8)), {"rows": 10}, "S(0),S(0)->P S(1),S(1)->P R,S(2)->S(1) R,R->S(0) R,P->P"),
    ("embedding_bag", (((4, 6), I64), (10, 8)), {}, "S(0),R->S(0) S(1),R->P R,S(1)->S(1) R,S(0)->P R,P->P"),
    ("embedding_bag_grad", (((4, 6), I64), (4, 8)), {"rows": 10}, "S(0),S(0)->P S(1),R->P R,S(1)->S(1) R,R->S(0) R,P->P"),
    ("lower_triangle", ((4, 5, 5),), {}, "S(0)->S(0) P->P"),
    ("transpose", ((4, 6, 8),), {"perm": [2, 0, 1]}, "S(0)->S(1) S(1)->S(2) S(2)->S(0) P->P"),
    ("concat", ((4, 3), (4, 5)), {"dim": 1}, "S(0),S(0)->S(0) P,P->P"),
    ("concat", ((2, 3, 4), (2, 5, 4), (2, 6, 4)), {"dim": -2}, "S(0),S(0),S(0)->S(0) S(2),S(2),S(2)->S(2) P,P,P->P"),
    ("slice", ((4, 6, 8),), {"dim": 1, "start": 2, "stop": 5}, "S(0)->S(0) S(2)->S(2) P->P"),
    ("unslice", ((4, 3),), {"dim": 1, "start": 2, "size": 6}, "S(0)->S(0) P->P"),
    ("rearrange", ((2, 6, 12),), {"spec": "b s (h e) -> b h s e", "h": 4}, "S(0)->S(0) S(1)->S(2) S(2)->S(1) P->P"),
    ("rearrange", ((2, 4, 6, 3),), {"spec": "b h s e -> b s (h e)"}, "S(0)->S(0) S(1)->S(2) S(2)->S(1) P->P"),
    ("reshape", ((12, 8),), {"shape": [16, 6]}, "S(0)->S(0) P->P"),
    ("reshape", ((5, 7),), {"shape": [7, 5]}, "P->P"),
    ("max_pool2d", ((4, 3, 8, 8),), {}, "S(0)->S(0) S(1)->S(1)"),
    ("max_pool2d_grad", ((4, 3, 8, 8), (4, 3, 4, 4)), {}, "S(0),S(0)->S(0) S(1),S(1)->S(1) R,P->P"),
    ("adaptive_avg_pool2d", ((4, 3, 8, 8),), {"size": 2}, "S(0)->S(0) S(1)->S(1) P->P"),
    ("avg_pool2d", ((4, 3, 8, 8),), {}, "S(0)->S(0) S(1)->S(1) P->P"),
    ("upsample_nearest2d", ((4, 3, 5, 6),), {}, "S(0)->S(0) S(1)->S(1) S(2)->S(2) S(3)->S(3) P->P"),
    ("upsample_nearest2d", ((4, 3, 1, 6),), {}, "S(0)->S(0) S(1)->S(1) S(3)->S(3) P->P"),
    # statistics of a batch: partial sums where the batch is cut; what they make of x is cut anywhere
    ("batch_norm_stats", ((4, 3, 5),), {}, "S(0)->P,P S(1)->S(0),S(0) S(2)->P,P"),
    ("batch_norm_stats_grad", ((4, 3), (3,), (3,)), {}, "S(0),R,R->S(0) S(1),S(0),S(0)->S(1) R,P,P->P"),
    ("batch_norm", ((4, 3), (3,), (3,), (3,), (3,)), {}, "S(0),R,R,R,R->S(0) S(1),S(0),S(0),S(0),S(0)->S(1)"),
    (
        "batch_norm_grad", ((4, 3), (3,), (3,), (3,), (4, 3)), {},
        "S(0),R,R,R,S(0)->S(0),P,P,P,P S(1),S(0),S(0),S(0),S(1)->S(1),S(0),S(0),S(0),S(0) R,R,R,R,P->P,P,P,P,P",
    ),
    ("group_norm", ((4, 6, 5), (6,), (6,)), {"groups": 3}, "S(0),R,R->S(0) S(1),S(0),S(0)->S(1)"),
    ("group_norm", ((4, 6, 5), (6,), (6,)), {}, "S(0),R,R->S(0)"),
    ("group_norm_grad", ((4, 6), (6,), (4, 6)), {"groups": 3}, "S(0),R,S(0)->S(0),P,P S(1),S(0),S(1)->S(1),S(0),S(0) R,R,P->P,P,P"),
    # attention mixes positions, never sequences or heads; each query has its own result; it is linear in the values alone
    ("attention", ((2, 4, 6, 8),) * 3, {}, "S(0),S(0),S(0)->S(0) S(1),S(1),S(1)->S(1) S(2),R,R->S(2) R,R,P->P"),
    (
        "attention_grad", ((2, 4, 6, 8),) * 4, {},
        "S(0),S(0),S(0),S(0)->S(0),S(0),S(0) S(1),S(1),S(1),S(1)->S(1),S(1),S(1) S(2),R,R,S(2)->S(2),P,P R,R,R,P->P,P,P",
    ),
    # query heads that share keys are cut with them; where all share one head of keys, each device needs it whole
    ("attention", ((2, 4, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8)), {}, "S(0),S(0),S(0)->S(0) S(1),S(1),S(1)->S(1) S(2),R,R->S(2) R,R,P->P"),
    ("attention", ((2, 4, 6, 8), (2, 1, 6, 8), (2, 1, 6, 8)), {}, "S(0),S(0),S(0)->S(0) S(1),R,R->S(1) S(2),R,R->S(2) R,R,P->P"),
    (
        "attention_grad", ((2, 4, 6, 8), (2, 1, 6, 8), (2, 1, 6, 8), (2, 4, 6, 8)), {},
        "S(0),S(0),S(0),S(0)->S(0),S(0),S(0) S(1),R,R,S(1)->S(1),P,P S(2),R,R,S(2)->S(2),P,P R,R,R,P->P,P,P",
    ),
    (
        "attention", ((2, 4, 6, 8), (2, 4, 7, 8), (2, 4, 7, 8), ((2, 7), I64)), {},
        "S(0),S(0),S(0),S(0)->S(0) S(1),S(1),S(1),R->S(1) S(2),R,R,R->S(2) R,R,P,R->P",
    ),
    ("causal_mask", ((2, 4, 6, 6),), {}, "S(0)->S(0) S(1)->S(1) S(2)->S(2) S(3)->S(3)"),
    ("causal_mask_grad", ((2, 6, 6),), {}, "S(0)->S(0) S(1)->S(1) S(2)->S(2) P->P"),
    # the second half of the features turns with the first
    ("rotary", ((2, 4, 6, 8),), {}, "S(0)->S(0) S(1)->S(1) S(2)->S(2) P->P"),
    # updates: element by element, never on partial gradients (Adam squares them, decay would count once per device)
    ("sgd", ((4, 6), (4, 6)), {}, "S(0),S(0)->S(0) S(1),S(1)->S(1)"),
    ("momentum", ((4,), (4,), (4,)), {}, "S(0),S(0),S(0)->S(0),S(0)"),
    ("adam", ((4,), (4,), (4,), (4,)), {}, "S(0),S(0),S(0),S(0)->S(0),S(0),S(0)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "expected"), RULES, ids=[f"{k}-{r[0]}" for k, r in enumerate(RULES)]
)
def test_all_rules(op: str, shapes: tuple[Any, ...], attributes: dict[str, Any], expected: str) -> None:
    assert shown(call(op, *shapes, **attributes)) == set(expected.split())


def test_row_sharded_linear_with_bias() -> None:
    """slapo #10: a bias added to partial sums would count once per device, so P + R has no rule."""
    found = shown(call("add", (4, 6), (6,)))
    assert "P,R->P" not in found and "P,P->P" in found


def test_view_across_a_sharded_dim() -> None:
    """pytorch #179502: (12, 8) sharded on dim 1 can't be seen as (16, 6)."""
    found = shown(call("reshape", (12, 8), shape=[16, 6]))
    assert not any(r.startswith("S(1)->") for r in found)


def test_an_index_that_vanishes_without_sum_stays_whole() -> None:
    largest = declared("op top(x[*i, j]) -> y[*i] { flops i * j }")
    assert shown(call(largest, (4, 6))) == {"S(0)->S(0)"}


def test_an_index_twice_in_one_tensor_stays_whole() -> None:
    diagonal = declared("op outer(x[i]) -> y[i, i] { linear x }")
    assert shown(call(diagonal, (4,))) == {"P->P"}


def test_only_some_outputs_lack_an_index() -> None:
    both = declared("op both(x[i, j]) -> y[i, j], t[j] { sum i }")
    assert shown(call(both, (4, 6))) == {"S(0)->S(0),P", "S(1)->S(1),S(0)"}


def test_a_merged_dim_of_one_major_unit_is_cut_on_the_next_index() -> None:
    """One head of twelve is a dim of twelve."""
    split = declared("op split_heads(x[*i, (h e)], attr h) -> y[*i, h, e] { linear x }")
    assert shown(call(split, (5, 12), h=1)) == {"S(0)->S(0)", "S(1)->S(2)", "P->P"}
    assert shown(call("rearrange", (5, 12), spec="b (h e) -> (h b) e", h=1)) == {"S(0)->S(0)", "S(1)->S(1)", "P->P"}


def test_a_merged_dim_is_cut_on_its_major_index_alone() -> None:
    split = declared("op split_heads(x[*i, (h e)], attr h) -> y[*i, h, e] { linear x }")
    assert shown(call(split, (5, 12), h=4)) == {"S(0)->S(0)", "S(1)->S(1)", "P->P"}
