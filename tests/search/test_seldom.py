"""What seldom stands in a sketch: a dtype that messages are sent in, and conversions of which only one side is said."""

from __future__ import annotations

import pytest

from hapdsl.lang.diagnostics import HapError
from hapdsl.search.complete import complete
from hapdsl.workbench import Workbench
from tests.texts import TINY

SKETCH = (
    "program mine for tiny on pair {{\n    shares batch = [12, 4]\n    backward {{\n        {}\n    }}\n    ...\n}}\n"
)


def completed(*lines: str, text: str = TINY) -> list[str]:
    """The collectives of the completed program, as `name of the operator, tensor, source -> target`."""
    bench = Workbench("t.hap", text + SKETCH.format("\n        ".join(lines)))
    tree = bench.program()
    checked = bench.checked(tree)
    assert checked.ok, list(checked.diagnostics)
    found = complete(checked, tree, bench.cluster("pair"))
    return [
        f"{i.op} {a.tensor} {a.placement[0]} -> {b.placement[0]}"
        for i in found.program.instructions
        if i.node is None and i.inputs
        for a, b in zip(i.inputs, i.outputs, strict=True)
    ]


def test_the_search_sends_floats_as_they_are() -> None:
    with pytest.raises(HapError, match="the search sends floats as they are") as stop:
        completed("w2.grad@R = all_reduce(w2.grad@P, dtype = bf16)")
    assert stop.value.diagnostics[0].code == "HAP605" and stop.value.status == 1


def test_one_side_of_a_conversion_may_be_left_open() -> None:
    """The operator says of which kind it is: what is left open is filled in, and the line stands."""
    assert "all_reduce w1.grad P -> R" in completed("w1.grad@? = all_reduce(w1.grad@P)")
    bias = TINY.replace(
        "[hidden, classes] init normal(std = 0.5)",
        "[hidden, classes] init normal(std = 0.5)\n    param b : f32[classes]",
    )
    text = bias.replace("z = matmul(h, w2)", "v = matmul(h, w2)\n    z = add(v, b)")
    found = completed("b.grad@? = reduce_scatter(b.grad@P)", text=text)
    assert "reduce_scatter b.grad P -> S(0)" in found, found


def test_shards_of_which_dim_must_be_said() -> None:
    """A line isn't passed over in silence."""
    with pytest.raises(HapError, match=r"`\?` of 'w2.grad' may be S\(0\) or S\(1\) here") as stop:
        completed("w2.grad@? = reduce_scatter(w2.grad@P)")
    assert stop.value.diagnostics[0].code == "HAP605"


def test_the_operand_of_a_conversion_may_be_left_open() -> None:
    """The tensor is known, and of which kind its placement is; what comes of it is made by this operator."""
    assert "all_reduce w1.grad P -> R" in completed("w1.grad@R = all_reduce(?)")
    found = completed("w1.grad@R, w2.grad@R = all_reduce(?, w2.grad@P)")
    assert {"all_reduce w1.grad P -> R", "all_reduce w2.grad P -> R"} <= set(found)
    assert "slice w2.grad R -> S(0)" in completed("w2.grad@S(0) = slice(?)")
    with pytest.raises(HapError, match=r"`\?` of 'w2.grad' may be S\(0\) or S\(1\) here"):
        completed("w2.grad@R = all_gather(?)")
