"""An option that would be silently ignored is refused: HAP850, with what it needs and a way out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hapdsl.cli import cli
from hapdsl.commands.options import About
from tests.cli.conftest import Run
from tests.texts import TINY, TINY_CLUSTER

SKETCH = """
program mine for tiny on pair {
    shares batch = [12, 4]
    ...
}
"""
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


def refused(run: Run, *arguments: object) -> str:
    """What is said of a command line that can't be read, in words and with --json."""
    found = run(*arguments, *(["--json"] if arguments[0] != "explore" else []))
    if arguments[0] != "explore":
        assert (found.status, found.codes) == (2, ["HAP850"]), found
        message = found.object["diagnostics"][0]["message"]
        assert isinstance(message, str)
        return message
    assert found.status == 2 and found.err.startswith("error HAP850: "), found
    return " ".join(found.err.split())


def commands(
    command: click.Command = cli, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            assert below is not None
            yield from commands(below, (*words, name))
    else:
        yield words, command


def needing() -> Iterator[tuple[tuple[str, ...], About, click.Parameter]]:
    """Options that need another one of their verb."""
    for words, command in commands():
        for option in command.params:
            for about in option.about if isinstance(option, About) else ():
                if about.startswith("--"):
                    assert isinstance(option, About)
                    (needed,) = (p for p in command.params if about in p.opts)
                    yield words, option, needed


def value(option: click.Parameter) -> list[str]:
    """Something that it takes."""
    if isinstance(option, click.Option) and option.is_flag:
        return []
    return [option.type.choices[0] if isinstance(option.type, click.Choice) else "3"]


@pytest.mark.parametrize(
    ("words", "option", "needed"), [pytest.param(*n, id=" ".join((*n[0], n[1].opts[0]))) for n in needing()]
)
def test_an_option_that_needs_another(
    words: tuple[str, ...], option: About, needed: click.Parameter, hapdsl: Run, tiny: Path
) -> None:
    name, other = option.opts[0], needed.opts[0]
    required = ["--example", "x : f32[4, 4]"] if words == ("import",) else []
    said = refused(hapdsl, *words, tiny, *required, name, *value(option))
    assert f"{name} needs {other}: add {other}" in said and "leave it out" in said


def test_all_that_lack_the_same_are_named_at_once(hapdsl: Run, tiny: Path) -> None:
    said = refused(hapdsl, "cost", tiny, "--objective", "sync", "--points", "9", "--set", "batch=8")
    assert said == (
        "--points, --set and --objective need --sweep: add --sweep NAME=LOW..HIGH, or leave them out"
    )  # though two say what would be so anyway


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("why", "--gap", "0.01"), "--gap is about planning: program 'by_batch' is explained as it stands"),
        (("why", "h", "--time-limit", "1", "--all-devices"), "--time-limit and --all-devices are about planning"),
        (("why", "h", "--program", "by_batch", "--model", "tiny"), "--model is about planning"),
        (("cost", "--sweep", "link=1..9GB/s", "--program", "by_batch", "--set", "batch=8"), "--set is about planning"),
        (("cost", "--sweep", "link=1..9GB/s", "--program", "by_batch", "--model", "tiny"), "--model is about planning"),
        (("plan", "--program", "by_batch", "--evaluate"), "--evaluate is about planning a model: program 'by_batch'"),
        (("plan", "--program", "by_batch", "--set", "batch=8"), "--set is about planning a model"),
        (("draw", "-o", "p.svg", "--program", "by_batch", "--set", "batch=8"), "--set is about a model"),
        (("draw", "-o", "p.svg", "--cluster", "pair", "--set", "batch=8"), "--set is about a model"),
        (("draw", "-o", "p.svg", "--cluster", "pair", "--timeline"), "--timeline is about a program"),
        (("draw", "-o", "p.svg", "--set", "batch=8", "--on", "pair"), "--on is about a program"),
        (("explore", "--example", "x : f32[4]", "--ops", "o.hap"), "--example and --ops are about importing"),
        (("run", "--check-replicas", "11"), "--check-replicas 10 compares at the last one"),
        (("profile", "--nproc", "1", "-o", "c.hap", "--max-size", "1MiB"), "--max-size is about messages"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, tuple) else "",
)
def test_an_option_about_something_else(
    arguments: tuple[str, ...], expected: str, hapdsl: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.parent)
    verb, *rest = arguments
    assert expected in refused(hapdsl, verb, *([] if verb == "profile" else [tiny]), *rest)
    assert list(tiny.parent.iterdir()) == [tiny]


def test_where_they_say_something_they_are_taken(hapdsl: Run, tiny: Path, tmp_path: Path) -> None:
    assert hapdsl("why", tiny, "h", "--objective", "overlap", "--json").object["objective"] == "overlap"
    anew = hapdsl("why", tiny, "h", "--model", "tiny", "--gap", "0.5", "--all-devices", "--json").object
    assert anew["program"] == "tiny_plan"
    sweep = ("--sweep", "link=1..9GB/s", "--program", "by_batch", "--objective", "overlap", "--points", "3")
    swept = hapdsl("cost", tiny, *sweep, "--json").object
    assert (swept["objective"], len(swept["values"])) == ("overlap", 3)
    assert hapdsl("draw", tiny, "--set", "batch=8", "-o", tmp_path / "m.dot").status == 0


def test_what_only_evaluates_takes_nothing_about_training(hapdsl: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "evaluated.hap"
    assert hapdsl("plan", model, "--evaluate", "-o", out).status == 0
    said = refused(hapdsl, "run", out, "--checkpoint", tmp_path / "c", "--loss-scale", "off")
    assert said.startswith("--checkpoint and --loss-scale are about training: program 'tiny_plan' only evaluates")
    assert not (tmp_path / "c").exists()


def test_numeric_where_there_is_nothing_to_run(hapdsl: Run, model: Path, tmp_path: Path, tiny: Path) -> None:
    sketch, cluster = tmp_path / "sketch.hap", tmp_path / "cluster.hap"
    sketch.write_text(TINY + SKETCH, encoding="utf-8")
    cluster.write_text(TINY_CLUSTER, encoding="utf-8")
    said = refused(hapdsl, "check", "--numeric", model, sketch, cluster)
    assert "--numeric is about complete programs" in said and "sketch.hap" in said and "hapdsl plan" in said
    assert hapdsl("check", "--numeric", sketch, tiny).status == 0  # one of them is enough
    wrong = tmp_path / "wrong.hap"
    wrong.write_text("model m { y = rellu(1) }\n", encoding="utf-8")
    assert "HAP850" not in hapdsl("check", "--numeric", wrong, "--json").codes  # what is wrong comes first


def test_processes_that_torchrun_has_not_started(
    hapdsl: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many there are says torchrun; another number was taken for nothing."""
    monkeypatch.setattr("hapdsl.run.profile.profile", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr("hapdsl.run.train.train", lambda *_, **__: pytest.fail("trained"))
    monkeypatch.setattr("hapdsl.commands.running.SPEAK_S", 0.0)
    for name, text in TORCHRUN.items():
        monkeypatch.setenv(name, text)
    assert hapdsl("profile", "--nproc", "3", "-o", tmp_path / "c.hap", "--json").codes == ["HAP718"]
    assert hapdsl("run", tiny, "--nproc", "3", "--json").codes == ["HAP718"]
