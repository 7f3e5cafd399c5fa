"""Files around the screen: exports, runs, the clipboard, another editor, changes on disk, the journal of unsaved edits."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from textual.app import SuspendNotSupported

from hapdsl.explore import disk
from hapdsl.explore.inquiries import ADVISER
from hapdsl.explore.journal import Journal, Kept
from hapdsl.explore.looking import Looking, trouble
from hapdsl.explore.state import Document, Plan
from hapdsl.explore.widgets.dialogs import Ask, Question
from hapdsl.explore.work import Answered
from hapdsl.explore.workers import environment
from hapdsl.lang.files import keep_tables

STEPS = 8  # of a run that is only to be measured
LOOKS = 2.0  # seconds between two looks at the files


class Filing(Looking):
    """`runner` is the process of a run that is under way."""

    runner: asyncio.subprocess.Process | None = None
    missing: frozenset[str] = frozenset()  # documents whose files are gone
    strange: frozenset[tuple[str, str]] = frozenset()  # (document, text on disk) that a person was told of

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
        document = self.session.documents[subject[0]]
        folder = (document.path or document.suggested or Path("x")).parent

        def named(answer: str | None) -> None:
            if answer is None:
                return
            path = Path(answer).expanduser()
            if path.exists():
                question = Question(f"{path} exists.", [("o", "overwrite it"), ("n", "don't export")])
                self.push_screen(
                    question, lambda a: self._write_export(document, subject[2], path) if a == "o" else None
                )
            else:
                self._write_export(document, subject[2], path)

        self.push_screen(Ask(f"Export {subject[2]} to", str(folder / f"{prefix}{subject[2]}{suffix}"), below), named)

    def _write_export(self, document: Document, program: str, path: Path) -> None:
        kind = "chart" if path.name.endswith(".chart.svg") else ""
        self.work.inquiries.ask("export", "export", [(document, program)], None, ADVISER, to=str(path), kind=kind)

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
        if self.runner is not None:
            self.tell("it is running; esc stops it")
        elif subject is None:
            self.tell("only a proven program with a cluster can be run", "warning")
        else:
            self.work.inquiries.ask(
                "alone", "alone", [(self.session.documents[subject[0]], subject[2])], subject, ADVISER
            )

    async def heard_alone(self, news: Answered) -> None:
        if "alone" not in news.answer:
            self.tell(trouble(news.answer), "error")
            return
        self.tell(f"running {STEPS} steps on {news.answer['devices']} processes of this machine; esc stops it")
        self.run_worker(self._run(news.answer["alone"], news.question.subject), exit_on_error=False)

    async def _run(self, text: str, subject: Any) -> None:
        folder = Path(tempfile.mkdtemp(prefix="hapdsl-run-"))
        file, trace = folder / "plan.hap", folder / f"{subject[2]}.trace.json"
        file.write_text(text, encoding="utf-8")
        keep_tables(self.session.sources, file)
        words = [
            sys.executable,
            "-m",
            "hapdsl",
            "run",
            str(file),
            "--program",
            subject[2],
            "--steps",
            str(STEPS),
            "--trace",
            str(trace),
            "--json",
        ]
        self.runner = await asyncio.create_subprocess_exec(
            *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        )
        out, complaints = await self.runner.communicate()
        status, self.runner = self.runner.returncode, None
        if status == 0 and trace.is_file():
            self.trace = str(trace)
            self.run_worker(self.run_action("focus_timeline"))
            self.tell(f"what {subject[2]} took on this machine is beside the prediction for its cluster")
        elif status is not None and status >= 0:
            lines = [line for line in complaints.decode("utf-8", "replace").splitlines() if line.strip()]
            self.tell(
                f"the run ended with {status}: {lines[-1] if lines else out.decode('utf-8', 'replace')[:200]}", "error"
            )
        self.refresh_all()

    def stop_run(self) -> bool:
        """End a run that is under way; False where none is."""
        if self.runner is None or self.runner.returncode is not None:
            return False
        self.runner.terminate()
        self.tell("the run is stopped")
        return True

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
        self.tell(f"{len(words.splitlines()):,} lines copied")

    def action_external_editor(self) -> None:
        """Edit the text in $VISUAL or $EDITOR; what comes back is one edit."""
        command = self.settings.editor or os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        document = self.session.document
        with tempfile.TemporaryDirectory(prefix="hapdsl-edit-") as folder:
            file = Path(folder, document.title if document.title.endswith(".hap") else f"{document.title}.hap")
            file.write_text(document.text, encoding="utf-8")
            line = self.editor.cursor_location[0] + 1
            try:
                with self.suspend():
                    status = subprocess.run([*shlex.split(command), f"+{line}", str(file)], check=False).returncode
            except SuspendNotSupported:
                self.tell("this terminal can't be lent to another program", "error")
                return
            except (OSError, ValueError) as problem:
                self.tell(f"'{command}' can't be started: {problem}; set EDITOR", "error")
                return
            text = disk.on_disk(file)
        if status != 0 or text is None:
            self.tell(f"'{command}' ended with {status}: the text stays as it was", "warning")
        elif text != document.text:
            self.put_text(document, text)

    # -- what happens to files -------------------------------------------------------------

    def look_at_files(self) -> None:
        """Take over what others wrote where nothing is unsaved; say it where something is."""
        for document in list(self.session.documents.values()):
            if document.path is None or document.saved is None:
                continue
            now = disk.on_disk(document.path)
            if now is None and document.key not in self.missing:
                self.missing |= {document.key}
                self.tell(
                    f"{document.path} is gone; what is on the screen stays, and saving writes it again", "warning"
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

    def offer(self, journal: Journal) -> None:
        """Offer unsaved edits of an earlier session back."""
        main = self.session.main
        kept = [k for k in journal.left() if k.text != main.text or k.path != str(main.path)]
        if not kept:
            return
        names = ", ".join(Path(k.path or k.suggested or k.key).name for k in kept)
        question = Question(
            f"An earlier session ended with unsaved edits: {names}",
            [("r", "restore them"), ("d", "drop them"), ("l", "later")],
        )
        self.push_screen(
            question, lambda a: self._restore(kept) if a == "r" else journal.forget() if a == "d" else None
        )

    def _restore(self, kept: list[Kept]) -> None:
        for k in kept:
            if k.path is not None and k.path == str(self.session.main.path):
                self.put_text(self.session.main, k.text)
                continue
            key = f"restored {k.key}"
            path = Path(k.path) if k.path is not None else None
            document = self.session.open(
                Document(key, k.text, path=path, suggested=Path(k.suggested) if k.suggested else None, saved=None)
            )
            document.touched = True
            self.session.put(Plan(key, "", "file", document.title))
            self.work.check(document)
        self.refresh_all()
        self.keep_journal()
