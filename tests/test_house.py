"""The house itself: what is imported when, what the wheel carries, what the project's files say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hapdsl.cli import MODULES, VERBS
from tests.texts import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))

LOADED = """
import sys
from hapdsl.cli import main
status = main(sys.argv[1:])
heavy = sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "textual", "scipy", "rich", "graphviz"})
print(status, *heavy, file=sys.stderr)
"""


def loaded_by(*arguments: str) -> list[str]:
    """The exit status of a call in a fresh process, and which of the heavy packages it imported."""
    ran = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, cwd=REPOSITORY)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr.strip().splitlines()[-1].split()


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("--help",), []),
        (("--version",), []),
        (("version", "--json"), []),
        (("explain", "HAP101"), []),
        (("check", "programs/models/vit_digits.hap", "programs/plans/mlp_megatron.hap"), []),
        (("check", "no/such.hap"), []),
        (("fmt", "--check", "programs/clusters/digits.hap"), []),
        (("run", "--help"), []),
        (("import", "--help"), []),
        (("explore", "--help"), []),
    ],
)
def test_what_is_imported(arguments: tuple[str, ...], wanted: list[str]) -> None:
    _, *heavy = loaded_by(*arguments)
    assert heavy == wanted


MLP = ("programs/models/mlp.hap", "--cluster", "std/digits.hap", "--set", "d=8", "--set", "hidden=16")


@pytest.mark.parametrize("arguments", [("cost", "programs/plans/mlp_megatron.hap"), ("plan", *MLP)], ids=lambda a: a[0])
def test_planning_and_costing_need_no_torch(arguments: tuple[str, ...]) -> None:
    status, *heavy = loaded_by(*arguments)
    assert status == "0"
    assert not {"torch", "textual"} & set(heavy)


MOST_LINES = 420  # four hundred are the rule, and a few more no reason to stop a build


def test_no_module_is_long() -> None:
    long = {
        str(path.relative_to(REPOSITORY)): lines
        for room in ("hapdsl", "tests", "benchmarks")
        for path in (REPOSITORY / room).rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MOST_LINES
    }
    assert long == {}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """hapdsl installed, not editable, into a folder of its own: from a wheel that was made from the sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    hatch = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)]
    subprocess.run(hatch, check=True, timeout=100, cwd=REPOSITORY, capture_output=True)
    (source,) = folder.glob("hapdsl-*.tar.gz")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)], check=True, timeout=100
    )
    (wheel,) = folder.glob("hapdsl-*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel)], check=True, timeout=100
    )
    return folder / "site"


def test_the_wheel_has_all_it_needs(installed: Path, tmp_path: Path) -> None:
    """Grammar, theory and examples are found by an installation that has no checkout."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}

    def call(*arguments: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "hapdsl", *arguments], capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    where = "import hapdsl; print(hapdsl.__file__)"
    shown = subprocess.run([sys.executable, "-c", where], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert shown.stdout.startswith(str(installed))
    (tmp_path / "mine.hap").write_text('import "std/mlp.hap"\nimport "std/digits.hap"\n')
    call("plan", "mine.hap", "--model", "mlp", "--set", "hidden=16", "--set", "d=8", "-o", "plan.hap")
    assert "proven" in call("check", "plan.hap")
    shipped = sorted(
        p.relative_to(installed / "hapdsl" / "_data") for p in (installed / "hapdsl" / "_data").rglob("*.*")
    )
    here = [p.relative_to(REPOSITORY) for f in ("grammar", "programs") for p in (REPOSITORY / f).rglob("*.*")]
    assert shipped == sorted(here)
    assert (installed / "hapdsl" / "py.typed").is_file()
    assert list((installed / "hapdsl" / "theory").glob("*.hap"))


def test_pins_cover_the_requirements() -> None:
    pins = dict(line.split("==") for line in (REPOSITORY / "constraints.txt").read_text().split())
    normal = {name.lower().replace("_", "-") for name in pins}
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [*PROJECT["project"]["dependencies"], *(r for listed in extras.values() for r in listed)]
    names = {re.split(r"[<>=\[ ]", r)[0] for r in wanted} - {"hapdsl"}
    assert names <= normal
    assert pins["torch"] == "2.13.0"  # without a local version: which build it is, the installer decides
    assert all("+" not in version for version in pins.values())


def test_only_lower_bounds() -> None:
    for requirement in PROJECT["project"]["dependencies"]:
        assert re.fullmatch(r"[a-z-]+>=[\d.]+", requirement), requirement


def test_every_verb_has_help() -> None:
    ran = subprocess.run([sys.executable, "-m", "hapdsl.cli", "--help"], capture_output=True, text=True, cwd=REPOSITORY)
    assert ran.returncode == 0
    for verb, words in VERBS.items():
        assert verb in ran.stdout
        assert words in ran.stdout
        assert (REPOSITORY / "hapdsl" / "commands" / f"{MODULES.get(verb, verb)}.py").is_file()
