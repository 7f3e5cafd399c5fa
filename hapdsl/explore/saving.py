"""Saving, reloading and formatting, with what has to be asked on the way."""

from __future__ import annotations

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

SAVE, FORMAT = "save", "format"


class Saving:
    """Writes what the formatter gives; a text that doesn't parse only if a person says so."""

    def __init__(self, app: Shell) -> None:
        self.app = app
        self.targets: dict[str, Path] = {}  # by document: where the save that is under way goes

    def save(self, document: Document) -> None:
        """Save to the document's file; one without a file gets a name first."""
        if document.path is None:
            self.save_as(document)
        else:
            self._begin(document, document.path)

    def save_as(self, document: Document) -> None:
        suggested = str(document.path or document.suggested or "")

        def named(answer: str | None) -> None:
            if answer is None:
                return
            path = Path(answer).expanduser()
            if path.suffix == "":
                path = path.with_suffix(".hap")
            if path.exists() and path != document.path:
                question = Question(f"{path} exists.", [("o", "overwrite it"), ("n", "don't save")])
                self.app.push_screen(question, lambda a: self._begin(document, path) if a == "o" else None)
            else:
                self._begin(document, path)

        self.app.push_screen(AskPath(f"Save {document.title} as", suggested), named)

    def _begin(self, document: Document, path: Path) -> None:
        """See that nothing else changed the file, then have the text formatted."""
        now = disk.on_disk(path) if path == document.path else None
        if now is not None and now != document.saved:
            question = Question(
                f"{path.name} was changed on disk by something else.", [("o", "overwrite it"), ("n", "don't save")]
            )
            self.app.push_screen(question, lambda a: self._format(document, path) if a == "o" else None)
        else:
            self._format(document, path)

    def _format(self, document: Document, path: Path) -> None:
        self.targets[document.key] = path
        self.app.work.format(document, SAVE)

    async def formatted(self, news: Formatted) -> None:
        """The formatter answered: write, or ask."""
        document = self.app.session.documents[news.key]
        if news.version != document.version:  # typed meanwhile: what counts is what is there now
            self.app.work.format(document, news.purpose)
            return
        if news.purpose == FORMAT:
            if news.text is None:
                self.app.tell(f"line {news.findings[0].line}: {news.findings[0].message}", "error")
            else:
                self._replace(document, news.text)
            return
        path = self.targets.pop(document.key)
        if news.text is not None:
            self._replace(document, news.text)
            self._write(document, path, news.text)
            return
        first = news.findings[0]
        question = Question(
            f"Line {first.line} doesn't parse: {first.message}", [("s", "save it as it is"), ("n", "don't save")]
        )
        self.app.push_screen(question, lambda a: self._write(document, path, document.text) if a == "s" else None)

    def _replace(self, document: Document, text: str) -> None:
        """The formatted text in place of the typed one, as one edit that can be undone."""
        pane = self.app.panes.get(document.key)
        if text == document.text:
            return
        if pane is not None:
            pane.editor.put(text)
        document.edit(text)
        self.app.work.check(document)

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
        self._replace(document, text)
        document.saved_as(document.path, text)
        self.app.refresh_all()
