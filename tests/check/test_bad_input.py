"""What is too large, too deep or endless is answered with a code, exit status 2 and no traceback, in under two seconds.

Faults of the usual size, and the lines that they are told of: tests/cli/test_bad_input.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hapdsl.cli import main

MODEL = """
model m(batch = 8, d = 6) {
    input x : f32[batch, d]
    param w : f32[d, 4]
    y = matmul(x, w)
    loss = sum(y, dims = [0, 1])
    train loss with sgd(lr = 0.1)
}
"""
CLUSTER = """
cluster c {
    device d { compute = 1 TFLOP/s, memory = 1 GiB, bandwidth = 1 GB/s }
    node host = 4 * d over { bandwidth = 1 GB/s }
}
"""
PROGRAM = MODEL + CLUSTER + "program p for m on c {\n%s\n...\n}\n"


def chain(folder: Path) -> str:
    """A thousand files, each importing the next."""
    for k in range(1000):
        (folder / f"{k}.hap").write_text(f'import "{k + 1}.hap"\nmodel m{k} {{ input x : f32[2]; output x }}\n')
    return 'import "0.hap"\n'


CASES: dict[str, tuple[str, str | bytes | Callable[[Path], str]]] = {
    "UTF-16": ("HAP122", "model m { }".encode("utf-16")),
    "ten megabytes of one line": ("HAP123", b"a" * (10 * 2**20)),
    "binary": ("HAP122", bytes(range(256)) * 64),
    "deep parentheses": ("HAP104", "model m(a = " + "(" * 50_000 + "1" + ")" * 50_000 + ") { }"),
    "deep lists": ("HAP104", "program p for m { shares c = " + "[" * 50_000 + "]" * 50_000 + " }"),
    "deep blocks": ("HAP104", "model m { " + "repeat a in 2 { " * 50_000 + "}" * 50_000 + " }"),
    "a long sum": ("HAP104", "model m(a = " + "1 + " * 100_000 + "1) { }"),
    "many minus signs": ("HAP104", "model m(a = " + "-" * 100_000 + "1) { }"),
    "imports itself": ("HAP131", 'import "case.hap"\n'),
    "a long chain of imports": ("HAP133", chain),
    "missing import": ("HAP130", 'import "nowhere.hap"\n'),
    "two programs": ("HAP132", MODEL + "program p for m { ... }\nprogram p for m { ... }\n"),
    "a negative bandwidth": ("HAP408", CLUSTER.replace("over { bandwidth = 1 GB/s }", "over { bandwidth = -1 GB/s }")),
    "shares too few": ("HAP505", PROGRAM % "shares batch = [2, 2, 2, 1]"),
    "shares too many": ("HAP505", PROGRAM % "shares batch = [2, 2, 2, 3]"),
    "enormous shares": ("HAP504", PROGRAM % "shares batch = [1e300, 1, 1, 1]"),
    "texts for shares": ("HAP504", PROGRAM % 'shares batch = ["a", "b", "c", "d"]'),
    "rows among numbers": ("HAP504", PROGRAM % "shares batch = [2, [2], 2, 2]"),
    "division by zero in shares": ("HAP203", PROGRAM % "shares batch = [8 / 0, 0, 0, 0]"),
    "a billion shares": ("HAP504", PROGRAM % f"shares batch = [{', '.join(['100000 * 1'] * 10_000)}]"),
    "a huge mesh": ("HAP502", PROGRAM % "mesh a = 99999999, b = 99999999"),
    "an empty mesh axis": ("HAP502", PROGRAM % "mesh a = 0, b = 4"),
    "trains nothing": ("HAP230", MODEL.replace("param", "input")),
    "no loss, no output": ("HAP230", "model m { input x : f32[2] }"),
    "a huge repeat": ("HAP223", "model m { input x : f32[2]\nrepeat layer in 1000000000 { x = relu(x) }\noutput x }"),
    "repeats of repeats": ("HAP223", "model m { input x : f32[2]\n" + "".join(f"repeat r{k} in 100 {{ " for k in range(20)) + "x = relu(x)" + " }" * 20 + "\noutput x }"),
    "a dim of nothing": ("HAP205", "model m { input x : f32[9223372036854775807 - 9223372036854775807]\noutput x }"),
    "a dim past all bounds": ("HAP205", "model m { input x : f32[9223372036854775807 * 2]\noutput x }"),
    "endless defs": ("HAP225", "def f(x) { return f(x) }\nmodel m { input x : f32[2]; y = f(x); output y }"),
    "defs that double": ("HAP223", "".join(f"def f{k}(x) {{ a = f{k + 1}(x); b = f{k + 1}(a) as again; return b }}\n" for k in range(40)) + "def f40(x) { return relu(x) }\nmodel m { input x : f32[2]; y = f0(x); output y }"),
    "wrong names by the thousand": ("HAP510", PROGRAM % "\n".join(f"yy{k}@R = relu(x@R)" for k in range(10_000))),
    "repeats in programs": ("HAP513", PROGRAM.replace("    y = matmul", "    repeat layer in 3 { x = relu(x) }\n    y = matmul").replace("input x : f32[batch, d]", "input g : f32[batch, d]; x = relu(g)") % ("repeat layer in 0..3 { " * 30 + "}" * 30)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, content = CASES[name]
    path = tmp_path / "case.hap"
    if callable(content):
        content = content(tmp_path)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    began = time.process_time()
    status = main(["check", str(path), "--json"])
    spent = time.process_time() - began
    answer = json.loads(capsys.readouterr().out)
    found = [d["code"] for d in answer["diagnostics"]]
    assert code in found, found
    assert status == 2
    assert not answer["ok"]
    assert "HAP899" not in found, "that is a fault of hapdsl"
    assert spent < 2, f"{spent:.1f} s"
