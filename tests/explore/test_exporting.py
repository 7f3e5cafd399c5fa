"""Exports as the adviser writes them, without a screen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hapdsl.explore import exporting
from hapdsl.explore.desk import Desk
from hapdsl.explore.workers import environment
from hapdsl.run.initial import initial
from hapdsl.workbench import Workbench


@pytest.mark.parametrize("found", [False, True], ids=["in a file", "found and not saved"])
@pytest.mark.parametrize("name", ["m.hap", "train.py"])
def test_an_export_takes_along_what_its_text_can_t_say(small: Path, name: str, found: bool) -> None:
    """Tables lie beside the file that the model stands in, which may be imported; a plan that was found stands in no file at all."""
    model, brace, rest = small.read_text().replace("init zeros", "init table").partition("cluster box")
    nets, away = small.with_name("nets.hap"), small.parent / "away"
    nets.write_text(model)
    np.savez(f"{nets}.npz", b1=np.arange(1024))
    away.mkdir()
    text = (model if found else 'import "nets.hap"\n') + brace + rest
    request = {"path": str(small.with_name("none.hap")) if found else str(small), "text": text, "program": "mixed"}
    more = {"sources": [str(nets)]} if found else {}
    answer = exporting.export(Desk(), {**request, **more, "to": str(away / name)})
    assert answer["files"] == [str(away / name), f"{away / name}.npz"]
    assert exporting.alone(Desk(), {**request, **more})["sources"][-1] == str(nets)
    if name == "m.hap":
        assert initial(Workbench(away / name).graph())["b1"].tolist() == list(range(1024))
    else:
        (away / name).write_text((away / name).read_text().replace("STEPS = 100", "STEPS = 1"))
        words = [sys.executable, name]
        done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=100, cwd=away)
        assert done.returncode == 0 and done.stdout.startswith("step 1: "), done.stderr
