"""Drawings as files: `.dot`, `.svg`, `.png` through Graphviz, `.json` for a timeline."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import graphviz

from hapdsl.cluster.hardware import Cluster
from hapdsl.cost.evaluate import Cost
from hapdsl.draw.dot import program_dot
from hapdsl.draw.gantt import gantt_svg
from hapdsl.draw.topology import cluster_dot
from hapdsl.draw.trace import trace_text
from hapdsl.draw.training import graph_dot
from hapdsl.graph.program import Program
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang.diagnostics import Report, error
from hapdsl.lang.files import write_file
from hapdsl.lang.nodes import Span

SUFFIXES = (".dot", ".svg", ".png", ".json")


def draw_program(
    program: Program,
    cost: Cost | None,
    path: str | Path,
    *,
    devices: Sequence[str] | None = None,
    report: Report | None = None,
    time: str | None = None,
) -> list[Path]:
    """Write a program's drawing, or with `.json` its timeline, and return the files that were written.

    The suffix says what is drawn; without one both `.dot` and `.svg` are. With `time` ("overlap" or "sync") `.svg` is a Gantt chart of that
    timeline, and `.json` a trace of it; `devices` are names for it. Where Graphviz's `dot` is missing or fails, the `.dot` is written in place
    of the picture and `report` gets the warning HAP810 or HAP813. Raises HapError: HAP811 another suffix, HAP812 a timeline without a cost,
    HAP814 one of another suffix, HAP852 a file that can't be written.
    """
    target = _target(path)
    if target.suffix == ".json" or time is not None:
        if cost is None:
            raise error(
                "HAP812",
                "a timeline needs a cluster to price the program on",
                _at(target),
                "name one with --on, or draw a .svg",
            )
        if target.suffix not in (".json", ".svg"):
            raise error(
                "HAP814", f"a timeline can't be '{target.suffix}'", _at(target), ".svg for a chart, .json for a trace"
            )
        kind = time or "overlap"
        text = trace_text if target.suffix == ".json" else gantt_svg
        return [_write(target, text(program, cost, devices, kind))]
    return _draw(lambda: program_dot(program, cost), target, report)


def draw_graph(graph: TrainingGraph, path: str | Path, *, report: Report | None = None) -> list[Path]:
    """Write a training graph's drawing; like `draw_program`, without timelines (HAP812)."""
    target = _target(path)
    if target.suffix == ".json":
        raise error("HAP812", "a model has no timeline", _at(target), "draw a program, or a .svg")
    return _draw(lambda: graph_dot(graph), target, report)


def draw_cluster(cluster: Cluster, path: str | Path, *, report: Report | None = None) -> list[Path]:
    """Write a drawing of a cluster's nodes and links; like `draw_graph`."""
    target = _target(path)
    if target.suffix == ".json":
        raise error("HAP812", "a cluster has no timeline", _at(target), "draw a program, or a .svg")
    return _draw(lambda: cluster_dot(cluster), target, report)


def _target(path: str | Path) -> Path:
    target = Path(path)
    if target.suffix and target.suffix not in SUFFIXES:
        raise error("HAP811", f"a drawing can't be '{target.suffix}'", _at(target), f"one of {', '.join(SUFFIXES)}")
    return target


def _draw(text: Callable[[], str], target: Path, report: Report | None) -> list[Path]:
    source = text()
    if target.suffix == ".dot":
        return [_write(target, source)]
    files = []
    if not target.suffix:
        files.append(_write(target.with_name(target.name + ".dot"), source))
        target = target.with_name(target.name + ".svg")
    picture = _rendered(source, target, report)
    if picture is not None:
        files.append(_write(target, picture))
    elif not files:
        files.append(_write(target.with_suffix(".dot"), source))
    return files


def _rendered(source: str, target: Path, report: Report | None) -> bytes | None:
    """The picture, or None with a warning."""
    try:
        return bytes(graphviz.Source(source, engine="dot").pipe(format=target.suffix[1:], quiet=True))
    except graphviz.ExecutableNotFound:
        problem = ("HAP810", f"'dot' isn't on PATH, so {target.name} wasn't drawn; the .dot was written", "install Graphviz (apt install graphviz, brew install graphviz), then draw again")  # fmt: skip
    except (subprocess.CalledProcessError, OSError) as stop:
        said = getattr(stop, "stderr", b"") or str(stop)
        words = (said.decode("utf-8", "replace") if isinstance(said, bytes) else said).strip().split("\n")[0]
        problem = ("HAP813", f"dot failed on {target.name}: {words[:200]}; the .dot was written", "`dot -V` says which Graphviz it is; 2.40 or newer is needed")  # fmt: skip
    if report is not None:
        code, message, help = problem
        report.add(code, message, _at(target), help, "warning")
    return None


def _write(path: Path, content: str | bytes) -> Path:
    write_file(path, content)
    return path


def _at(path: Path) -> Span:
    return Span(str(path))
