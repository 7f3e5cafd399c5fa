"""Two repeats in a row: what the first leaves is what the second begins with, and both are printed as repeats."""

from __future__ import annotations

import torch

from hapdsl.check.write import write
from hapdsl.lang.print import to_text
from tests.check.random_programs import random_program
from tests.graph.helpers import graph_of
from tests.programs.helpers import compare, replicated, reread

# The first begins with an input, the second with what the first leaves, the third stands within a fourth.
MODEL = """
def layer(x, d) {
    param w : f32[d, d] init normal(std = 0.3)
    return tanh(matmul(x, w))
}
model m(batch = 6, d = 5, few = 3, more = 4) {
    input rows, wanted : f32[batch, d]
    x = rows
    repeat first in few { x = layer(x, d) }
    repeat second in more { x = add(x, layer(x, d)) }
    repeat outer in 2 {
        repeat inner in few { x = layer(x, d) }
    }
    loss = mse_loss(x, wanted)
    train loss with adam(lr = 0.1) clip 1.0
}"""


def test_each_is_printed_once() -> None:
    texts = {}
    for few, more in ((3, 4), (4, 6)):
        program = replicated(graph_of(MODEL, few=few, more=more))
        text = to_text(write(program))
        assert to_text(write(reread(program))) == text
        forward = text[text.index("    forward {") : text.index("    backward {")]
        assert f"repeat first in 0..{few} {{" in forward and f"repeat second in 0..{more} {{" in forward
        assert "first.0" not in forward and "second.0" not in forward
        texts[few] = text.replace(f"0..{few}", "0..few").replace(f"1..{few}", "1..few").replace(f"0..{more}", "0..more")
    assert len(texts[3].splitlines()) == len(texts[4].splitlines())


def test_what_is_read_back_is_what_was_written() -> None:
    graph = graph_of(MODEL)
    compare(reread(random_program(graph, (("devices", 3),), 0)), graph, torch.float64, 1e-9, count=1)
