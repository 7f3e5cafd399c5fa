"""What seldom stands in a program or on a bench: odd counts of shares, holes in attributes, rows of shares tried in numbers, files that stand alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hapdsl.check.facts import Known
from hapdsl.check.verify import verify
from hapdsl.check.write import write
from hapdsl.cli import main
from hapdsl.cost.basis import basis
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.parse import parse
from hapdsl.live import Live
from hapdsl.run.numeric import compare
from hapdsl.standalone import standalone
from hapdsl.workbench import Workbench
from tests.check.across import across
from tests.texts import PROGRAM, PROGRAMS, TINY, TINY_CLUSTER

PLANS = PROGRAMS / "plans"
MEASURED = TINY.replace(
    "latency = 1 us }\n}",
    "latency = 1 us }\n    measured all_reduce { 100 B = 3 us, 1 KB = 9 us }\n"
    "    measured matmul on slow { 1 KFLOP = 5 us, 1 MFLOP = 9 ms }\n}",
)

DEEP = """
model deep(batch = 8, d = 8, layers = 2) {
    input rows : f32[batch, d]
    x = relu(rows)
    repeat layer in layers {
        param w : f32[d, d]
        x = relu(matmul(x, w))
    }
    loss = sum(x, [0, 1])
    train loss with sgd(lr = 0.1)
}
program cut for deep {
    shares batch = [5, 3]
    shares batch[layer in 1..2] = [4, 4]
    forward { rows@S(0) = input() }
    ...
}
"""


def found(text: str, change: str = "", into: str = "") -> list[tuple[str, str, str]]:
    """(code, message, help) of what is wrong with the program of a text."""
    assert not change or text.count(change) == 1
    bench = Workbench("t.hap", text.replace(change, into) if change else text)
    checked = bench.checked(bench.program())
    return [(d.code, d.message, d.help) for d in checked.diagnostics.errors]


# -- shares --------------------------------------------------------------------------------


@pytest.mark.parametrize("shares", ["[0 * 12, 4]", "[1.5 * 4, 10]", "[true * 4, 12]"])
def test_a_count_of_shares_is_a_whole_number_from_one(shares: str) -> None:
    said = found(TINY + PROGRAM, "shares batch = [12, 4]", f"shares batch = {shares}")
    assert ("HAP504", "a count in front of `*` must be a whole number from 1") in {(c, m) for c, m, _ in said}


def test_shares_of_nobody() -> None:
    """A list without numbers says nothing of how many devices there are."""
    text = (TINY + PROGRAM).replace("for tiny on pair", "for tiny")
    said = found(text, "shares batch = [12, 4]", "shares batch = []")
    assert said and {c for c, _, _ in said} <= {"HAP101", "HAP501", "HAP504"}, said


# -- lines ---------------------------------------------------------------------------------


def test_an_attribute_may_be_left_open() -> None:
    """Attributes come from the model; what is `?` agrees with anything, what is another number doesn't."""
    text = TINY.replace("h = relu(u)", "h = scale(u, by = 0.5)") + PROGRAM.replace(
        "h@S(0)      = relu(u@S(0))", "h@S(0) = scale(u@S(0), by = ?)"
    ).replace("relu_grad(h@S(0), h.grad@S(0))", "scale(h.grad@S(0), by = ?)")
    bench = Workbench("t.hap", text)
    checked = bench.checked(bench.program())
    assert checked.ok, list(checked.diagnostics)
    assert [c for c, _, _ in found(text, "h@S(0) = scale(u@S(0), by = ?)", "h@S(0) = scale(u@S(0), by = 2)")] == [
        "HAP535"
    ]


def test_shards_don_t_become_partial_sums() -> None:
    """The one conversion that there isn't."""
    said = found(TINY + PROGRAM, "w2.grad@R, w1.grad@R = all_reduce(w2.grad@P, w1.grad@P)", "w2.grad@R, w1.grad@R = all_reduce(w2.grad@P, w1.grad@P)\n        h.grad@P = partial(h.grad@S(0))")  # fmt: skip
    assert [c for c, _, _ in said] == ["HAP542"] and "gather it first (all_gather)" in said[0][2], said


def test_layers_with_shares_of_their_own_are_split_once() -> None:
    """Whoever checks again and again keeps the split graph; the answer is that of a check from scratch."""
    bench = Workbench("t.hap", DEEP)
    known = Known()
    graph = bench.graph("deep")
    first, again = (verify(bench.program(), graph, known=known) for _ in range(2))
    scratch = verify(bench.program(), graph)
    assert again.program.graph is first.program.graph is not graph
    assert list(first.diagnostics) == list(again.diagnostics) == list(scratch.diagnostics)
    assert again.program.graph.fingerprint == scratch.program.graph.fingerprint


def test_behind_the_last_turn_there_is_no_next() -> None:
    """`.next.x` of the last turn is what the repeat leaves behind; what it doesn't leave is nothing."""
    text = DEEP.replace(
        "...", "forward { rows@S(0) = input(); repeat layer in 1..2 { .next.nothing@S(0) = relu(.x@S(0)) } }"
    )
    text = text.replace("    forward { rows@S(0) = input() }\n", "")
    assert ("HAP510", "the model has no tensor '.next.nothing' = 'nothing'") in {(c, m) for c, m, _ in found(text)}


# -- costs ---------------------------------------------------------------------------------


def test_what_of_a_price_was_measured() -> None:
    """Messages of the kind that was, and calls whose slowest device was; each counts with its slowest device's seconds."""
    bench = Workbench("t.hap", MEASURED + PROGRAM.replace("[12, 4]", "[4, 12]"))
    checked, made, cost = bench.cost(bench.program())
    said = basis(checked.program, made, cost)
    slowest = [float(s.max()) for s in cost.per_instruction_s]
    lines = checked.program.instructions
    reduced = sum(s for i, s in zip(lines, slowest, strict=True) if i.op == "all_reduce")
    multiplied = [k for k, i in enumerate(lines) if i.op.startswith("matmul")]
    assert multiplied and all(cost.per_instruction_s[k].argmax() == 1 for k in multiplied)
    assert said.measured_messages_s == said.messages_s == pytest.approx(reduced)
    assert said.measured_s == pytest.approx(reduced + sum(slowest[k] for k in multiplied))
    assert said.total_s == pytest.approx(sum(slowest))
    share = 100 * sum(slowest[k] for k in multiplied) / (said.total_s - reduced)
    assert said.words.startswith(f"prices: measured, messages 100 %, compute {share:.0f} %; ")
    assert said.as_json()["kind"] == "measured"


@pytest.mark.parametrize("value", ["[1, 2]", '"wide"', "0.5"])
def test_a_header_that_sets_no_size(value: str) -> None:
    """Whatever stands there, the model says what is wrong with it."""
    bench = Workbench("t.hap", TINY + PROGRAM.replace("for tiny on", f"for tiny(batch = {value}) on"))
    with pytest.raises(HapError) as stop:
        bench.checked(bench.program())
    assert [d.code for d in stop.value.diagnostics] == ["HAP205"]


# -- numbers -------------------------------------------------------------------------------


def test_rows_of_shares_are_tried_in_numbers() -> None:
    """Both axes cut the batch of 64, by rows: tried with fewer samples, in the same proportions, and a device without any stays so."""
    bench = Workbench(PLANS / "mlp_zero.hap")
    program = bench.proven(bench.program()).program
    batch = program.graph.classes["batch"].units
    rows = {"batch": [[batch - 20, 8, 0, 4], [4, 4, 0, 0]]}
    tree = write(across(program, {}, rows))
    text = standalone(bench, nodes.Program(tree.name, tree.model, tree.args, None, tuple(s for s in tree.body if not isinstance(s, nodes.Fingerprint))))  # fmt: skip
    again = Workbench("rows.hap", text)
    assert "shares batch" in text and re.search(r"\[\[\d+, 8, 0, 4\], ", text)
    tried = compare(again, again.program())
    assert tried.gap < 1e-9 and tried.settings


# -- files that stand alone -----------------------------------------------------------------


def test_a_file_takes_what_it_calls_along(tmp_path: Path) -> None:
    """Defs that are called in operands and by other defs, and nothing else; with the cluster that is named."""
    text = """
    def half(x) { return scale(x, by = 0.5) }
    def twice(x) { return add(half(x), x) }
    def unused(x) { return relu(x) }
    model m(batch = 4, d = 3) {
        input x : f32[batch, d]
        param w : f32[d, d]
        y = add(matmul(twice(x), w), x)
        loss = sum(y, [0, 1])
        train loss with sgd(lr = 0.1)
    }
    program all for m {
        shares batch = [3, 1]
        ...
    }
    """
    bench = Workbench("t.hap", text)
    cluster = parse(TINY).items[1]
    assert isinstance(cluster, nodes.Cluster)
    alone = standalone(bench, bench.program(), cluster, "taken along")
    assert "def half" in alone and "def twice" in alone and "unused" not in alone
    again = Workbench(tmp_path / "alone.hap", alone)
    assert again.graph("m").fingerprint == bench.graph("m").fingerprint
    assert again.program().cluster == "pair" and "# taken along" in alone
    assert again.checked(again.program()).sketch


def test_a_plan_takes_the_numbers_of_its_own_model_along(tmp_path: Path) -> None:
    """Those of a model that is imported as well are none of its business, whatever they are called."""
    model = "model {0}(batch = 4) {{\n    input x : f32[batch, 3]\n    frozen t : f32[3] init table\n    y = mul(x, t)\n    output y\n}}\n"
    (tmp_path / "other.hap").write_text(model.format("other"))
    (tmp_path / "other.hap.npz").write_bytes(b"other")
    (tmp_path / "own.hap").write_text('import "other.hap"\n' + TINY_CLUSTER + model.format("own"))
    (tmp_path / "own.hap.npz").write_bytes(b"own")
    for name in ("own", "other"):
        plan = tmp_path / f"{name}.plan.hap"
        arguments = ["plan", str(tmp_path / "own.hap"), "--model", name, "--cluster", "pair", "-o", str(plan)]
        assert main(arguments) == 0
        assert (tmp_path / f"{name}.plan.hap.npz").read_bytes() == name.encode()
    assert main(["expand", str(tmp_path / "own.plan.hap"), "-o", str(tmp_path / "expanded.hap")]) == 0
    assert (tmp_path / "expanded.hap.npz").read_bytes() == b"own"


# -- a text being edited ---------------------------------------------------------------------


def test_what_an_editor_is_told_of_models_and_sketches(tmp_path: Path) -> None:
    """Faults of blocks that no program uses are found; a sketch has no cost; and what is kept knows a file's imports again."""
    live = Live(tmp_path / "t.hap")
    sketch = "program open for tiny on pair {\n    shares batch = [12, 4]\n    ...\n}\n"
    reading = live.update(TINY + PROGRAM + sketch)
    assert reading.diagnostics == () and [p.state for p in reading.programs] == ["proven", "sketch"]
    assert reading.programs[0].cost is not None and reading.programs[1].cost is None
    assert "no cost" in reading.programs[1].note
    broken = TINY.replace("matmul(h, w2)", "matmul(h, w1)").replace("1 * slow", "0 * slow")
    codes = {d.code for d in live.update(broken).diagnostics}
    assert codes == {d.code for d in Live(tmp_path / "t.hap").update(broken).diagnostics} and len(codes) == 2, codes
    wanting = TINY.replace("batch = 16", "batch")
    assert live.update(wanting).diagnostics == ()  # nobody says how large it is
    again = live.update(TINY + PROGRAM + sketch).programs[0].cost
    assert again is not None and again.sync_s == reading.programs[0].cost.sync_s


def test_a_verified_program_is_written_as_it_was() -> None:
    bench = Workbench("t.hap", TINY + PROGRAM)
    checked = bench.checked(bench.program())
    again = verify(write(checked.program), checked.program.graph, 2)
    assert again.ok and [str(v) for i in again.program.instructions for v in i.outputs] == [
        str(v) for i in checked.program.instructions for v in i.outputs
    ]
