"""`python -m benchmarks.pricing`: what it takes to parse, check and price a program, from scratch and after an edit.

    python -m benchmarks.pricing                 4 to 96 layers on 8 devices, 24 layers on 8 to 1,024; a few minutes
    python -m benchmarks.pricing 24x8 24x1024    some cases: LAYERSxDEVICES
    python -m benchmarks.pricing --table         the table of docs/performance.md once more, from what was measured

Each case has a fresh interpreter and plans the program first, which isn't measured. Numbers are CPU milliseconds, the least of several runs, so that
what else runs on the machine counts little. What is found is kept in benchmarks/results/pricing.jsonl, a line per case.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.apart import ROOT
from benchmarks.cases import Case, four_kinds
from benchmarks.pages import PERFORMANCE, fill
from benchmarks.search import machine
from benchmarks.table import markdown

LINES = ROOT / "benchmarks" / "results" / "pricing.jsonl"
CASES = [(4, 8), (12, 8), (24, 8), (36, 8), (48, 8), (96, 8), (24, 64), (24, 256), (24, 1024)]
RUNS = 7
Found = dict[str, Any]


def text_of(layers: int, devices: int) -> str:
    """The planned program of a GPT with its cluster, layers rolled."""
    from benchmarks.measure import cluster_of, graph_of
    from hapdsl.check.write import write
    from hapdsl.lang import nodes
    from hapdsl.lang.print import to_text
    from hapdsl.search.planner import plan

    settings = {"layers": layers, "batch": 1024}
    case = Case("pricing", "plan", "gpt", f"four kinds {devices}", settings)
    found = plan(graph_of(case), cluster_of(case.cluster), baselines=False)
    args = tuple(nodes.Arg(k, nodes.Number(v)) for k, v in settings.items())
    tree = replace(write(found.program), args=args, cluster="four_kinds")
    return f'import "std/gpt.hap"\n\n{four_kinds(devices)}\n{to_text(nodes.File((tree,)))}'


def edits(text: str) -> dict[str, str]:
    """The text after one edit: a line in a layer priced anew, a line more, a line half typed, other shares."""
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
    from hapdsl.check.verify import verify
    from hapdsl.cost.evaluate import evaluate
    from hapdsl.cost.pricing import Pricer
    from hapdsl.lang.parse import parse
    from hapdsl.live import Live
    from hapdsl.workbench import Workbench

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


def edited(instructions: list[Any]) -> list[Any]:
    """The instructions with one line priced otherwise: the first collective by another of its methods."""
    from hapdsl.graph.program import METHODS

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


COLUMNS = {
    "parse": "parse", "check": "check", "price": "price", "price edit": "price, one line edited", "live first": "first reading", "live line": "a line in all layers",
    "live more": "a line more", "live wrong": "a line wrong", "live half": "a line half typed",
}  # fmt: skip


def table(rows: list[Found]) -> str:
    """Markdown; all times in CPU milliseconds."""
    head = ("layers", "devices", "lines", "instructions", *COLUMNS.values())
    body = [
        (
            str(r["layers"]),
            str(r["devices"]),
            str(r["lines"]),
            str(r["instructions"]),
            *[f"{1e3 * r[c]:.1f}" for c in COLUMNS],
        )
        for r in rows
    ]
    return markdown(head, body)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pricing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="LAYERSxDEVICES")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # one case in this process, as JSON
    given = parser.parse_args(arguments)
    wanted = [tuple(map(int, c.split("x"))) for c in given.cases] or CASES
    if given.here:
        print(json.dumps(measured(*wanted[0])))
        return
    for layers, devices in [] if given.table else wanted:
        command = [sys.executable, "-m", "benchmarks.pricing", "--here", f"{layers}x{devices}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"{layers}x{devices} failed: {done.stderr.strip()[-400:]}", file=sys.stderr)
            continue
        row = {"layers": layers, "devices": devices, **json.loads(done.stdout.strip().splitlines()[-1])}
        keep(row)
        print(f"{layers} layers, {devices} devices: {row['price'] * 1e3:.1f} ms", file=sys.stderr)
    made = f"{machine()}\n\n{table(rows())}"
    print(made)
    fill(PERFORMANCE, "pricing", made)


def rows() -> list[Found]:
    """What was measured so far, in the order of the cases."""
    found = [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()] if LINES.exists() else []
    return sorted(found, key=lambda r: (r["devices"], r["layers"]))


def keep(row: Found) -> None:
    """Write a row into the file, in the place of an older one of its case."""
    others = [r for r in rows() if (r["layers"], r["devices"]) != (row["layers"], row["devices"])]
    LINES.write_text("".join(json.dumps(r) + "\n" for r in [*others, row]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
