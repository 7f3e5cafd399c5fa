"""Bad input of every kind gets a coded diagnostic with a place, exit status 2, and no wait."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.texts import PROGRAM, TINY

DEEP = "model m { loss = " + "(" * 5000 + "1" + ")" * 5000 + " }"

# name: (bytes of the file, the code, a line it must point at or None)
BAD: dict[str, tuple[bytes, str, int | None]] = {
    "not utf-8": (b"model m {\n  input caf\xe9 : f32[2]\n}\n", "HAP122", 2),
    "empty": (b"", "HAP124", 1),
    "blank": (b"\n\n   \n", "HAP124", 1),
    "only a comment": (b"# nothing\n", "HAP124", 1),
    "a NUL": (b"model m {\n\0}\n", "HAP125", 2),
    "ten megabytes": (b"# ten megabytes of nothing much\n" * 330_000, "HAP123", None),
    "deep nesting": (DEEP.encode(), "HAP104", 1),
    "two blocks of one name": (TINY.encode() + b"model tiny() { }\n", "HAP132", 19),
    "a cluster without devices": (b"cluster lab { }\n", "HAP401", 1),
    "shares that don't add up": ((TINY + PROGRAM.replace("[12, 4]", "[12, 5]")).encode(), "HAP505", 21),
    "negative shares": ((TINY + PROGRAM.replace("[12, 4]", "[17, -1]")).encode(), "HAP506", 21),
    "negative weights": (
        (TINY + PROGRAM.replace("shares batch = [12, 4]", "ratio batch = [3, -1]")).encode(),
        "HAP506",
        21,
    ),
    "weights of nothing": (
        (TINY + PROGRAM.replace("shares batch = [12, 4]", "ratio batch = [0, 0]")).encode(),
        "HAP506",
        21,
    ),
    "trains nothing": (b"model m() {\n    input x : f32[4]\n    y = relu(x)\n}\n", "HAP230", 1),
    "an unknown model": (PROGRAM.replace("on pair", "").encode(), "HAP242", 2),
    "an unknown cluster": ((TINY + PROGRAM.replace("on pair", "on pear")).encode(), "HAP424", 20),
    "an unknown tensor": ((TINY + PROGRAM.replace("w1@R, w2@R ", "w1@R, w3@R ")).encode(), "HAP510", 24),
    "wrong units": (TINY.replace("1 GB/s, latency", "1 GB, latency").encode(), "HAP491", 17),
    "a name that isn't there": (TINY.replace("relu(u)", "relu(v)").encode(), "HAP201", 8),
    "a setting by position": ((TINY + PROGRAM.replace("for tiny on", "for tiny(8) on")).encode(), "HAP583", 20),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(name: str, hapdsl: Run, tmp_path: Path) -> None:
    raw, code, line = BAD[name]
    path = tmp_path / "bad.hap"
    path.write_bytes(raw)
    before = time.process_time()
    found = hapdsl("check", path, "--json")
    assert time.process_time() - before < 2
    assert found.status == 2
    assert found.object["ok"] is False
    assert code in found.codes
    shown = next(d for d in found.object["diagnostics"] if d["code"] == code)
    assert shown["file"] == str(path)
    assert shown["message"]
    if line is not None:
        assert shown["line"] == line, shown
        assert shown["column"] >= 1


@pytest.mark.parametrize("verb", ["check", "fmt", "plan", "cost", "compare", "expand", "run", "draw"])
def test_files_that_are_none(verb: str, hapdsl: Run, tmp_path: Path) -> None:
    more = ["-o", str(tmp_path / "out.svg")] if verb == "draw" else []
    for file, code in ((tmp_path / "missing.hap", "HAP120"), (tmp_path, "HAP121"), ("a\0b", "HAP121")):
        found = hapdsl(verb, file, *more, "--json")
        assert (found.status, found.codes) == (2, [code])
        spoken = hapdsl(verb, file, *more)
        assert spoken.status == 2
        assert spoken.out == ""
        assert code in spoken.err


def test_import_cycle(hapdsl: Run, tmp_path: Path) -> None:
    (tmp_path / "a.hap").write_text('import "b.hap"\n' + TINY)
    (tmp_path / "b.hap").write_text('import "a.hap"\nop same(x[*i]) -> y[*i] { linear x }\n')
    found = hapdsl("check", tmp_path / "a.hap", "--json")
    assert found.status == 2
    assert "HAP131" in found.codes


def test_several_files_are_each_looked_at(hapdsl: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.hap").write_text("model {\n")
    found = hapdsl("check", tmp_path / "bad.hap", tiny, tmp_path / "none.hap", "--json")
    assert found.status == 2
    assert {d["file"] for d in found.object["diagnostics"]} == {str(tmp_path / "bad.hap"), str(tmp_path / "none.hap")}
    assert any("by_batch" in line for line in found.object["proven"])


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("chek",),
        ("check",),
        ("check", "--nmeric", "x.hap"),
        ("plan", "x.hap", "--gap", "much"),
        ("plan", "x.hap", "--gap", "7"),
        ("plan", "x.hap", "--time-limit", "-1"),
        ("plan", "x.hap", "--objective", "speed"),
        ("run", "x.hap", "--steps", "0"),
        ("run", "x.hap", "--nproc", "many"),
        ("explain", "HAP000"),
    ],
)
def test_bad_command_lines(arguments: tuple[str, ...], hapdsl: Run) -> None:
    spoken = hapdsl(*arguments)
    assert spoken.status == 2
    if not arguments:
        assert "Usage" in spoken.out + spoken.err
        return
    assert spoken.out == ""
    assert "error HAP" in spoken.err
    found = hapdsl(*arguments, "--json")
    assert found.status == 2
    assert found.codes in (["HAP850"], ["HAP890"])
    assert found.err == ""


def test_a_verb_misspelt(hapdsl: Run) -> None:
    assert "did you mean 'check'?" in hapdsl("chek").err
