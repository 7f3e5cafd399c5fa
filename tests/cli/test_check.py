"""`hapdsl check`: answers, exit statuses, and the numbers behind --numeric."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hapdsl.run import numeric
from hapdsl.workbench import Workbench
from tests.cli.conftest import Run
from tests.texts import LAB, PROGRAM, PROGRAMS, REFERENCE, TINY, TINY_MODEL


def test_a_proven_program(hapdsl: Run, tiny: Path) -> None:
    found = hapdsl("check", tiny, "--json")
    assert (found.status, found.object["ok"], found.codes, found.err) == (0, True, [], "")
    spoken = hapdsl("check", tiny)
    assert spoken.status == 0
    assert "by_batch for tiny on pair, 15 instructions, proven" in spoken.out
    assert spoken.err == ""


def test_every_example_is_proven(hapdsl: Run) -> None:
    files = sorted(PROGRAMS.rglob("*.hap"))
    assert len(files) > 10
    found = hapdsl("check", *files, "--json")
    assert found.object["diagnostics"] == []
    assert found.status == 0


def test_the_reference_text(hapdsl: Run) -> None:
    found = hapdsl("check", REFERENCE, "--json")
    assert found.status == 0
    assert set(found.codes) == {"HAP317"}  # it writes two standard operators down again
    proven = "\n".join(found.object["proven"])
    assert "program mixed for mlp on box, 22 instructions, proven" in proven
    assert "program megatron for gpt on box, a sketch" in proven


# a wrong program: what is replaced by what, the code, the line of the file
WRONG = {
    "a gradient that isn't exchanged": (
        "w1.new@R = sgd(w1@R, w1.grad@R)",
        "w1.new@R = sgd(w1@R, w1.grad@P)",
        "HAP533",
        40,
    ),
    "a value that isn't there": ("h@S(0)      = relu(u@S(0))", "h@R         = relu(u@R)", "HAP562", 26),
    "an update left out": ("        w2.new@R = sgd(w2@R, w2.grad@R)\n", "", "HAP572", 24),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_is_answered_no(name: str, hapdsl: Run, tmp_path: Path) -> None:
    old, new, code, line = WRONG[name]
    assert old in PROGRAM
    path = tmp_path / "wrong.hap"
    path.write_text(TINY + PROGRAM.replace(old, new))
    found = hapdsl("check", path, "--json")
    assert found.status == 1
    assert found.object["ok"] is False
    shown = found.object["diagnostics"][0]
    assert (shown["code"], shown["line"]) == (code, line)
    assert shown["help"]
    spoken = hapdsl("check", path)
    assert spoken.status == 1
    assert f"{path}:{line}:" in spoken.err
    assert "^" in spoken.err


def test_a_wrong_name_beside_a_wrong_line_is_bad_input(hapdsl: Run, tmp_path: Path) -> None:
    path = tmp_path / "wrong.hap"
    text = PROGRAM.replace("sgd(w1@R, w1.grad@R)", "sgd(w1@R, w1.grad@P)").replace("shares batch", "shares bitch")
    path.write_text(TINY + text)
    assert hapdsl("check", path, "--json").status == 2


def test_a_forward_program_is_for_evaluation(hapdsl: Run, tmp_path: Path) -> None:
    path = tmp_path / "forward.hap"
    path.write_text(TINY + PROGRAM.split("    backward {")[0] + "}\n")
    assert hapdsl("check", path, "--json").status == 0


def test_numeric_runs_programs_beside_one_device(hapdsl: Run, tiny: Path) -> None:
    found = hapdsl("check", "--numeric", tiny, "--json")
    assert found.status == 0
    assert "equal to one device within" in found.object["proven"][-1]


@pytest.mark.parametrize(("batch", "shares"), [(16, "shares batch = [12, 4]"), (40960, "ratio batch = [20000, 1]")])
def test_numeric_finds_what_a_kernel_does_otherwise(
    hapdsl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, shares: str
) -> None:
    """The declaration lets each row be cut off by itself; the kernel subtracts the mean over all rows. Who has two rows of very many has some of few, too."""
    (tmp_path / "kernels.py").write_text("def centre(where, x):\n    return x - x.mean(0)\n")
    declared = 'op centre(x[i, j]) -> y[i, j] { linear x; grad x = y.grad; torch "kernels.centre" }\n'
    text = (TINY + PROGRAM).replace("relu(u)", "centre(u)").replace("relu(u@S(0))", "centre(u@S(0))")
    text = text.replace("u.grad@S(0) = relu_grad(h@S(0), h.grad@S(0))\n        ", "").replace(
        "u.grad@S(0)", "h.grad@S(0)"
    )
    path = tmp_path / "own.hap"
    path.write_text(declared + text.replace("batch = 16", f"batch = {batch}").replace("shares batch = [12, 4]", shares))
    monkeypatch.syspath_prepend(tmp_path)
    plain = hapdsl("check", path, "--json")
    assert "HAP700" in plain.codes  # only a warning: nobody allowed the module
    assert plain.status == 0
    found = hapdsl("check", "--numeric", path, "--allow", "kernels", "--json")
    assert found.status == 1
    assert "HAP730" in found.codes
    assert "HAP740" in found.codes
    assert not any("operator centre" in line for line in found.object["proven"])


def test_numeric_keeps_an_empty_share_and_shrinks_the_rest(hapdsl: Run, tmp_path: Path) -> None:
    path = tmp_path / "large.hap"
    text = TINY.replace("batch = 16", "batch = 4096").replace("hidden = 8", "hidden = 512")
    path.write_text(text + PROGRAM.replace("[12, 4]", "[4096, 0]"))
    bench = Workbench(path)
    tree = bench.program()
    settings, graph = numeric.shrink(bench, tree, bench.checked(tree).program)
    assert sum(t.elements for t in graph.tensors.values()) <= 200_000
    assert 2 <= settings["batch"] < 4096
    assert numeric.compare(bench, tree).gap <= 1e-9


WIDE = TINY_MODEL.replace("batch = 16, d = 6, hidden = 8", "batch = 4096, d = 64, hidden = 512")


def test_numeric_leaves_alone_what_lines_repeat_of_the_model(hapdsl: Run, tmp_path: Path) -> None:
    """An attribute that depends on a size is of the full one; the model that is tried is smaller, and has another there."""
    path = tmp_path / "scaled.hap"
    lines = PROGRAM.replace("= relu(u@S(0))", "= scale(u@S(0), by = 0.001953125)").replace(
        "relu_grad(h@S(0), h.grad@S(0))", "scale(h.grad@S(0), by = 0.001953125)"
    )
    text = WIDE.replace("relu(u)", "scale(u, by = 1 / hidden)") + lines.replace(" on pair", "")
    path.write_text(text.replace("[12, 4]", "[4000, 96]"))
    assert numeric.compare(bench := Workbench(path), bench.program()).settings["hidden"] < 512
    found = hapdsl("check", "--numeric", path, "--json")
    assert (found.status, found.codes) == (0, []), found.object


@pytest.mark.parametrize(
    ("cluster", "shares"),
    [
        ("", "[1000, 6 * 516]"),
        ("", "[3 * 1000, 0, 1096]"),
        (LAB, "[4000, 96]"),  # a row for each node
    ],
)
def test_numeric_scales_shares_however_they_are_written(hapdsl: Run, tmp_path: Path, cluster: str, shares: str) -> None:
    path = tmp_path / "wide.hap"
    lines = PROGRAM.replace("[12, 4]", shares).replace(" on pair", " on lab" if cluster else "")
    path.write_text(WIDE + cluster + lines)
    found = hapdsl("check", "--numeric", path, "--json")
    assert (found.status, found.codes) == (0, []), found.object
    tried = re.search(r"equal to one device within .* batch = (\d+)", found.object["proven"][-1].replace("(", " "))
    assert tried is not None and int(tried[1]) < 4096, found.object["proven"]


LAYERS = """
model deep(batch = 4096, d = 64, hidden = 1024, layers = 2) {
    input x : f32[batch, d]
    y = relu(x)
    repeat layer in layers {
        param u : f32[d, hidden]
        param v : f32[hidden, d]
        h = matmul(y, u)
        g = relu(h)
        y = matmul(g, v)
    }
    output y
}
program cut for deep {
    shares hidden = [1000, 24, 0]
    shares hidden[layer in 1..2] = [24, 500, 500]
    forward {
        x@R = input()
        layer.0.y@R = relu(x@R)
        repeat layer in 0..2 {
            .u@S(1), .v@S(0) = param()
            .h@S(1) = matmul(.y@R, .u@S(1))
            .g@S(1) = relu(.h@S(1))
            .next.y@P = matmul(.g@S(1), .v@S(0))
            .next.y@R = all_reduce(.next.y@P)
        }
    }
}
"""


def test_numeric_shrinks_what_is_cut_otherwise_in_some_layers(hapdsl: Run, tmp_path: Path) -> None:
    path = tmp_path / "layers.hap"
    path.write_text(LAYERS)
    tried = numeric.compare(bench := Workbench(path), bench.program())
    assert tried.gap <= 1e-9 and tried.settings["batch"] < 4096 and 3 <= tried.settings["hidden"] < 1024
    assert hapdsl("check", "--numeric", path).status == 0


POWER = """
op power(x[*i], attr exponent) -> y[*i] {{ {rule} torch "torch.pow" }}
model m(batch = 4) {{
    input x : f32[batch, 3]
    y = power(x, exponent = 2)
    output y
}}
"""


@pytest.mark.parametrize(("rule", "codes"), [("", []), ("linear x;", ["HAP730"])])
def test_numeric_tries_an_operator_as_a_model_calls_it(
    hapdsl: Run, tmp_path: Path, rule: str, codes: list[str]
) -> None:
    """No exponent can be made up; a model has one."""
    path = tmp_path / "power.hap"
    path.write_text(POWER.format(rule=rule))
    found = hapdsl("check", "--numeric", path, "--json")
    assert [*dict.fromkeys(found.codes)] == codes and found.status == (1 if codes else 0), found.object


def test_numeric_says_what_it_can_t_try(hapdsl: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numeric, "LARGEST", 100)
    found = hapdsl("check", "--numeric", tiny, "--json")
    assert (found.status, found.codes) == (0, ["HAP741"])
    assert found.object["diagnostics"][0]["severity"] == "warning"
