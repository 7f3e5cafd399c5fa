"""DOT text: what stands in it, against the program read by other means."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hapdsl.cost.evaluate import Cost
from hapdsl.draw.dot import MOST_BOXES, program_dot
from hapdsl.draw.picture import Box, Cluster, Edge, Picture, to_dot
from hapdsl.draw.training import graph_dot
from hapdsl.graph.program import Instruction, Program, Value
from hapdsl.search.planner import plan
from hapdsl.theory.placements import P
from hapdsl.workbench import Workbench

from .conftest import replicated

GOLDEN = Path(__file__).parent / "golden"


def laid_out(source: str) -> dict[str, object]:
    """What `dot` itself reads in a DOT text."""
    done = subprocess.run(["dot", "-Tjson0"], input=source.encode(), capture_output=True, check=True, timeout=60)
    assert not done.stderr, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def words(label: str) -> list[str]:
    return [html.unescape(w) for w in re.split(r"<[^>]*>", label) if w]


def nodes_of(found: dict) -> dict[int, list[str]]:
    return {o["_gvid"]: words(o["label"]) for o in found["objects"] if "nodes" not in o and o["name"] != "legend"}


@pytest.mark.parametrize("what", ["program", "priced", "model"])
def test_golden(what: str, mixed: tuple[Program, Cost]) -> None:
    """HAPDSL_UPDATE=1 writes the files again; look at the change before committing it."""
    program, cost = mixed
    text = {
        "program": lambda: program_dot(program),
        "priced": lambda: program_dot(program, cost),
        "model": lambda: graph_dot(program.graph),
    }[what]()
    file = GOLDEN / f"{what}.dot"
    if os.environ.get("HAPDSL_UPDATE"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_every_instruction_and_every_read_is_drawn(mixed: tuple[Program, Cost]) -> None:
    program, _ = mixed
    found = laid_out(program_dot(program))
    boxes = nodes_of(found)
    drawn = {
        (" ".join(boxes[e["tail"]]), " ".join(boxes[e["head"]])) for e in found["edges"] if e.get("style") != "invis"
    }
    for instruction in program.instructions:
        op = instruction.op
        for output in instruction.outputs:
            tensor = output.tensor if instruction.is_collective else str(output)
            assert any(tensor in b and any(w.split(" ")[0] == op for w in b) for b in boxes.values()), output
            for read in instruction.inputs:
                maker = next(i for i in program.instructions if read in i.outputs)
                name = read.tensor if maker.is_collective and maker.section == instruction.section else str(read)
                assert any(name in a.split() and tensor in b.split() for a, b in drawn), (read, output)


def test_colours_follow_placements_and_collectives_are_hexagons(mixed: tuple[Program, Cost]) -> None:
    program, _ = mixed
    objects = [o for o in laid_out(program_dot(program))["objects"] if "nodes" not in o and o["name"] != "legend"]
    shade = {}
    for o in objects:
        name = words(o["label"])[0]
        if "@" in name:
            shade.setdefault(name.split("@")[1], set()).add(o["fillcolor"])
    assert all(len(colours) == 1 for colours in shade.values())
    assert len(set.union(*shade.values())) == len(shade) == 4
    hexagons = sorted(words(o["label"])[0] for o in objects if o["shape"] == "hexagon")
    assert hexagons == sorted(["all_gather (grouped)", "all_reduce", "all_reduce", "reduce_scatter"])
    widths = {words(o["label"])[1]: float(o["width"]) for o in objects if o["shape"] == "hexagon"}
    assert widths["w1.grad"] > widths["w2.grad"] > widths["b1.grad"]


def test_shares_stand_in_the_title(mixed: tuple[Program, Cost]) -> None:
    label = laid_out(program_dot(*mixed))["label"]
    assert "shares batch = [76, 76, 26, 26, 26, 26]" in words(str(label))
    assert "shares hidden = [304, 304, 104, 104, 104, 104]" in words(str(label))


def test_small_programs_show_every_layer() -> None:
    text = (
        "def block(x, d) { param w : f32[d, d]\n h = matmul(x, w)\n return relu(h) }\n"
        "model deep(n = 8, d = 4) {\n input a : f32[n, d]\n x = relu(a)\n repeat layer in 2 { x = block(x, d) }\n"
        " loss = sum(x, [0, 1])\n train loss with sgd(lr = 0.1)\n}\n"
    )
    found = laid_out(program_dot(replicated(Workbench("deep.hap", text).graph())))
    frames = [words(o["label"])[0] for o in found["objects"] if "nodes" in o and "label" in o]
    assert sorted(f for f in frames if f.startswith("layer")) == ["layer 0"] * 3 + ["layer 1"] * 3
    assert sum(b[-1] == "relu" for b in nodes_of(found).values()) == 3


def test_large_programs_fold_equal_layers(bench: Workbench) -> None:
    found = laid_out(program_dot(replicated(bench.graph("gpt", {"layers": 24}))))
    frames = [words(o["label"])[0] for o in found["objects"] if "nodes" in o and "label" in o]
    assert sorted(f for f in frames if f.startswith("layer")) == ["layer 0 … 23  ×24"] * 2 + ["layer 23 … 0  ×24"]
    assert sum(b[-1] == "attention" for b in nodes_of(found).values()) == 1
    assert any(e.get("style") == "dashed" for e in found["edges"])  # what a layer hands to the next


def test_a_folded_layer_shows_what_it_reads_in_rows(bench: Workbench) -> None:
    """Loads and what other sections made have no boxes there: every read of the first layer is a row or an arrow."""
    program = replicated(bench.graph("gpt", {"layers": 24}))
    found = laid_out(program_dot(program))
    boxes = nodes_of(found)
    assert not any(o.get("shape") == "ellipse" for o in found["objects"])
    arrows = {(e["tail"], e["head"]) for e in found["edges"] if e.get("style") != "invis"}
    for instruction in program.instructions:
        turn = instruction.node.repeat if instruction.node else ()
        if turn != (("layer", 0),) or instruction.section != "forward":
            continue
        at = next(
            k
            for k, b in boxes.items()
            if b[-1] == instruction.op and f"{instruction.outputs[0].tensor.removeprefix('layer.0.')}@R" in b
        )
        for read in instruction.inputs:
            name = f"{read.tensor.removeprefix('layer.0.')}@R"  # within the layer; outside of it the whole name
            made = any(head == at and {name, str(read)} & {*boxes[tail]} for tail, head in arrows)
            assert name in boxes[at] or made, (instruction, read)


def test_folded_plan_counts_its_collectives(bench: Workbench) -> None:
    """However layers and buckets are folded, the numbers on the drawing add up to the program's collectives."""
    found = plan(bench.graph("gpt", {"layers": 6}), bench.cluster(), baselines=False, time_limit=0.5)
    assert len(found.program.instructions) > 250
    drawing = laid_out(program_dot(found.program, found.cost))
    times: dict[int, int] = {}
    for o in drawing["objects"]:
        if "nodes" in o and "label" in o:
            label = words(o["label"])[0]
            for n in o["nodes"]:
                times[n] = max(times.get(n, 1), int(label.split("×")[1]) if "×" in label else 1)
    total = 0
    for o in drawing["objects"]:
        if o.get("shape") == "hexagon":
            title = words(o["label"])[0]
            total += times.get(o["_gvid"], 1) * (int(title.split("×")[1]) if "×" in title else 1)
    assert total == sum(i.is_collective for i in found.program.instructions)


def test_what_converts_between_layers_leaves_their_frame(bench: Workbench) -> None:
    """The last layer hands on nothing that the next would sum; all layers are one frame nevertheless, and what is sent between them is counted."""
    program = replicated(bench.graph("gpt", {"layers": 6}))
    handed = {f"layer.{k}.x" for k in range(1, 6)} & {v.tensor for i in program.instructions for v in i.outputs}
    assert len(handed) == 5
    found = []
    for instruction in program.instructions:
        found.append(instruction)
        for value in instruction.outputs:
            if value.tensor in handed and instruction.section == "forward":
                cut = Value(value.tensor, (P,))
                found.append(Instruction("partial", (value,), (cut,)))
                found.append(Instruction("all_reduce", (cut,), (value,)))
    drawing = laid_out(program_dot(Program("between", program.graph, program.layout, found)))
    frames = [o for o in drawing["objects"] if "nodes" in o and words(o.get("label", ""))[:1] == ["layer 0 … 5  ×6"]]
    assert len(frames) == 2  # forward and update
    boxes = nodes_of(drawing)
    (total,) = (n for n, b in boxes.items() if b[0] == "all_reduce  ×5")
    assert all(total not in frame["nodes"] for frame in frames)
    # It reads what a layer hands on (by way of partial sums), and its result goes back into the frame.
    inside = set(frames[0]["nodes"])
    assert any(e["tail"] == total and e["head"] in inside and e.get("style") == "dashed" for e in drawing["edges"])
    (cut,) = (e["tail"] for e in drawing["edges"] if e["head"] == total)
    assert boxes[cut][0] == "partial  ×5"
    assert any(e["head"] == cut and e["tail"] in inside for e in drawing["edges"])


def test_thousands_of_instructions_take_seconds(bench: Workbench) -> None:
    program = replicated(bench.graph("gpt", {"layers": 70}))
    assert len(program.instructions) > 5000
    started = sum(os.times()[:4])  # seconds of processors, children's too: what else runs doesn't count
    laid_out(program_dot(program))
    assert sum(os.times()[:4]) - started < 20


def test_what_does_not_fold_is_cut_and_said(bench: Workbench, tmp_path: Path) -> None:
    calls = "\n".join(f"    h{k} = relu(h{k - 1})" for k in range(1, 900))
    (tmp_path / "long.hap").write_text(
        "model long(n = 8) {\n    input x : f32[n, 4]\n    param w : f32[4, 4]\n    h0 = matmul(x, w)\n" + calls +
        "\n    loss = sum(h899, [0, 1])\n    train loss with sgd(lr = 0.1)\n}\n"
    )  # fmt: skip
    program = replicated(Workbench(tmp_path / "long.hap").graph())
    boxes = nodes_of(laid_out(program_dot(program)))
    left_out = next(b[0] for b in boxes.values() if b[0].startswith("…"))
    loads = sum(not i.inputs for i in program.instructions)  # rows of their readers
    assert left_out == f"… {len(program.instructions) - loads - MOST_BOXES:,} more instructions"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), min_size=6, max_size=6))
@example(["\\N", "\\\\G", "a\\", "\\n", "]", "&#92;"])
def test_any_characters_are_shown(names: list[str]) -> None:
    title, box, line, frame, edge, shade = names
    picture = Picture(
        title,
        (line,),
        [Box(box, (line,), group=(frame,)), Box(line, shape="hexagon", weight=5e6)],
        [Edge(0, 1, edge)],
        {(frame,): Cluster(frame)},
        (("#ffffff", shade),),
        (("box", edge),),
    )
    done = subprocess.run(["dot", "-Tsvg"], input=to_dot(picture).encode(), capture_output=True, check=True, timeout=60)
    assert not done.stderr, done.stderr
    seen = {
        squeezed("".join(t.itertext()))
        for t in ElementTree.fromstring(done.stdout).iter("{http://www.w3.org/2000/svg}text")
    }
    for name in names:
        shown = squeezed("".join(c if c.isprintable() else "\ufffd" for c in name))
        assert shown in seen or not shown, (name, seen)


def squeezed(text: str) -> str:
    """Drawings may show blanks in their own way."""
    return "".join(text.split())
