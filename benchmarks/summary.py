"""`python -m benchmarks.summary`: the README's table of measured results, from what the benchmarks have kept in benchmarks/results. Measures nothing.

A line whose measurements aren't there is left out. Each names the command that measures it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks import paper, pricing, rows, search
from benchmarks.pages import README, fill, markdown
from benchmarks.paper_cases import SIZES
from benchmarks.paper_reference import FIGURES
from benchmarks.reference import BESIDE, RELEASED
from benchmarks.rows import RESULTS

Line = tuple[str, str, str]  # what, the figure, the command


def planning() -> Iterator[Line]:
    """How long planning and its proof take."""
    known = rows.latest(search.LINES)
    for layers in (24, 96):
        found = known.get(f"layers: gpt(layers={layers}) on two_kinds", {}).get("found")
        if found:
            what = f"plan a GPT of {layers} layers ({found['calls']:,} operator calls, forward to Adam) for 8 devices of two kinds, and prove it within {100 * found['gap']:.1f} % of the best"
            yield what, f"{found['search_cpu_s']:.1f} s of a core", "make bench"
    for row in known.values():
        if row["group"] == "models" and row["model"] == "bert" and "found" in row:
            theirs = next(line for line in RELEASED if (line[0], line[1]) == BESIDE["bert"])
            ours = row["found"]["settled_cpu_s"]
            yield (
                f"BERT, 24 layers, until program and shares are settled; HAP's released search (forward pass only, no bound) takes {theirs[-1]} s",
                f"{ours:.1f} s",
                "make bench",
            )


def editing() -> Iterator[Line]:
    """How long a person waits behind a key."""
    for row in pricing.measurements():
        if (row["layers"], row["devices"]) == (24, 8):
            what = f"change a line that stands in each of 24 layers: {row['instructions']:,} instructions proven and priced again"
            yield what, f"{1e3 * row['live line']:.0f} ms", "make pricing"


def beside_the_paper() -> Iterator[Line]:
    """VGG19 on the paper's heterogeneous testbed."""
    known = rows.latest(paper.LINES)
    ours: list[float] = []
    theirs: list[float] = []
    figures = FIGURES["paper_hetero", "vgg19"]
    for size, hap, even in zip(SIZES["paper_hetero"], figures["HAP"], figures["DP-EV"], strict=True):
        found = known.get(f"point vgg19 on paper_hetero {size}", {}).get("found")
        if found and hap and even:
            ours.append(found["baselines"]["dp_even"][0] / found["plan_s"])
            theirs.append(even / hap)
    if ours:
        what = f"VGG19 on the paper's 8 to 64 unequal cards, simulated: how many times as fast as data parallelism (the paper, measured: {min(theirs):.1f} to {max(theirs):.1f})"
        yield what, f"{min(ours):.1f} to {max(ours):.1f} x", "make paper"


def emulated() -> Iterator[Line]:
    """Our plans beside PyTorch's own ways, on processes that are slowed and links that are held."""
    for row in rows.read(RESULTS / "emulate.jsonl"):
        low, high = row["interval"]
        what = f"train {row['model']} on four processes slowed to unlike speeds, {row['rate'] / 1e9:g} Gbit/s between them: how many times as fast as the best of DDP, FSDP2 and tensor parallelism ({row['best']})"
        yield what, f"{row['speedup']:.2f} x ({low:.2f} to {high:.2f})", "make emulate"


def breaking() -> Iterator[Line]:
    """What is lost when runs are killed."""
    path = RESULTS / "soak.json"
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        yield (
            f"{found['rounds']} runs of four processes killed, stopped or out of disk at random moments: checkpoints lost or damaged",
            str(len(found["wrong"])),
            "make soak",
        )


PARTS: tuple[Callable[[], Iterator[Line]], ...] = (planning, editing, emulated, beside_the_paper, breaking)


def table() -> str:
    """The README's table; nothing where nothing was measured."""
    lines = [(what, figure, f"`{command}`") for part in PARTS for what, figure, command in part()]
    return markdown(("what", "measured", "by"), lines) if lines else ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.summary", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args(arguments)
    fill(README, "summary", table())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
