"""Edges of a run: what is loaded and read by nobody, updates of one's own, tables beside a text, what doesn't fit, and weights that lie otherwise in memory."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hapdsl.cli import main
from hapdsl.graph.program import Instruction, Layout, Program, Value
from hapdsl.lang.diagnostics import HapError
from hapdsl.run.data import open_feed
from hapdsl.run.distributed import Rank
from hapdsl.run.how import How
from hapdsl.run.initial import initial, random_inputs
from hapdsl.run.inprocess import InProcess
from hapdsl.run.kernels.optimize import adam, adamw
from hapdsl.run.launch import launch
from hapdsl.run.lower import lower
from hapdsl.run.reference import Reference
from hapdsl.run.replicas import check
from hapdsl.run.train import train
from hapdsl.search.planner import plan
from hapdsl.search.restriction import Restriction
from hapdsl.theory.placements import S
from hapdsl.workbench import Workbench
from tests.graph.helpers import graph_of
from tests.run.helpers import inputs_of, mover, partials
from tests.run.programs import FED, model, randomly
from tests.texts import PROGRAM, TINY, TINY_CLUSTER, cluster_in

F64 = torch.float64


def codes(stop):
    return [d.code for d in stop.value.diagnostics]


def proven(text):
    bench = Workbench("t.hap", text)
    return bench.proven(bench.program()).program


# -- programs ----------------------------------------------------------------------------


def held_at_the_end(reporter, program):
    rank = Rank(program, F64)
    rank.load(initial(program.graph, 1, F64))
    made = rank.step(rank.feed(random_inputs(program.graph, 1, F64)))
    reporter.send("made", values=[str(v) for v in made])


def test_what_is_loaded_and_read_by_nobody():
    """It is given up at once, and changes nothing."""
    lines = PROGRAM.replace("w1@R, w2@R  = param()", "w1@R, w2@R  = param()\n        x@R = input()")
    program, plain = proven(TINY + lines), proven(TINY + PROGRAM)
    found, wanted = (train(p, 2, 3, dtype=F64) for p in (program, plain))
    assert found.loss == wanted.loss and all(torch.equal(t, wanted.final[n]) for n, t in found.final.items())
    seen = []
    launch(held_at_the_end, 2, (program,), lambda rank, header, _: seen.append(header["values"]), method="fork")
    assert len(seen) == 2 and not any(value.startswith("x@") for values in seen for value in values)


GROWS = """
op grows(w[*i], g[*i]) -> w_new[*i] { linear g; torch "torch.mul" }
model m(batch = 8, d = 6) {
    input x : f32[batch, d]
    param w : f32[d] init normal(std = 0.5)
    loss = sum(mul(x, w), dims = [0, 1])
    train loss with grows()
}
"""


@pytest.mark.parametrize("scale", ["off", 1024.0])
def test_a_new_value_that_is_linear_in_its_gradient_has_no_scale(scale):
    """No update of ours is; of this one a weight is multiplied by its gradient, which is the sum of its column."""
    graph = graph_of(GROWS)
    found = train(randomly(graph, 3, 2), 2, 2, dtype=F64, how=How(scale=scale))
    feed = open_feed("random", graph)
    wanted = initial(graph, 0, F64)["w"]
    for step in (1, 2):
        x = feed.batch(step)["x"].double()
        assert found.loss[step - 1] == pytest.approx(float((x * wanted).sum()), rel=1e-12)
        wanted = wanted * x.sum(dim=0)
    torch.testing.assert_close(found.final["w"], wanted, rtol=1e-12, atol=0)


def compares(reporter, program):
    rank = Rank(program)
    rank.load(initial(program.graph, 0))
    reporter.send("found", held=[str(v) for v in rank.held], drift=len(check(rank)))


def test_where_all_is_sharded_there_are_no_replicas():
    graph = model("input x : f32[batch, 8]\nparam w : f32[8, 4]\nloss = sum(matmul(x, w), [0, 1])\ntrain loss with momentum(lr = 0.1)")  # fmt: skip
    sharded = Restriction(lambda node, rule: True, lambda param, placement: placement == S(0))
    program = plan(graph, cluster_in(TINY_CLUSTER), restriction=sharded, baselines=False).program
    seen = []
    launch(compares, 2, (program,), lambda rank, header, _: seen.append(header), method="fork")
    assert [set(one["held"]) for one in seen] == 2 * [{"w@S(0)", "w.m@S(0)"}]
    assert [one["drift"] for one in seen] == [0, 0]
    assert train(program, 2, 2, how=How(check_replicas=1)).lines[-1].get("drift", []) == []


# -- what doesn't fit --------------------------------------------------------------------


def test_a_device_cuts_only_what_it_holds():
    """No proven program asks for it: rows are held, columns wanted."""
    graph = inputs_of([(4, 6)], ["f64"])
    rows, columns = Value("x0", (S(0),)), Value("x0", (S(1),))
    steps = [Instruction("input", (), (rows,)), Instruction("slice", (rows,), (columns,))]
    shares = {c: {(0,): np.array([u.units - 1, 1])} for c, u in graph.classes.items()}
    with pytest.raises(HapError, match=r"device 0 doesn't hold the piece of x0@S\(1\) in x0@S\(0\)") as stop:
        lower(Program("cuts", graph, Layout((("devices", 2),), shares), steps))
    assert codes(stop) == ["HAP707"] and stop.value.status == 1


def of_another_shape(reporter, program, held):
    rank = Rank(program)
    rank.held = {v: locals[rank.rank][:, :-1] for v, locals in held.items()}
    rank.step({})


def test_a_rank_s_own_values_are_of_the_layout_s_shape():
    """Those that a script has put there; else messages of other lengths than the others expect would leave."""
    graph = inputs_of([(4, 6)], ["f64"])
    shares = {c: {(0,): np.array([u.units - 1, 1])} for c, u in graph.classes.items()}
    program = mover(graph, Layout((("devices", 2),), shares), [[(S(0),)], [(S(1),)]])
    start = program.instructions[0].outputs[0]
    held = {start: partials(torch.zeros(4, 6, dtype=F64), program, start, random.Random(1))}
    with pytest.raises(HapError, match=r"all_to_all got \[[13], 5\], the layout says \[[13], 6\]") as stop:
        launch(of_another_shape, 2, (program, held), method="fork")
    assert set(codes(stop)) == {"HAP716"}


TURNS = """model m(batch = 6, turns = 3) {
    input x : f32[batch, 4]
    param w : f32[4, 2] init normal(std = 0.5)
    microbatch turns { loss = sum(matmul(x, w), dims = [0, 1]) }
    train loss with sgd(lr = 0.1)
}"""


def test_a_batch_that_is_taken_in_turns_is_whole():
    """A turn's part of it is no batch."""
    graph = graph_of(TURNS)
    executor = InProcess(randomly(graph, 3, 2), F64)
    executor.load(initial(graph, 0, F64))
    with pytest.raises(HapError, match=r"'x' has shape \[2, 4\], expected \[6, 4\]") as stop:
        executor.step({"x": torch.zeros(2, 4)})
    assert codes(stop) == ["HAP706"]


def test_one_device_says_which_tensor_is_wanting():
    graph = model(FED)
    given = {**initial(graph, 0, F64), **random_inputs(graph, 0, F64)}
    for name, line, shape in (("x", 2, [6, 2]), ("w", 4, [2, 3])):
        with pytest.raises(HapError, match=f"no value is given for '{name}'") as stop:
            Reference(graph, F64).step({n: t for n, t in given.items() if n != name})
        assert codes(stop) == ["HAP706"] and stop.value.diagnostics[0].span.line == line
        with pytest.raises(HapError) as stop:
            Reference(graph, F64).step(given | {name: given[name][:-1]})
        assert codes(stop) == ["HAP706"] and stop.value.diagnostics[0].span.line == line
        said = f"'{name}' has shape {[shape[0] - 1, shape[1]]}, expected {shape}"
        assert stop.value.diagnostics[0].message == said


# -- feeds -------------------------------------------------------------------------------


def counted():
    for step in range(1, 5):
        yield {"x": torch.full((6, 2), float(step)), "rate": torch.tensor(0.1)}


def test_an_iterator_goes_back_by_beginning_again():
    feed = open_feed(f"{__name__}:counted", model(FED))
    assert [float(feed.batch(step)["x"][0, 0]) for step in (3, 3, 1, 4, 2)] == [3, 3, 1, 4, 2]


def test_random_numbers_are_below_what_is_read_behind_a_view():
    """Rows of a table that are looked up through a reshape and a cast, and classes of a loss: all of them occur."""
    graph = graph_of("""model m(batch = 50) {
        input ids : i32[batch, 4]
        param table : f32[7, 3]
        rows = embedding(cast(reshape(ids, shape = [batch * 4]), to = i64), table)
        loss = sum(rows, dims = [0, 1])
        train loss with sgd(lr = 0.1)
    }""")
    assert set(random_inputs(graph, 1)["ids"].unique().tolist()) == set(range(7))


# -- tables beside a text ----------------------------------------------------------------

TABLE = "model m(batch = 4, n = 3) {\n    input x : f32[batch, n]\n    param w : f32[n]\n    frozen t : f32[n] init table\n    loss = sum(mul(mul(x, w), t), [0, 1])\n    train loss with sgd(lr = 0.1)\n}\n"


@pytest.fixture
def table(tmp_path):
    """The file of a model whose frozen tensor stands beside it, and a function that puts tensors there."""
    (tmp_path / "m.hap").write_text(TABLE)
    return tmp_path / "m.hap", lambda **held: np.savez(tmp_path / "m.hap.npz", **held)


def test_a_table_that_isn_t_there_or_doesn_t_fit(table):
    path, put = table
    graph = Workbench(path).graph("m")
    for held, said, help in (
        ({"u": np.ones(3), "v": np.ones(2)}, f"{path}.npz has no 't'", "it has: u, v"),
        ({"t": np.ones(4)}, f"'t' of {path}.npz has shape [4], expected [3]", "such a text is for the sizes"),
        ({"t": np.array(["a", "b", "c"])}, f"'t' of {path}.npz holds <U1, expected numbers", ""),
    ):
        put(**held)
        with pytest.raises(HapError) as stop:
            initial(graph)
        (found,) = stop.value.diagnostics
        assert (found.code, found.message, found.span.line) == ("HAP711", said, 4) and help in found.help
    put(t=np.array([[1.5], [2.0], [3.0]]))
    assert initial(graph)["t"].tolist() == [1.5, 2, 3]


# -- updates -----------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "theirs"), [(adam, torch.optim.Adam), (adamw, torch.optim.AdamW)])
@pytest.mark.parametrize("strided", ["w", "m", "v"])
def test_adam_on_what_lies_otherwise_in_memory(kernel, theirs, strided):
    """torch's kernel in one pass takes what is contiguous; a script may put a view into a rank. It is written over in its place."""
    draw = torch.Generator().manual_seed(3)
    start, zeros = torch.randn(3, 4, generator=draw, dtype=F64), torch.zeros(3, 4, dtype=F64)
    held = {"w": start, "m": zeros, "v": zeros}
    held = {n: t.T.contiguous().T if n == strided else t.clone() for n, t in held.items()}
    wanted = start.clone().requires_grad_()
    optimizer = theirs([wanted], lr=0.1, weight_decay=0.2, foreach=False)
    for step in range(1, 4):
        wanted.grad = torch.randn(3, 4, generator=draw, dtype=F64)
        optimizer.step()
        made = kernel(
            SimpleNamespace(updates=step), held["w"], wanted.grad.clone(), held["m"], held["v"], 0.1,
            beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.2,
        )  # fmt: skip
        assert all(new.data_ptr() == old.data_ptr() for new, old in zip(made, held.values(), strict=True))
        torch.testing.assert_close(held["w"], wanted.detach(), rtol=1e-14, atol=0)
    assert not held[strided].is_contiguous()


# -- operators of one's own --------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        'op total(x[*a, k, *b], attr dims = [0]) -> y[*a, *b] {\n    at k = dims\n    sum k\n    torch "torch.sum"\n}\n',
        'op turned(x[], attr spec = "a b -> b a") -> y[] {\n    notation spec\n    torch "torch.t"\n}\n',
    ],
)
def test_an_operator_that_takes_its_indices_from_attributes_isn_t_guessed(text, tmp_path, capsys):
    """It is no fault of the file, which nothing has been found wrong with."""
    (tmp_path / "own.hap").write_text(text)
    assert main(["check", "--numeric", str(tmp_path / "own.hap")]) == 0
    said = capsys.readouterr().err
    name = text[3 : text.index("(")]
    assert f"own.hap:1:1: warning HAP731: '{name}' takes its index notation from attributes" in said
