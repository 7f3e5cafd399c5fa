"""A module that becomes a model while the screen is there: `hapdsl explore PACKAGE.MODULE:FACTORY`.

`hapdsl import` does that in a process of its own, so torch is never here. Its text is an unsaved document; `ctrl+r` imports it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hapdsl.explore import children, disk
from hapdsl.explore.editing import Editing
from hapdsl.explore.seeking import Seeking
from hapdsl.explore.session import Session
from hapdsl.explore.state import Analysis, Document
from hapdsl.explore.viewing import Viewing
from hapdsl.explore.widgets.dialogs import Question


@dataclass(frozen=True)
class Bring:
    """What is imported: the `factory`, the model's `name`, and the other words of `hapdsl import`."""

    factory: str
    name: str
    words: tuple[str, ...] = ()


def session_of(bring: Bring) -> Session:
    """A session whose first document waits for the model's text."""
    session = Session()
    document = session.open(Document("file", "", suggested=Path(f"{bring.name}.hap")))
    document.analysis = Analysis(document.version)  # nothing is wrong with a text that isn't there yet
    session.importing = bring.factory
    return session


class Bringing(Editing, Seeking, Viewing):
    """`bring` is what to import; `planning` says whether a plan is looked for when it is there."""

    bring: Bring | None = None
    planning: bool = True
    importer: children.Child | None = None
    imports: TemporaryDirectory[str] | None = None  # where the text comes, with tables that it can't say

    def started(self) -> None:
        super().started()
        if self.bring is not None:
            self._again(self.bring)

    def _again(self, bring: Bring) -> None:
        self.session.importing, self.session.not_imported = bring.factory, ""
        self.refresh_all()
        self.run_worker(self._import(bring), exit_on_error=False)

    async def _import(self, bring: Bring) -> None:
        try:
            self.imports = self.imports or TemporaryDirectory(prefix="hapdsl-import-", ignore_cleanup_errors=True)
            file = Path(self.imports.name, f"{bring.name}.hap")
            words = (bring.factory, "--name", bring.name, *bring.words, "-o", str(file), "--json")
            self.importer = await children.start("import", *words)
            said, complaints = await self.importer.communicate()
            status = self.importer.returncode or 0
            text = disk.on_disk(file) if status == 0 else None
            why = children.why_not(said, complaints)
        except OSError as problem:
            status, text, why = 1, None, f"it can't be started: {problem}"
        self.importer = None
        self.session.importing = ""
        if text is not None:
            self.session.brought = file
            self._take(text)
        elif status < 0:
            self.session.not_imported = "It was stopped. ctrl+r imports it again."
        else:
            self.session.not_imported = f"{why}\nctrl+r imports it again."
            self.tell(f"{bring.factory} could not be imported: {why.splitlines()[0]}", "error")
        self.refresh_all()

    def _take(self, text: str) -> None:
        """The model's text is the first document's; what was typed there meanwhile can be had back."""
        document = self.session.main
        self.take_typed(self.panes[document.key])
        if document.touched:
            self.put_text(document, text)
        else:
            document.edit(text, by_hand=False)
            self._rewritten(document)
        self.work.check(document)
        if self.planning:
            self.work.plan()

    def action_plan(self) -> None:
        if self.session.importing:
            self.tell("there is no model yet: it is being imported")
        else:
            super().action_plan()

    def action_cancel(self) -> None:
        if self.importer is not None:
            children.kill(self.importer)
        else:
            super().action_cancel()

    def action_reload(self) -> None:
        """What came from a module comes from there again."""
        document, bring = self.session.document, self.bring
        if bring is None or document is not self.session.main or document.path is not None:
            super().action_reload()
        elif not self.session.importing and document.dirty:
            question = Question(
                "Importing it again replaces what was edited.", [("i", "import it"), ("n", "keep the edits")]
            )
            self.push_screen(question, lambda answer: self._again(bring) if answer == "i" else None)
        elif not self.session.importing:
            self._again(bring)

    async def on_unmount(self) -> None:
        if self.importer is not None:
            await children.end(self.importer, 0.0)
        if self.imports is not None:
            self.imports.cleanup()
