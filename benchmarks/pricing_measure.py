"""One case of `benchmarks.pricing` in this process: `python -m benchmarks.pricing_measure CASE` (JSON) prints one line of JSON, CPU seconds."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.cases import Case, four_kinds
from benchmarks.measure import cluster_of, graph_of
from hapdsl.check.verify import verify
from hapdsl.check.write import write
from hapdsl.cost.evaluate import evaluate
from hapdsl.cost.pricing import Pricer
from hapdsl.graph.program import METHODS, Instruction
from hapdsl.lang import nodes
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from hapdsl.live import Live
from hapdsl.search.planner import plan
from hapdsl.workbench import Workbench

RUNS = 7
Found = dict[str, Any]


def text_of(layers: int, devices: int) -> str:
    """The planned program of a GPT with its cluster, layers rolled."""
    settings = {"layers": layers, "batch": 1024}
    case = Case("pricing", "plan", "gpt", f"four kinds {devices}", settings)
    found = plan(graph_of(case), cluster_of(case.cluster), baselines=False)
    args = tuple(nodes.Arg(k, nodes.Number(v)) for k, v in settings.items())
    tree = replace(write(found.program), args=args, cluster="four_kinds")
    return f'import "std/gpt.hap"\n\n{four_kinds(devices)}\n{to_text(nodes.File((tree,)))}'


def edits(text: str) -> dict[str, str]:
    """The text after one edit: a line of all layers with a comment more, a line more behind it, it half typed, it wrong."""
    lines = text.split("\n")
    layer = next(k for k, line in enumerate(lines) if line.strip().startswith("repeat "))
    call = next(k for k in range(layer, len(lines)) if "= gelu(" in lines[k])
    indent = lines[call][: len(lines[call]) - len(lines[call].lstrip())]
    made = lines[call].split("=")[0].strip()

    def at(*new: str) -> str:
        return "\n".join([*lines[:call], *new, *lines[call + 1 :]])

    return {
        "line": at(lines[call] + "  # looked at"),
        "more": at(lines[call], f"{indent}# looked at"),
        "half": at(f"{indent}{made} = gelu"),
        "wrong": at(lines[call].replace("gelu", "relu")),
    }


def measured(layers: int, devices: int) -> Found:
    """All numbers of one case in this process, in CPU seconds."""
    text = text_of(layers, devices)
    bench = Workbench("pricing.hap", text)
    tree = bench.program()
    graph, cluster = bench.graph_of(tree), bench.cluster_of(tree)
    assert cluster is not None
    program = verify(tree, graph, len(cluster)).program
    found: Found = {"lines": text.count("\n"), "instructions": len(program.instructions)}
    found["parse"] = least(lambda: parse(text))
    found["check"] = least(lambda: verify(tree, graph, len(cluster)))
    found["price"] = least(lambda: evaluate(program, cluster))
    pricer = Pricer(program.graph, program.layout, cluster)
    evaluate(program, cluster, pricer)
    turn = [program.instructions, edited(program.instructions)]

    def again() -> None:
        turn.reverse()
        evaluate(replace(program, instructions=turn[0]), cluster, pricer)

    found["price edit"] = least(again)
    live = Live("pricing.hap")
    first = time.process_time()
    answer = live.update(text)
    found["live first"] = time.process_time() - first
    assert answer.ok and answer.programs[0].cost is not None, answer.diagnostics
    for name, new in edits(text).items():

        def typed(new: str = new) -> None:
            live.update(new)

        found[f"live {name}"] = least(typed, before=lambda: live.update(text))
    return found


def edited(instructions: list[Instruction]) -> list[Instruction]:
    """The instructions with one line priced otherwise: the first collective by another of its methods."""
    at = next(k for k, i in enumerate(instructions) if i.is_collective and len(METHODS[i.op]) > 1)
    line = instructions[at]
    method = next(m for m in METHODS[line.op] if m != line.method)
    return [*instructions[:at], replace(line, method=method), *instructions[at + 1 :]]


def least(work: Callable[[], object], before: Callable[[], object] | None = None) -> float:
    """The least CPU seconds of several runs, collections of garbage kept out of them."""
    best = float("inf")
    for _ in range(RUNS):
        if before is not None:
            before()
        gc.collect()
        gc.disable()
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
        gc.enable()
    return best


if __name__ == "__main__":
    case = json.loads(sys.argv[1])
    print(json.dumps(measured(case["layers"], case["devices"])))
