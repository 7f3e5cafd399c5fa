"""Uneven shares: pieces that fit together again, means over the global count, whole units, remainders dealt fairly.

Elsewhere: shards of 2, 3, 4 and 5 columns were accepted and gathered into something else; the mean of unequal shards was the
unweighted mean of their means; a gather needed equal sizes; a round trip made a tensor longer; heads that don't divide by the
number of devices weren't allowed; the remainders of all tensors went to the same low ranks.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hapdsl.check.layout import largest_remainder
from tests.cases.helpers import case, run, same

MOVED = """
model m() {{
    input x : f32[{shape}]
    y = scale(x, by = 2)
    output y
}}
program p for m {{
    shares x.{dim} = {shares}
    forward {{
        x@S({dim}) = input()
        x@R = all_gather(x@S({dim}), method = {method})
        y@R = scale(x@R)
        y@S({dim}) = slice(y@R)
        y@R = all_gather(y@S({dim}), method = {method})
    }}
}}
"""


@pytest.mark.parametrize("method", ["padded", "grouped"])
@pytest.mark.parametrize(
    ("shape", "dim", "shares"),
    [
        ("2, 14", 1, [2, 3, 4, 5]),
        ("6, 3", 0, [1, 2, 3]),
        ("2, 14", 1, [14, 0, 0, 0]),
        ("2, 14", 1, [0, 0, 0, 14]),
        ("2, 3", 0, [1, 0, 1, 0]),
    ],
)
def test_gathering_gives_the_tensor_back(shape: str, dim: int, shares: list[int], method: str) -> None:
    ran = run(MOVED.format(shape=shape, dim=dim, shares=shares, method=method))
    pieces = ran.locals("x", f"S{dim}")
    assert [p.shape[dim] for p in pieces] == shares
    for held in ran.locals("x", "R"):
        assert torch.equal(held, ran.whole["x"])
    assert torch.equal(ran["y"], 2 * ran.whole["x"])


@pytest.mark.parametrize("length", range(2, 18))
def test_round_trips_of_every_length(length: int) -> None:
    """Even shares of a length that doesn't divide."""
    shares = [length // 4 + (k < length % 4) for k in range(4)]
    ran = run(MOVED.format(shape=f"3, {length}", dim=1, shares=shares, method="padded"))
    assert ran["x"].shape == (3, length)
    assert torch.equal(ran["x"], ran.whole["x"])


def test_a_length_of_one_is_never_cut() -> None:
    text = MOVED.format(shape="3, 1", dim=1, shares=[1, 0, 0, 0], method="padded")
    assert case(text).codes[0] == ("HAP503", 7), "there is no class to cut"
    assert ("HAP522", 9) in case(text.replace("shares x.1", "shares x.0").replace("[1, 0, 0, 0]", "[3, 0, 0, 0]")).codes


@pytest.mark.parametrize("ratio", ["[0.6, 0.4]", "[3, 2]", "[0.999, 0.001]", "[1, 0]"])
def test_a_mean_is_over_the_global_count(ratio: str) -> None:
    ran = run(f"""
model m(batch = 10, d = 3) {{
    input x : f32[batch, d]
    y = mean(x, dims = [0, 1])
    output y
}}
program p for m {{
    ratio batch = {ratio}
    forward {{
        x@S(0) = input()
        y@P = mean(x@S(0))
        y@R = all_reduce(y@P)
    }}
}}
""")
    assert same(ran["y"], ran.whole["x"].mean())


HEADS = """
model m(batch = 2, heads = {heads}, e = 4) {{
    input x : f32[batch, heads * e]
    param w : f32[heads * e, heads * e]
    q = matmul(x, w)
    y = rearrange(q, "b (h e) -> b h e", h = heads)
    output y
}}
program p for m {{
    {written}
    forward {{
        x@R = input()
        w@S(1) = param()
        q@S(1) = matmul(x@R, w@S(1))
        y@S(1) = rearrange(q@S(1))
    }}
}}
"""


@pytest.mark.parametrize(("heads", "dealt"), [(40, [20, 10, 10]), (7, [3, 2, 2]), (3, [1, 1, 1]), (2, [1, 1, 0])])
def test_whole_heads_only(heads: int, dealt: list[int]) -> None:
    ran = run(HEADS.format(heads=heads, written="ratio q.1 = [2, 1, 1]"))
    assert [local.shape[1] for local in ran.locals("y", "S1")] == dealt
    assert [local.shape[1] for local in ran.locals("q", "S1")] == [4 * n for n in dealt]
    expected = (ran.whole["x"] @ ran.whole["w"]).reshape(2, heads, 4)
    assert same(ran["y"], expected)


def test_shares_count_heads_and_not_features() -> None:
    found = case(HEADS.format(heads=40, written="shares q.1 = [80, 40, 40]"))
    assert found.codes == [("HAP505", 9)] and "[20, 10, 10]" in found.helps


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=9).filter(lambda w: sum(w) > 1e-3), st.integers(1, 10_000))
def test_each_share_is_within_one_unit_of_its_weight(weights: list[float], units: int) -> None:
    shares = largest_remainder(weights, units)
    exact = np.array(weights) / sum(weights) * units
    assert shares.sum() == units and (shares >= 0).all()
    assert (np.abs(shares - exact) < 1 + 1e-6).all()


@given(st.lists(st.integers(0, 50), min_size=2, max_size=6).filter(any), st.integers(1, 500))
def test_remainders_follow_the_remainders_and_not_the_ranks(weights: list[int], units: int) -> None:
    """Devices in another order get the same shares, but for equal weights."""
    shares = largest_remainder(weights, units)
    order = np.argsort(weights, kind="stable")[::-1]
    shuffled = largest_remainder([weights[k] for k in order], units)
    by_weight: dict[int, list[int]] = {}
    for k, n in enumerate(shares):
        by_weight.setdefault(weights[k], []).append(int(n))
    for place, k in enumerate(order):
        by_weight[weights[k]].remove(int(shuffled[place]))
    assert not any(by_weight.values())
