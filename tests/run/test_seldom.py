"""What seldom happens in a run: first values of other kinds, edges of kernels, feeds that are joined in the middle, files that were tampered with."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.nn.functional import scaled_dot_product_attention

from hapdsl.cli import main
from hapdsl.graph.build import build, operators
from hapdsl.graph.program import Layout
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.parse import parse
from hapdsl.run import (
    checkpoint_state,
    checkpoint_write,
    gradients,
    heartbeat,
    pieces,
    replan,
    tracing,
)
from hapdsl.run.actions import computing
from hapdsl.run.call import prepare
from hapdsl.run.checkpoint_state import write_whole
from hapdsl.run.compiled import _plain
from hapdsl.run.context import Clock, dtypes_at, whole
from hapdsl.run.data import open_feed
from hapdsl.run.distributed import Rank
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.inprocess import InProcess
from hapdsl.run.launch import launch
from hapdsl.run.lower import Compute, Convert
from hapdsl.run.moves import Move
from hapdsl.run.reference import Reference
from hapdsl.theory.placements import P, R, S
from hapdsl.workbench import Workbench
from tests.run.helpers import inputs_of, mover, partials
from tests.run.programs import FED, model
from tests.texts import PROGRAM, TINY

F64 = torch.float64


# -- first values --------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(30, 50), (5, 6, 70), (40, 9, 3, 3), (2000,)])
def test_xavier_is_torchs(shape):
    """Within its bound and up to it; weights are [in, out] here, [out, in] in torch, and kernels of convolutions alike."""
    dims = ", ".join(map(str, shape))
    found = initial(model(f"param w : f32[{dims}] init xavier()\nloss = sum(w, {list(range(len(shape)))})\ntrain loss with sgd(lr = 0.1)"), 3, F64)["w"]  # fmt: skip
    theirs = torch.empty(shape if len(shape) == 4 else (shape[-1], math.prod(shape[:-1])), dtype=F64)
    if len(shape) == 1:  # torch has none for vectors: as many in as out
        bound = math.sqrt(6 / (2 * shape[0]))
    else:
        fan_in, fan_out = torch.nn.init._calculate_fan_in_and_fan_out(theirs)
        bound = math.sqrt(6 / (fan_in + fan_out))
    assert found.shape == shape and 0.99 * bound < found.abs().max() <= bound
    assert found.std() == pytest.approx(bound / math.sqrt(3), rel=0.05) and abs(float(found.mean())) < bound / 10


# -- the scale of f16 --------------------------------------------------------------------


def test_the_scale_of_gradients_is_that_of_torchs_grad_scaler(monkeypatch):
    """Halved by a step that isn't finite, doubled after so many that were, counted from the last change."""
    monkeypatch.setattr(gradients, "INTERVAL", 3)
    ours = gradients.Scale(gradients.FIRST)
    theirs, tracker = torch.tensor(gradients.FIRST), torch.zeros((), dtype=torch.int32)
    finite = random.Random(1).choices([True, False], [5, 1], k=60)
    seen = set()
    for good in finite:
        before = ours.value
        ours.after(good)
        torch._amp_update_scale_(theirs, tracker, torch.tensor(float(not good)), gradients.GROWTH, gradients.BACKOFF, 3)
        assert ours.value == float(theirs)
        seen.add(ours.value / before)
    assert seen == {0.5, 1.0, 2.0} and ours.skipped == finite.count(False)


# -- kernels -----------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["dropout", "drop_path"])
@pytest.mark.parametrize("p", [0, 1])
def test_dropout_of_nothing_and_of_everything(operator, p):
    graph = model(f"input x : f32[batch, 5]\nparam w : f32[5, 4] init normal()\ny = matmul({operator}(x, p = {p}), w)\nloss = sum(y, [0, 1])\noutput y\ntrain loss with sgd(lr = 0.5)")  # fmt: skip
    x = torch.randn(6, 5, dtype=F64)
    held = initial(graph, 1, F64)
    made = Reference(graph, F64).step({**held, "x": x})
    w = held["w"].clone().requires_grad_()
    y = torch.nn.functional.dropout(x, float(p)) @ w
    y.sum().backward()
    torch.testing.assert_close(made["y"], y.detach())
    torch.testing.assert_close(made[graph.updates["w"]], w.detach() - 0.5 * w.grad)


@pytest.mark.parametrize("causal", ["true", "false"])
def test_attention_whose_values_are_of_another_size(causal):
    """torch's kernels that go through the keys in blocks take heads of one size only."""
    graph = model(f"""
        input q : f32[batch, 2, 5, 4]
        param k : f32[batch, 2, 5, 4] init normal(std = 1)
        param v : f32[batch, 2, 5, 3] init normal(std = 1)
        y = attention(q, k, v, causal = {causal})
        loss = sum(mul(y, y), [0, 1, 2, 3])
        train loss with sgd(lr = 1)""")
    q, held = torch.randn(6, 2, 5, 4, dtype=F64), initial(graph, 1, F64)
    made = Reference(graph, F64).step({**held, "q": q})
    k, v = (held[n].clone().requires_grad_() for n in "kv")
    loss = scaled_dot_product_attention(q, k, v, is_causal=causal == "true").square().sum()
    loss.backward()
    torch.testing.assert_close(made[graph.loss], loss.detach())
    for name, tensor in (("k", k), ("v", v)):
        torch.testing.assert_close(made[graph.updates[name]], tensor.detach() - tensor.grad)


# -- feeds --------------------------------------------------------------------------------


def counted():
    for step in range(1, 5):
        yield {"x": torch.full((6, 2), float(step)), "rate": torch.tensor(0.1)}


def listed():
    yield [torch.zeros(6, 2)]


def test_a_run_that_goes_on_goes_through_an_iterator():
    """Else it would train on the first batches again; and an iterator that ends starts again."""
    feed = open_feed(f"{__name__}:counted", model(FED))
    assert [float(feed.batch(step)["x"][0, 0]) for step in range(3, 8)] == [3, 4, 1, 2, 3]


def test_an_iterator_of_something_else():
    with pytest.raises(HapError, match="must return mappings from input to tensor, not list") as stop:
        open_feed(f"{__name__}:listed", model(FED)).batch(1)
    assert stop.value.diagnostics[0].code == "HAP711"


def test_a_rank_is_given_the_step_s_value_of_an_input_without_dims(tmp_path):
    save_file({"x": torch.arange(60.0).reshape(30, 2), "rate": torch.tensor([0.3, 0.2])}, tmp_path / "d.safetensors")
    feed = open_feed(str(tmp_path / "d.safetensors"), model(FED))
    for step in (1, 2, 3):
        parts = feed.parts(step, {"rate": ("rate", ()), "x": ("x", (slice(2, 4), slice(1, 2)))})
        assert torch.equal(parts["rate"], feed.batch(step)["rate"])
        assert torch.equal(parts["x"], feed.batch(step)["x"][2:4, 1:])
    assert float(feed.batch(3)["rate"]) == pytest.approx(0.2)


def test_a_machine_that_can_t_see_the_folder(tmp_path):
    """Each rank writes its own file; rank 0 alone has made the folder."""
    _, failed = checkpoint_write.Writer._write(None, tmp_path / "elsewhere" / "rank-1.safetensors", {})
    assert failed is not None and failed.diagnostics[0].code == "HAP754"
    assert "all machines must share it" in failed.diagnostics[0].message


# -- pieces and messages --------------------------------------------------------------------


def test_what_doesn_t_fit_the_layout_is_refused():
    graph = inputs_of([(4, 6)], ["f64"])
    shares = {c: {(0,): np.array([u.units - 1, 1])} for c, u in graph.classes.items()}
    program = mover(graph, Layout((("devices", 2),), shares), [[(S(0),)], [(R,)]])
    start, end = (i.outputs[0] for i in program.instructions)
    with pytest.raises(HapError, match=r"device 1 holds \[2, 6\]") as stop:
        pieces.assemble(program, start, [torch.zeros(3, 6), torch.zeros(2, 6)])
    assert stop.value.diagnostics[0].code == "HAP705"
    with pytest.raises(HapError, match=r"\[4, 5\], expected \[4, 6\]") as stop:
        InProcess(program).step({"x0": torch.zeros(4, 5)})
    assert stop.value.diagnostics[0].code == "HAP706"
    assert pieces.largest_gap(torch.zeros(2), torch.zeros(3)) == math.inf
    assert pieces.largest_gap(torch.zeros(0, 3), torch.zeros(0, 3)) == 0
    one, other = torch.tensor([1.0, math.inf]), torch.tensor([1.0, 2.0])
    assert pieces.largest_gap(one, other) == pieces.largest_gap(other, one) == math.inf
    assert pieces.largest_gap(one, one) == 0
    torn = pieces.transfer(program, start, end, [0, 1], False)
    with pytest.raises(HapError, match="aren't of one piece"):
        pieces.Transfer(start, (torn.targets[0], torn.sources[1]), (torn.sources[1],) * 2, True).verify()


def alone_and_narrow(reporter, program, held):
    """A mesh axis of one device has nothing to send; what is sent narrower than it is held is packed so."""
    rank = Rank(program, keep_all=True)
    rank.held = {v: locals[rank.rank] for v, locals in held.items()}
    assert any(isinstance(m, Move) and m.group.size == 1 for m in rank.moves.values())
    for value, local in rank.step({}).items():
        reporter.send("value", local, value=str(value))
    with pytest.MonkeyPatch.context() as patch:  # two machines whose clocks are a second apart
        mine = ["a", "b"][dist.get_rank()]
        patch.setattr("socket.gethostname", lambda: mine)
        clock = tracing.time.perf_counter
        patch.setattr(tracing.time, "perf_counter", lambda: clock() + dist.get_rank())
        reporter.send("offset", seconds=tracing._offset())


def test_a_mesh_axis_of_one_device_and_clocks_of_two_machines():
    graph = inputs_of([(4, 6), (3, 2)], ["f64", "f64"])
    shares = {c: {(0,): np.array([u.units - 1, 1]), (1,): np.array([u.units])} for c, u in graph.classes.items()}
    layout = Layout((("outer", 2), ("inner", 1)), shares)
    program = mover(graph, layout, [[(P, P)] * 2, [(P, R)] * 2, [(R, R)] * 2])
    draw = random.Random(1)
    whole = {n: torch.randint(-9, 9, t.shape).double() for n, t in graph.tensors.items()}
    held = {v: partials(whole[v.tensor], program, v, draw) for i in program.instructions[:2] for v in i.outputs}
    seen, offsets = {}, {}

    def receive(rank, header, tensor):
        if header["kind"] == "value":
            seen[rank, header["value"]] = tensor
        else:
            offsets[rank] = header["seconds"]

    launch(alone_and_narrow, 2, (program, held), receive, method="fork")
    for name, tensor in whole.items():
        assert all(torch.equal(seen[r, f"{name}@(R, R)"], tensor) for r in (0, 1)), sorted(seen)
    assert offsets[0] == 0 and offsets[1] == pytest.approx(1, abs=0.2)


# -- what is said -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "words"), [("D", "waits for a disk"), ("T", "is stopped"), ("R", "cut off from the network")]
)
def test_why_a_process_is_silent(monkeypatch, state, words):
    monkeypatch.setattr(heartbeat.Path, "read_text", lambda path: f"7 (a (odd) name) {state} 1 7")
    assert words in heartbeat.cause_of(7)


# -- kernels of one's own ---------------------------------------------------------------------

OWN = """
op own(x[*i]) -> y[*i], z[*i] {{
    flops i
    grad  x = y.grad
    {}
}}
model m(batch = 6) {{
    input x : f32[batch, 5]
    a, b = own(x)
    output a
    output b
}}
"""


def one_of_two(context, x):
    return x


def divides(context, x):
    return x, x * (1 / 0)


def says_nothing(context, x):
    raise ValueError


@pytest.mark.parametrize(
    ("computes", "code", "words"),
    [
        ('torch "hapdsl.nothing"', "HAP700", "hapdsl has no kernel 'nothing'"),
        (f'torch "{__name__}.nothing"', "HAP700", "has no function 'nothing'"),
        ("", "HAP700", "says nowhere what computes it"),
        (f'torch "{__name__}.one_of_two"', "HAP705", "returned 1 tensors, expected 2"),
        (f'torch "{__name__}.divides"', "HAP705", "failed: ZeroDivisionError: division by zero"),
        (f'torch "{__name__}.says_nothing"', "HAP705", "failed: ValueError$"),
    ],
)
def test_what_a_kernel_of_one_s_own_lacks(computes, code, words):
    items = parse(OWN.format(computes)).items
    (op,) = (i for i in items if isinstance(i, nodes.Op))
    (tree,) = (i for i in items if isinstance(i, nodes.Model))
    with pytest.raises(HapError, match=words) as stop:
        graph = build(tree, {}, operators({"own": op}), train=False)
        Reference(graph, F64, allow={__name__}).step({"x": torch.zeros(6, 5)})
    assert stop.value.diagnostics[0].code == code


@pytest.mark.parametrize(
    ("name", "words"), [("divides", "ZeroDivisionError: division by zero"), ("says_nothing", "ValueError$")]
)
def test_a_rank_says_which_kernel_failed(name, words):
    op, tree = parse(OWN.format(f'torch "{__name__}.{name}"')).items
    (node,) = build(tree, {}, operators({"own": op}), train=False).nodes
    results = [whole(shape) for shape in node.instance.result_shapes]
    call = prepare(node, [whole((6, 5))], results, Clock(), dtypes_at(F64), {__name__})
    act = computing(call, SimpleNamespace(inputs=(0,), outputs=(1, 2), drops=()))
    with pytest.raises(HapError, match=f"the kernel of 'own' .* failed: {words}") as stop:
        act([torch.zeros(6, 5, dtype=F64), None, None])
    assert stop.value.diagnostics[0].code == "HAP705"


# -- compiled segments, and those who ask too much ------------------------------------------------


def test_what_is_compiled_is_what_is_run():
    """Each call and each local conversion of a step as a pure function, an empty share's too, against the executor that compiles nothing."""
    bench = Workbench("t.hap", TINY + PROGRAM.replace("[12, 4]", "[16, 0]").replace("h@S(0)      = relu(u@S(0))", "h@S(0)      = relu(u@S(0))\n        w2@S(1)     = slice(w2@R)"))  # fmt: skip
    text_program = bench.program()
    program = bench.proven(text_program).program
    held, inputs = initial(program.graph, 1, F64), random_inputs(program.graph)
    executor = InProcess(program, F64, keep_all=True)
    executor.load(held)
    steps, one = executor.lowered.steps, executor.one
    seen = set()

    def beside(step, store, given, totals):
        before = list(store)
        one(step, store, given, totals)
        for device in range(2):
            if isinstance(step.work, Compute | Convert):
                function, reads, writes = _plain(step, device)
                made = function([before[slot][device] for slot in reads])
                assert all(torch.equal(x, store[slot][device]) for x, slot in zip(made, writes, strict=True))
                empty = isinstance(step.work, Compute) and step.work.calls[device].context.is_empty
                seen.add((type(step.work).__name__, empty))

    executor.one = beside
    executor.step({**held, **inputs})
    assert len(steps) > 10 and seen == {("Compute", False), ("Compute", True), ("Convert", False)}


def test_a_rank_of_too_few():
    bench = Workbench("t.hap", TINY + PROGRAM)
    program = bench.proven(bench.program()).program
    with pytest.raises(HapError, match="1 processes for a program on 2 devices") as stop:
        launch(lambda reporter: Rank(program), 1, method="fork")
    assert stop.value.diagnostics[0].code == "HAP718"


def test_a_model_of_other_sizes_is_not_said_to_be_alike(tmp_path, capsys):
    """What the run would refuse is refused before anything is said of it, or started."""
    text = """model m(d = 2) {{ input x : f32[4, d]; param w : f32[d, {}]; loss = sum(matmul(x, w), [0, 1]); train loss with sgd(lr = 0.1) }}
cluster c {{ device a {{ compute = 1 GFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s }}; node n = 1 * a over {{ bandwidth = 1 GB/s }} }}"""
    for width, name in ((3, "old"), (4, "new")):
        (tmp_path / f"{name}.hap").write_text(text.format(width), encoding="utf-8")
        assert main(["plan", str(tmp_path / f"{name}.hap"), "-o", str(tmp_path / f"{name}.plan.hap")]) == 0
    older = Workbench(str(tmp_path / "old.hap")).graph()
    write_whole(tmp_path / "ck", older, initial(older))
    capsys.readouterr()
    assert main(["run", str(tmp_path / "new.plan.hap"), "--resume", str(tmp_path / "ck"), "--steps", "2"]) == 2
    said = capsys.readouterr()
    assert "HAP753" in said.err and "alike" not in said.out + said.err


def test_a_plan_anew_is_not_asked_of_torchrun_s_ranks(monkeypatch, tmp_path):
    """torchrun starts ranks again by itself; and an older plan's file is never written over."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(HapError, match="torchrun has started the ranks") as stop:
        replan.train_on(None, None, checkpoint_write.Saving(tmp_path, 1))
    assert stop.value.diagnostics[0].code == "HAP761"
    for number in (1, 2):
        (tmp_path / f"replanned-{number}.hap").touch()
    assert replan._fresh(tmp_path).name == "replanned-3.hap"


def test_weights_like_those_of_another_module(tmp_path):
    save_file({"w": torch.zeros(3, 3)}, tmp_path / "other.safetensors")
    with pytest.raises(HapError, match=r"'w' has shape \[2, 3\], .* says \[3, 3\]") as stop:
        checkpoint_state._like({"w": torch.zeros(2, 3)}, tmp_path / "other.safetensors")
    assert stop.value.diagnostics[0].code == "HAP753"
