"""Unsaved edits, kept beside: after a crash they are offered back.

One file per session, in the platform's folder for state. It is there only while something is unsaved. Its name says which file was open, so
that the next session on that finds it; what another session keeps, or has left behind, is never written over.
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
    """An edit that was not saved: the absolute `path` of its file, or a `suggested` name for a plan that has none."""

    key: str
    text: str
    path: str | None
    suggested: str | None

    def is_of(self, document: Document) -> bool:
        """Is it about a document's file?"""
        return self.path is not None and document.path is not None and Path(self.path) == _whole(document.path)


class Journal:
    """Of the session whose first file is `main`. `folder` None keeps nothing."""

    def __init__(self, folder: Path | None, main: Path | None) -> None:
        self.file: Path | None = None
        self.name = ""  # that the files of all sessions on `main` begin with
        self.read: list[Path] = []  # what `left` has told of
        if folder is not None and main is not None:
            digest = hashlib.sha256(str(_whole(main)).encode("utf-8", "surrogateescape")).hexdigest()[:16]
            self.name = f"{main.stem[:40]}-{digest}"
            self.file = folder / f"{self.name}-{os.urandom(4).hex()}.json"

    def left(self) -> list[Kept]:
        """What earlier sessions left, the oldest first; nothing of one that is still running."""
        kept: list[Kept] = []
        self.read = []
        for file in self._others():
            try:
                found = json.loads(file.read_text(encoding="utf-8"))
                if found["pid"] != os.getpid() and _runs(int(found["pid"])):
                    continue
                kept += [
                    Kept(str(d["key"]), str(d["text"]), d.get("path"), d.get("suggested")) for d in found["documents"]
                ]
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                continue
            self.read.append(file)
        return kept

    def drop(self) -> None:
        """What was left is restored, or nobody wants it."""
        for file in self.read:
            with suppress(OSError):
                file.unlink()
        self.read = []

    def _others(self) -> list[Path]:
        if self.file is None:
            return []
        try:
            files = [
                f
                for f in self.file.parent.iterdir()
                if f != self.file and f.name.startswith(self.name) and f.suffix == ".json"
            ]
            return sorted(files, key=lambda f: f.stat().st_mtime)
        except OSError:
            return []

    def keep(self, documents: Iterable[Document]) -> bool:
        """Write what is unsaved; False where that can't be, which must not stop anybody."""
        if self.file is None:
            return False
        unsaved = [
            {
                "key": d.key,
                "text": d.text,
                "path": str(_whole(d.path)) if d.path is not None else None,
                "suggested": str(d.suggested) if d.suggested is not None else None,
            }
            for d in documents
        ]
        if not unsaved:
            self.forget()
            return True
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_file(self.file, json.dumps({"pid": os.getpid(), "documents": unsaved}))
        except (OSError, HapError):
            return False
        return True

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


def _whole(path: Path) -> Path:
    """The path from the root, where there is a folder that it is relative to."""
    with suppress(OSError):
        return path.absolute()
    return path
