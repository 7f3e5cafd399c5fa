"""Unsaved edits, kept beside: after a crash they are offered back.

One file per file that was open, in the platform's folder for state. It is there only while something is unsaved.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hapdsl.explore.state import Document
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.files import write_file


@dataclass(frozen=True)
class Kept:
    """An edit that was not saved: `path` of its file, or a `suggested` name for a plan that has none."""

    key: str
    text: str
    path: str | None
    suggested: str | None


class Journal:
    """Of the session whose first file is `main`. `folder` None keeps nothing."""

    def __init__(self, folder: Path | None, main: Path | None) -> None:
        self.file: Path | None = None
        if folder is not None and main is not None:
            digest = hashlib.sha256(str(main.absolute()).encode()).hexdigest()[:16]
            self.file = folder / f"{main.stem[:40]}-{digest}.json"

    def left(self) -> list[Kept]:
        """What an earlier session left; nothing where it is still running."""
        if self.file is None:
            return []
        try:
            found = json.loads(self.file.read_text(encoding="utf-8"))
            if found["pid"] != os.getpid() and _runs(int(found["pid"])):
                return []
            return [Kept(str(d["key"]), str(d["text"]), d.get("path"), d.get("suggested")) for d in found["documents"]]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def keep(self, documents: Iterable[Document]) -> None:
        """Write what is unsaved; raises nothing, since a journal that can't be written must not stop anybody."""
        if self.file is None:
            return
        unsaved = [
            {
                "key": d.key,
                "text": d.text,
                "path": str(d.path) if d.path is not None else None,
                "suggested": str(d.suggested) if d.suggested is not None else None,
            }
            for d in documents
        ]
        if not unsaved:
            self.forget()
            return
        with suppress(OSError, HapError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_file(self.file, json.dumps({"pid": os.getpid(), "documents": unsaved}))

    def forget(self) -> None:
        """Nothing is unsaved (any more)."""
        if self.file is not None:
            with suppress(OSError):
                self.file.unlink()


def folder() -> Path:
    """Where journals lie."""
    import platformdirs

    return platformdirs.user_state_path("hapdsl", appauthor=False) / "unsaved"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
