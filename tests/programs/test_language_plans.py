"""The language models on three devices of speeds 3 : 1 : 1: planned, proven, run beside one device, under other shares as well.

Sizes and links are such that each kind of cut pays somewhere: by batch, heads, hidden units, vocabulary, positions, experts.
Units come in fives, so that shares in the ratio of the speeds exist.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest
import torch

from hapdsl.check.verify import verify
from hapdsl.graph.program import Instruction
from hapdsl.graph.training import TrainingGraph
from hapdsl.run.validate import random_layout
from hapdsl.search.complete import complete
from hapdsl.search.plan import Plan
from hapdsl.search.planner import plan
from hapdsl.workbench import Workbench
from tests.check.random_programs import random_program
from tests.graph.helpers import example
from tests.programs.helpers import compare, falls_without, placed, reread, shares, three
from tests.programs.sizes import LANGUAGE
from tests.texts import PROGRAMS, program_in


@cache
def graph(name: str) -> TrainingGraph:
    return example(name, **LANGUAGE[name][0])


@cache
def planned(name: str) -> Plan:
    return plan(graph(name), three(LANGUAGE[name][1]), gap=0.05, baselines=False)


@pytest.mark.parametrize("name", LANGUAGE)
def test_planned_proven_and_equal_to_one_device(name: str) -> None:
    """Loss, every gradient and every update over three steps."""
    found = planned(name)
    assert found.bound_s <= found.cost_s and found.gap < 0.1
    compare(reread(found.program), graph(name), torch.float64, 1e-9)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", LANGUAGE)
def test_the_same_lines_under_other_shares(name: str, seed: int) -> None:
    """A device without work in every class, another one in each."""
    program = planned(name).program
    layout = random_layout(graph(name), program.layout.mesh, random.Random(seed))
    assert all(0 in own[(0,)] for own in layout.shares.values())
    compare(reread(replace(program, layout=layout)), graph(name), torch.float64, 1e-9, count=1)


SMALL = {"batch": 3, "seq": 4, "d": 8, "heads": 4, "ffn": 6, "vocab": 9, "layers": 2}


@pytest.mark.parametrize("name", LANGUAGE)
def test_any_rule_of_any_call(name: str) -> None:
    """Programs at random, on one axis and on two: what the search never picks runs as well."""
    more = {"kv": 2} if name in ("llama", "mixtral") else {}
    more |= {"experts": 3} if name in ("bert_moe", "mixtral") else {}
    own = example(name, **{**SMALL, **more})
    for seed, mesh in enumerate(((("devices", 3),), (("devices", 3),), (("nodes", 2), ("devices", 2)))):
        compare(reread(random_program(own, mesh, seed)), own, torch.float64, 1e-9, count=1)


# -- one kind of cut each ------------------------------------------------------------


def calls(name: str, op: str, reads: str = "") -> list[Instruction]:
    """The calls of an operator, or those that read a tensor whose name ends so."""
    found = [i for i in planned(name).program.instructions if i.op == op and i.node is not None]
    return [i for i in found if any(v.tensor.endswith(reads) for v in i.inputs)]


def test_batch() -> None:
    """Attention of a batch that is large beside the parameters: sequence by sequence."""
    assert {placed(i) for i in calls("bert", "attention")} == {"S(0), S(0), S(0) -> S(0)"}
    assert shares(planned("bert"), "batch") == [6, 2, 2]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_heads(name: str) -> None:
    """A batch of one is attended to head by head; Llama's ten heads of queries in units of the five of keys and values."""
    assert {placed(i) for i in calls(name, "attention")} == {"S(1), S(1), S(1) -> S(1)"}
    assert shares(planned(name), "heads") == [3, 1, 1]


def test_query_heads_go_with_the_keys_they_read() -> None:
    program = planned("llama").program
    (call,) = calls("llama", "attention")
    q, k = ([int(n) for n in program.piece(v)[1][:, 1]] for v in call.inputs[:2])
    assert (q, k) == ([6, 2, 2], [3, 1, 1])


def test_hidden_units_by_columns_and_rows() -> None:
    assert {placed(i) for i in calls("gpt2", "matmul", "feed_forward.w1")} == {"R, S(1) -> S(2)"}
    assert {placed(i) for i in calls("gpt2", "matmul", "feed_forward.w2")} == {"S(2), S(0) -> P"}
    assert {placed(i) for i in calls("llama", "matmul", "gate")} == {"R, S(1) -> S(2)"}
    assert {placed(i) for i in calls("llama", "matmul", "down")} == {"S(2), S(0) -> P"}


def test_vocabulary() -> None:
    """The tied table lies by rows: what is looked up comes out as partial sums, logits by columns."""
    assert [placed(i) for i in calls("gpt2", "embedding")] == ["R, S(0) -> P"]
    assert [placed(i) for i in calls("gpt2", "matmul_nt", "table")] == ["R, S(0) -> S(2)"]
    assert shares(planned("gpt2"), "vocab") == [180, 60, 60]


@pytest.mark.parametrize(("name", "op"), [("gpt2", "layer_norm"), ("llama", "rms_norm")])
def test_positions(name: str, op: str) -> None:
    """Norms between what is cut by heads and by hidden units: by position."""
    assert {str(i.outputs[0].placement[0]) for i in calls(name, op)} == {"S(1)"}
    assert shares(planned(name), "seq") == [6, 2, 2]


@pytest.mark.parametrize(("name", "part"), [("bert_moe", "mixture"), ("mixtral", "experts_of")])
def test_experts(name: str, part: str) -> None:
    """Tokens travel to the experts and back, their gradients too; the quick device has three of the five."""
    program = planned(name).program
    moves = [i for i in program.instructions if i.op == "all_to_all" and f"{part}." in i.inputs[0].tensor]
    assert [f"{i.inputs[0]} to {i.outputs[0].placement[0]}".rpartition(f"{part}.")[2] for i in moves] == [
        "sent@S(0) to S(1)", "worked@S(1) to S(0)", "worked.grad@S(0) to S(1)", "sent.grad@S(1) to S(0)",
    ]  # fmt: skip
    assert {placed(i) for i in calls(name, "einsum", f"{part}.sent")} >= {"S(1), S(0) -> S(1)"}
    assert shares(planned(name), "experts") == [3, 1, 1]
    own = {graph(name).resolve(f"{t.name}.grad") for t in graph(name).of_kind("param") if t.classes[0] == "experts"}
    reduced = {v.tensor for i in program.instructions if i.op in ("all_reduce", "reduce_scatter") for v in i.inputs}
    assert own and not own & reduced  # what an expert learns stays with it


@pytest.mark.parametrize(
    ("kind", "name", "op", "rule"),
    [
        ("batch", "bert", "attention", "S(0), S(0), S(0) -> S(0)"),
        ("heads", "gpt2", "attention", "S(1), S(1), S(1) -> S(1)"),
        ("columns", "gpt2", "matmul", "R, S(1) -> S(2)"),
        ("rows", "gpt2", "matmul", "S(2), S(0) -> P"),
        ("vocabulary", "gpt2", "embedding", "R, S(0) -> P"),
        ("positions", "gpt2", "layer_norm", "S(1), R, R -> S(1)"),
        ("experts", "mixtral", "einsum", "S(1), S(0) -> S(1)"),
    ],
)
def test_each_kind_stands_on_its_rule(
    kind: str, name: str, op: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the tests above find would not be found if the theory lacked the rule."""
    assert falls_without(planned(name), lambda: example(name, **LANGUAGE[name][0]), op, rule, monkeypatch), kind


PADDED = """
program padded for bert_moe(layers = 2, batch = 128, capacity = 12, experts = 32) on paper_a100_p100 {
    shares experts = [8, 8, 8, 8]
    pin pair.0.sparse_encoder.mixture.u @ S(1)
    ...
}"""


@pytest.mark.long
def test_uneven_numbers_of_experts_beat_padding() -> None:
    """The paper's side study on two A100 and two P100: 29 experts, where others pad them to 32 and give each device eight."""
    bench = Workbench(PROGRAMS / "models" / "bert_moe.hap")
    cluster = bench.cluster("std/paper_a100_p100.hap")
    sketch = program_in(PADDED)
    settings = {"layers": 2, "batch": 128, "capacity": 12}
    padded = complete(verify(sketch, bench.graph("bert_moe", {**settings, "experts": 32}), 4), sketch, cluster)
    own = plan(bench.graph("bert_moe", {**settings, "experts": 29}), cluster, baselines=False)
    assert any(str(v).endswith("mixture.u@S(1)") for i in own.program.instructions for v in i.outputs)
    fast, slow = shares(own, "experts")[:2], shares(own, "experts")[2:]
    assert sum(fast + slow) == 29 and min(fast) > max(slow)
    assert own.cost_s * 1.1 < padded.cost_s
