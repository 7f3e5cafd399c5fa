"""The command line called in this process, with what it wrote and its exit status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hapdsl.cli import main
from tests.texts import PROGRAM, TINY, object_in


@dataclass(frozen=True)
class Ran:
    """What a call gave."""

    status: int
    out: str
    err: str

    @property
    def object(self) -> dict[str, Any]:
        """The one JSON object on stdout; anything else there fails."""
        return object_in(self.out)

    @property
    def codes(self) -> list[str]:
        return [d["code"] for d in self.object["diagnostics"]]


Run = Callable[..., Ran]


@pytest.fixture
def hapdsl(capsys: pytest.CaptureFixture[str]) -> Run:
    """Calls `hapdsl` with arguments; a traceback anywhere fails the test."""

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        status = main([str(a) for a in arguments])
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return Ran(status, said.out, said.err)

    return call


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A file with a model, a cluster and a proven program."""
    path = tmp_path / "tiny.hap"
    path.write_text(TINY + PROGRAM, encoding="utf-8")
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file with a model and a cluster."""
    path = tmp_path / "model.hap"
    path.write_text(TINY, encoding="utf-8")
    return path
