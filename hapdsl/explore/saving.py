"""Saving, reloading and formatting, with what has to be asked on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hapdsl.explore import disk
from hapdsl.explore.state import Document
from hapdsl.explore.widgets.dialogs import AskPath, Question
from hapdsl.explore.work import Formatted
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.files import keep_tables, write_file

if TYPE_CHECKING:
    from hapdsl.explore.shell import Shell


class Saving:
    """Writes what the formatter gives; a text that it can't format only if a person says so."""

    def __init__(self, app: Shell) -> None:
        self.app = app

    def save(self, document: Document) -> None:
        """Save to the document's file; one without a file gets a name first."""
        if document.path is None:
            self.save_as(document)
        else:
            self._begin(document, document.path)

    def save_as(self, document: Document) -> None:
        """Ask for a file, and save to it."""
        question = AskPath(f"Save {document.title} as", str(document.path or document.suggested or ""))
        self.ask(question, "don't save", lambda path: self._begin(document, path), ".hap", document.path)

    def ask(
        self, question: AskPath, refuse: str, then: Callable[[Path], None], suffix: str = "", own: Path | None = None
    ) -> None:
        """Ask for a file's name, and whether it may be overwritten where it isn't `own`; a name without a suffix gets `suffix`."""

        def named(answer: str | None) -> None:
            if answer is None:
                return
            try:
                path = Path(answer).expanduser()
                if suffix and path.suffix == "" and path.name not in ("", ".."):
                    path = path.with_suffix(suffix)
                taken = path.exists() and path != own
            except (
                OSError,
                ValueError,
                RuntimeError,
            ) as problem:  # nobody's home, too long a name, a folder closed to us
                self.app.tell(f"{answer} can't be written: {getattr(problem, 'strerror', None) or problem}", "error")
                return
            if taken:
                overwrite = Question(f"{path} exists.", [("o", "overwrite it"), ("n", refuse)])
                self.app.push_screen(overwrite, lambda a: then(path) if a == "o" else None)
            else:
                then(path)

        self.app.push_screen(question, named)

    def _begin(self, document: Document, path: Path) -> None:
        """See that nothing else changed the file, then have the text formatted."""
        now = disk.on_disk(path) if path == document.path else None
        if now is not None and now != document.saved:
            question = Question(
                f"{path.name} was changed on disk by something else.", [("o", "overwrite it"), ("n", "don't save")]
            )
            self.app.push_screen(question, lambda a: self.app.work.format(document, path) if a == "o" else None)
        else:
            self.app.work.format(document, path)

    def formatted(self, news: Formatted) -> None:
        """The formatter answered: write, or ask."""
        document, target = self.app.session.documents[news.key], news.target
        if news.version != document.version:  # typed meanwhile: what counts is what is there now
            self.app.work.format(document, target)
        elif news.text is not None:
            self.app.put_text(document, news.text)
            if target is not None:
                self._write(document, target, news.text)
        elif target is None:
            self.app.tell(news.trouble, "error")
        else:
            question = Question(news.trouble, [("s", "save it as it is"), ("n", "don't save")])
            self.app.push_screen(question, lambda a: self._write(document, target, document.text) if a == "s" else None)

    def _write(self, document: Document, path: Path, text: str) -> None:
        try:
            write_file(path, text)
            if "init table" in text:
                keep_tables([p for p in self.app.session.sources if p != path], path)
        except HapError as stop:
            self.app.tell(stop.diagnostics[0].message, "error")
            return
        document.saved_as(path, text)
        self.app.keep_journal()
        self.app.tell(f"saved {path}")
        self.app.refresh_all()

    def reload(self, document: Document) -> None:
        """Read the file again; asks where edits would be lost."""
        if document.path is None:
            self.app.tell("this plan has no file yet", "warning")
        elif document.dirty:
            question = Question(
                f"{document.title} has unsaved edits.", [("r", "read the file, drop them"), ("n", "keep them")]
            )
            self.app.push_screen(question, lambda a: self._reload(document) if a == "r" else None)
        else:
            self._reload(document)

    def _reload(self, document: Document) -> None:
        assert document.path is not None
        text = disk.on_disk(document.path)
        if text is None:
            self.app.tell(f"{document.path} can't be read; what is on the screen stays", "error")
            return
        self.app.put_text(document, text)
        document.saved_as(document.path, text)
        self.app.keep_journal()
        self.app.refresh_all()
