"""Tracing a collective that goes in several phases, each a message between two ranks: such a message may be waited for only once."""

from __future__ import annotations

import json
from pathlib import Path

from hapdsl.cli import main
from hapdsl.lang.resources import programs_folder


def test_a_tree_is_traced(tmp_path: Path) -> None:
    plans = programs_folder() / "plans"
    text = (plans / "mlp_data_parallel.hap").read_text(encoding="utf-8").replace('"../', f'"{plans.parent}/')
    (tmp_path / "tree.hap").write_text(text.replace("w2.grad@P)\n", "w2.grad@P, method = tree)\n"))
    trace = tmp_path / "trace.json"
    assert main(["run", str(tmp_path / "tree.hap"), "--steps", "4", "--timeout", "20", "--trace", str(trace)]) == 0
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    trees = [e for e in events if e["cat"] == "collective" and e["args"]["method"] == "tree"]
    assert {(e["pid"], e["args"]["step"]) for e in trees} == {(d, s) for d in range(4) for s in (3, 4)}
    for step in (3, 4):  # nobody has the sum before all have sent their parts
        same = [e for e in trees if e["args"]["step"] == step]
        assert max(e["ts"] for e in same) <= min(e["ts"] + e["dur"] for e in same)
