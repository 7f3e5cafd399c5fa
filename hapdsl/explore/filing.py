"""Files around the screen: exports, runs, the clipboard, another editor, changes on disk, the journal of unsaved edits."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from textual.app import SuspendNotSupported

from hapdsl.explore import children, disk
from hapdsl.explore.inquiries import ADVISER
from hapdsl.explore.journal import Kept
from hapdsl.explore.looking import Looking
from hapdsl.explore.protocol import trouble
from hapdsl.explore.session import FILE, Plan
from hapdsl.explore.state import Document
from hapdsl.explore.widgets.dialogs import AskPath, Question
from hapdsl.explore.work import Answered
from hapdsl.explore.workers import ending
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.files import keep_tables

STEPS = 8  # of a run that is only to be measured
LOOKS = 2.0  # seconds between two looks at the files
_IMPORT = re.compile(r'^\s*import\s+"((?!std/)[^"]+)"', re.MULTILINE)


class Filing(Looking):
    """`runner` is the process of a run that is under way, `stopped` says that a person has ended it."""

    running: bool = False
    stopped: bool = False
    runner: children.Child | None = None
    runs: TemporaryDirectory[str] | None = None  # where runs have their texts and traces
    missing: frozenset[str] = frozenset()  # documents whose files are gone
    strange: frozenset[tuple[str, str]] = frozenset()  # (document, text on disk) that a person was told of

    @cached_property
    def imported(self) -> dict[str, tuple[object, ...]]:
        """By document: the files that it imports, and when they were written."""
        return {}

    # -- exports -----------------------------------------------------------------------

    def action_export(self) -> None:
        self._export(
            "", "the suffix says as what: .hap, .py, .dot, .svg, .png, .json (trace), .chart.svg (timeline)", ".svg"
        )

    def action_export_script(self) -> None:
        """A script that trains the program."""
        self._export("train_", "a Python script that trains the program under torchrun", ".py")

    def _export(self, prefix: str, below: str, suffix: str) -> None:
        subject = self.subject()
        if subject is None:
            self.tell("only a proven program with a cluster can be exported", "warning")
            return
        document, program = self.session.documents[subject[0]], subject[2]
        folder = (document.path or document.suggested or Path("x")).parent
        question = AskPath(f"Export {program} to", str(folder / f"{prefix}{program}{suffix}"), below)
        self.saving.ask(question, "don't export", lambda path: self._write_export(document, program, path))

    def _write_export(self, document: Document, program: str, path: Path) -> None:
        kind, made = "chart" if path.name.endswith(".chart.svg") else "", [str(p) for p in self.session.sources]
        self.work.inquiries.ask(
            "export", "export", [(document, program)], None, ADVISER, to=str(path), kind=kind, sources=made
        )

    async def heard_export(self, news: Answered) -> None:
        if "files" not in news.answer:
            self.tell(trouble(news.answer), "error")
            return
        for words in news.answer["warnings"]:
            self.tell(words, "warning")
        self.tell(f"written to {', '.join(news.answer['files'])}")

    # -- runs ----------------------------------------------------------------------------

    def action_run(self) -> None:
        """Run some steps of the program on local processes, and lay what they took over the prediction."""
        subject = self.subject()
        if self.running:
            self.tell("it is running; esc stops it")
        elif subject is None:
            self.tell("only a proven program with a cluster can be run", "warning")
        else:
            document, made = self.session.documents[subject[0]], [str(p) for p in self.session.sources]
            self.work.inquiries.ask("alone", "alone", [(document, subject[2])], subject, ADVISER, sources=made)

    async def heard_alone(self, news: Answered) -> None:
        if "alone" not in news.answer:
            self.tell(trouble(news.answer), "error")
        elif not self.running:
            self.running, self.stopped = True, False
            self.tell(f"running {STEPS} steps on {news.answer['devices']} processes of this machine; esc stops it")
            made = [Path(path) for path in news.answer["sources"]]
            self.run_worker(self._run(news.answer["alone"], made, news.question.subject[2]), exit_on_error=False)

    async def _run(self, text: str, made: list[Path], program: str) -> None:
        """Run a text's program in a process of its own, and say what came of it."""
        try:
            self.runs = self.runs or TemporaryDirectory(prefix="hapdsl-run-", ignore_cleanup_errors=True)
            folder = Path(tempfile.mkdtemp(dir=self.runs.name))  # each run's trace has a name of its own
            file, trace = folder / "plan.hap", folder / f"{program}.trace.json"
            file.write_text(text, encoding="utf-8")
            keep_tables(made, file)
            self.runner = await children.start(
                "run", str(file), "--program", program, "--steps", str(STEPS), "--trace", str(trace), "--json"
            )
            said, complaints = await self.runner.communicate()
            status = self.runner.returncode or 0
        except (OSError, HapError) as problem:
            self.tell(f"it can't be run: {problem}", "error")
            return
        finally:
            self.running = False
        self.runner = None
        if self.stopped:
            return
        if status == 0 and trace.is_file():
            self.trace = str(trace)
            self.run_worker(self.run_action("focus_timeline"))
            self.tell(f"what {program} took on this machine is beside the prediction for its cluster")
        else:
            self.tell(f"the run ended with {ending(status)}: {children.why_not(said, complaints)}", "error")
        self.refresh_all()

    def stop_run(self) -> bool:
        """End a run that is under way; False where none is."""
        if self.runner is None or self.stopped:
            return False
        self.stopped = True
        children.interrupt(self.runner)
        self.tell("the run is stopped")
        return True

    async def on_unmount(self) -> None:
        """Nothing of a run outlives the application."""
        if self.runner is not None:
            await children.end(self.runner)
        if self.runs is not None:
            self.runs.cleanup()

    # -- clipboard and another editor ---------------------------------------------------------

    def action_copy(self) -> None:
        """Copy what is selected, else the program, else the text."""
        selected = self.editor.selected_text
        plan, document = self.session.plan, self.session.document
        priced = document.program(plan.program) if plan is not None else None
        if not selected and priced is not None:
            selected = "\n".join(document.text.split("\n")[priced.line - 1 : priced.end_line])
        words = selected or document.text
        self.copy_to_clipboard(words)
        count = len(words.splitlines())
        self.tell(f"{count:,} line{'s' * (count != 1)} copied")

    def action_external_editor(self) -> None:
        """Edit the text in $VISUAL or $EDITOR; what comes back is one edit."""
        command = self.settings.editor or os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        document = self.session.document
        line = self.editor.cursor_location[0] + 1
        try:
            with TemporaryDirectory(prefix="hapdsl-edit-", ignore_cleanup_errors=True) as folder:
                file = Path(folder, document.title if document.title.endswith(".hap") else f"{document.title}.hap")
                file.write_text(document.text, encoding="utf-8")
                with self.suspend(), _deaf_to_ctrl_c():
                    status = subprocess.run([*shlex.split(command), f"+{line}", str(file)], check=False).returncode
                # Whatever it is, a person may have typed it.
                text = disk.unix(file.read_bytes().decode("utf-8-sig", "replace"))
        except SuspendNotSupported:
            self.tell("this terminal can't be lent to another program", "error")
            return
        except (OSError, ValueError) as problem:
            self.tell(f"'{command}' can't be started: {problem}; set EDITOR", "error")
            return
        if status != 0:
            self.tell(f"'{command}' ended with {status}: the text stays as it was", "warning")
        elif text != document.text:
            self.put_text(document, text)

    # -- what happens to files -------------------------------------------------------------

    def look_at_files(self) -> None:
        """Take over what others wrote where nothing is unsaved; say it where something is."""
        self._look_at_imports()
        for document in list(self.session.documents.values()):
            if document.path is None or document.saved is None:
                continue
            now = disk.on_disk(document.path)
            if now is None and document.key not in self.missing:
                self.missing |= {document.key}
                self.tell(
                    f"{document.path} is gone, or can't be read; what is on the screen stays, and saving writes it again",
                    "warning",
                )
            elif now is not None:
                self.missing -= {document.key}
                if now != document.saved and now == document.text:
                    document.saved_as(document.path, now)
                elif now != document.saved and not document.dirty:
                    self.put_text(document, now)
                    document.saved_as(document.path, now)
                    self.tell(f"{document.title} was changed on disk and read again; ctrl+z shows what it was")
                elif now != document.saved and (document.key, now) not in self.strange:
                    self.strange |= {(document.key, now)}
                    self.tell(
                        f"{document.title} was changed on disk, and has unsaved edits here: ctrl+r reads it, ctrl+s asks",
                        "warning",
                    )

    def _look_at_imports(self) -> None:
        """A text is checked again when a file that it imports has been written."""
        for document in self.session.documents.values():
            now = tuple(_stamps(document))
            if now != self.imported.setdefault(document.key, now) and not document.checking:
                self.imported[document.key] = now
                document.outdate()
                self.work.check(document)

    def offer_left(self) -> None:
        """Offer unsaved edits of earlier sessions back."""
        main = self.session.main
        kept = [k for k in self.journal.left() if not (k.is_of(main) and k.text == main.text)]
        if not kept:
            self.journal.drop()  # all of it is in the file
            return
        names = ", ".join(Path(k.path or k.suggested or k.key).name for k in kept)
        question = Question(
            f"An earlier session ended with unsaved edits: {names}",
            [("r", "restore them"), ("d", "drop them"), ("l", "later")],
        )
        self.push_screen(
            question, lambda a: self._restore(kept) if a == "r" else self.journal.drop() if a == "d" else None
        )

    def _restore(self, kept: list[Kept]) -> None:
        for k in kept:
            if k.is_of(self.session.main):
                self.put_text(self.session.main, k.text)
                continue
            key = f"restored {k.key}"
            while key in self.session.documents:
                key += "'"
            path = Path(k.path) if k.path is not None else None
            document = self.session.open(
                Document(key, k.text, path=path, suggested=Path(k.suggested) if k.suggested else None, saved=None)
            )
            document.touched = True
            self.session.put(Plan(key, "", FILE, document.title))
            self.work.check(document)
        self.refresh_all()
        if self.keep_journal():
            self.journal.drop()


def _stamps(document: Document) -> Iterator[object]:
    """The files that a text imports, those inside hapdsl aside, and when they were written."""
    for name in _IMPORT.findall(document.text):
        with suppress(OSError, ValueError):
            seen = Path(document.name).parent.joinpath(name).stat()
            yield name, seen.st_mtime_ns, seen.st_size


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """ctrl+c in a program that the terminal is lent to is for that program alone. It isn't made deaf as well: handlers aren't handed down."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
