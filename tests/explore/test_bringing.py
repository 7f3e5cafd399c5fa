"""A module that becomes a model while the screen is there."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hapdsl.commands.explore import command
from hapdsl.commands.output import Output
from hapdsl.explore import children
from hapdsl.explore.app import ExploreApp, waiting_session
from hapdsl.explore.bringing import Bring
from hapdsl.lang.parse import parse

from .conftest import Local, on_screen, run, settled

NETS = """
from torch import nn

print("a module that talks {")

def net():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

def tired():
    raise ValueError("not [/x] today")
"""
EXAMPLE = ("--example", "x : f32[batch = 8, 4]; label : i64[batch]", "--loss", "cross_entropy")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own, with a module in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    (tmp_path / "nets.py").write_text(NETS)
    return tmp_path


def app_for(factory: str, name: str) -> ExploreApp:
    bring = Bring(factory, name, EXAMPLE)
    app = ExploreApp(waiting_session(bring), connect=Local, search=False)
    app.bring, app.planning, app.haste = bring, False, 0.05
    return app


def test_a_module_is_imported_beside_the_screen_and_gets_a_name_when_saved(here: Path) -> None:
    async def work() -> None:
        app = app_for("nets:net", "net")
        async with app.run_test(size=(120, 30)) as pilot:
            await pilot.pause()
            seen = on_screen(app)
            assert "importing nets:net…" in seen and "nets:net is being imported" in seen and "error" not in seen
            await pilot.press("p")  # everything answers
            await pilot.pause()
            assert any("no model yet" in n.message for n in app._notifications)
            await settled(app, pilot, lambda: not app.session.importing)
            document = app.session.main
            assert (
                document.text.startswith("# imported from nets:net\nmodel net(batch = 8")
                and not document.findings
                and not document.dirty
            )
            assert app.session.brought is not None
            np.savez(f"{app.session.brought}.npz", table=np.ones(3))  # as where a module has constants
            await pilot.press("2")
            app.editor.put(
                document.text.replace(
                    "param _0.bias   : f32[hidden]          init zeros", "frozen _0.bias : f32[hidden] init table"
                )
            )
            await settled(app, pilot)
            await pilot.press("ctrl+s")
            await pilot.pause()
            assert "Save net.hap as" in on_screen(app)
            await pilot.press("enter")
            await settled(app, pilot, lambda: (here / "net.hap").exists())
            assert parse((here / "net.hap").read_text()) == parse(document.text) and not document.dirty
            assert list(np.load(here / "net.hap.npz")) == ["table"]
            folder = app.session.brought.parent
        assert not folder.exists()

    before = set(sys.modules)
    run(work())
    assert "torch" not in set(sys.modules) - before


def test_what_goes_wrong_is_on_the_screen_and_can_be_tried_again(here: Path) -> None:
    async def work() -> None:
        app = app_for("nets:tired", "tired")
        async with app.run_test(size=(120, 30)) as pilot:
            await pilot.pause(0.2)
            await pilot.press("escape")
            await settled(app, pilot, lambda: not app.session.importing)
            assert "It was stopped. ctrl+r imports it again." in on_screen(app) and app.importer is None
            await pilot.press("ctrl+r")
            await pilot.pause()
            await settled(app, pilot, lambda: not app.session.importing)
            seen = on_screen(app)
            assert "HAP870 nets:tired fails: ValueError: not [/x] today" in seen and "nets.py, line 10" in seen

    run(work())


def test_options_that_say_nothing_are_refused(here: Path) -> None:
    def said(*words: str) -> str:
        done = CliRunner().invoke(command, words, obj=Output())
        assert done.exit_code == 2
        return " ".join(done.output.split())

    assert "a FACTORY needs --example" in said("nets:net")
    assert "--set is about a FILE" in said("nets:net", *EXAMPLE, "--set", "batch=3")
    assert "--loss is about importing" in said("nets.hap", "--loss", "mse_loss")
    assert "a trace is of a run" in said("nets:net", "x.json", *EXAMPLE)


def test_an_import_that_cannot_be_started_is_said(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(*words: str) -> children.Child:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(children, "start", start)

    async def work() -> None:
        app = app_for("nets:net", "net")
        async with app.run_test(size=(120, 30)) as pilot:
            await settled(app, pilot, lambda: not app.session.importing)
            assert "Resource temporarily unavailable" in on_screen(app) and "ctrl+r imports it again" in on_screen(app)

    run(work())
