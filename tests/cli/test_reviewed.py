"""What a sceptical reader once got past the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.texts import TINY

BAD = """
op bad(x[*i]) -> y[*i] {
    linear x
    flops i
    torch "torch.exp"
}
"""
USES = """
import "ops.hap"
model m(batch = 8, d = 8) {
    input x  : f32[batch, d]
    frozen w : f32[d, d]
    y = matmul(x, w)
    z = bad(y)
    output z
}
"""


@pytest.mark.parametrize(("verb", "option"), [("plan", "--gap"), ("plan", "--time-limit"), ("run", "--timeout")])
def test_nan_is_no_number(hapdsl: Run, model: Path, verb: str, option: str) -> None:
    found = hapdsl(verb, model, option, "nan", "--json")
    assert found.status == 2
    assert found.object["diagnostics"][0]["code"] == "HAP850"


def test_a_plan_never_takes_the_place_of_its_model(hapdsl: Run, model: Path) -> None:
    before = model.read_bytes()
    found = hapdsl("plan", model, "-o", model, "--json")
    assert (found.status, found.object["diagnostics"][0]["code"]) == (2, "HAP852")
    assert model.read_bytes() == before


def test_imported_operators_are_tried(hapdsl: Run, tmp_path: Path) -> None:
    (tmp_path / "ops.hap").write_text(BAD, encoding="utf-8")
    (tmp_path / "uses.hap").write_text(USES, encoding="utf-8")
    found = hapdsl("check", tmp_path / "uses.hap", "--json")
    assert found.status != 0
    assert "HAP730" in [d["code"] for d in found.object["diagnostics"]]


def test_a_function_that_torch_lacks_is_an_error(hapdsl: Run, tmp_path: Path) -> None:
    file = tmp_path / "ops.hap"
    file.write_text(BAD.replace("torch.exp", "torch.nosuch"), encoding="utf-8")
    found = hapdsl("check", file, "--json")
    assert found.status == 2
    assert [d["code"] for d in found.object["diagnostics"] if d["severity"] == "error"] == ["HAP700"]


def test_nothing_compared_is_not_called_equal(hapdsl: Run, tmp_path: Path) -> None:
    program = """
    program p for forward on pair {
        forward {
            x@R = input()
            y@R = relu(x@R)
        }
    }
    model forward(batch = 4) {
        input x : f32[batch]
        y = relu(x)
        output y
    }
    """
    file = tmp_path / "forward.hap"
    file.write_text(TINY + program, encoding="utf-8")
    found = hapdsl("run", file, "--steps", "1", "--reference", "--json")
    assert found.status == 0
    assert (found.object["loss_diff"], found.object["param_diff"]) == (None, None)


def test_operators_are_tried_with_the_attributes_in_use(hapdsl: Run, tmp_path: Path) -> None:
    """With its default the operator is linear; as the model calls it, it isn't."""
    op = BAD.replace("op bad(x[*i])", "op bad(x[*i], attr by = 0)").replace("torch.exp", "hapdsl.shift")
    file = tmp_path / "uses.hap"
    file.write_text(op + USES.replace('import "ops.hap"', "").replace("bad(y)", "bad(y, by = 1)"), encoding="utf-8")
    found = hapdsl("check", file, "--json")
    assert "HAP730" in [d["code"] for d in found.object["diagnostics"]]
