"""`doctor`, `completion`, and what verbs say where a package isn't installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata

import pytest

from hapdsl.cli import VERBS
from hapdsl.commands import doctor
from tests.texts import REPOSITORY

WITHOUT = "import sys\nfor m in sys.argv[1].split(','): sys.modules[m] = None\nfrom hapdsl.cli import main\nsys.exit(main(sys.argv[2:]))\n"
PLAN = "programs/plans/mlp_zero.hap"


def without(packages: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A verb in a process where some packages can't be imported."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, packages, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )


def test_doctor_tells_what_is_there(hapdsl) -> None:
    done = hapdsl("doctor", "--json")
    found = {f["what"]: f for f in done.object["findings"]}
    assert done.status == 0 and done.object["ok"]
    assert found["torch"]["found"] == metadata.version("torch")
    assert "gloo" in found["torch backends"]["found"]
    assert found["dot"]["state"] == ("ok" if shutil.which("dot") else "missing")
    assert f"{len(os.sched_getaffinity(0))} core" in found["machine"]["found"]


def test_doctor_says_what_to_do_about_what_is_not(hapdsl, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name in ("scipy", "textual"):
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setenv("PATH", "/nowhere")
    done = hapdsl("doctor")
    assert done.status == 1
    assert "! scipy" in done.out and "pip install scipy" in done.out
    assert "- textual" in done.out and "- dot" in done.out and "apt install graphviz" in done.out


def test_doctor_says_why_torch_can_t_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(command: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="Traceback …\nImportError: libcudart.so: not found\n")

    monkeypatch.setattr(subprocess, "run", broken)
    found = doctor._torch()
    assert found.state == "missing" and found.found == "torch can't be imported: ImportError: libcudart.so: not found"


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(("check", PLAN), 0), (("cost", PLAN), 0), (("run", PLAN, "--steps", "1"), 2), (("check", "--numeric", PLAN), 2)],
)
def test_without_torch(arguments: tuple[str, ...], status: int) -> None:
    done = without("torch,safetensors", *arguments)
    assert done.returncode == status, done.stderr
    assert ("HAP853" in done.stderr and "pip install torch" in done.stderr) == bool(status)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import hapdsl; hapdsl.plan", "hapdsl.plan works on modules and needs torch: pip install torch"),
        (
            "import runpy; runpy.run_module('hapdsl.demo', run_name='__main__')",
            "the demo needs torch, not installed here",
        ),
    ],
)
def test_python_without_torch_says_so_too(code: str, said: str) -> None:
    hide = "import sys, importlib.util as u\nsys.modules['torch'] = None\nfind = u.find_spec\nu.find_spec = lambda n: None if n == 'torch' else find(n)\n"
    done = subprocess.run([sys.executable, "-c", hide + code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and said in done.stderr


def test_a_missing_package_is_an_object_with_json() -> None:
    done = without("scipy", "plan", "programs/models/mlp.hap", "--cluster", "programs/clusters/digits.hap", "--json")
    (found,) = json.loads(done.stdout)["diagnostics"]
    assert done.returncode == 2 and found["code"] == "HAP853" and "scipy" in found["message"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_hapdsl(hapdsl, shell: str) -> None:
    done = hapdsl("completion", shell)
    assert done.status == 0 and f"_HAPDSL_COMPLETE={shell}_complete" in done.out


def test_verbs_and_options_are_completed() -> None:
    def completed(words: str, number: int) -> list[str]:
        environment = {
            **os.environ,
            "_HAPDSL_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(number),
        }
        done = subprocess.run(
            [sys.executable, "-m", "hapdsl.cli"], env=environment, capture_output=True, text=True, check=True
        )
        return [line.removeprefix("plain,") for line in done.stdout.split()]

    assert completed("hapdsl ", 1) == list(VERBS)
    assert completed("hapdsl explain HAP56", 2)[:2] == ["HAP560", "HAP561"] and completed("hapdsl explain matmul_", 2)
    assert completed("hapdsl cost --ov", 2) == [] and "--objective" in completed("hapdsl plan --obj", 2)
    # Files are the shell's own to complete.
    assert [completed(f"hapdsl {words}", 3) for words in ("draw x", "check a.hap b", "draw -o x")] == [
        [],
        ["file,b"],
        ["file,x"],
    ]
    assert completed("hapdsl draw pl", 2) == ["file,pl"] and completed("hapdsl run --resume ck", 3) == ["dir,ck"]
