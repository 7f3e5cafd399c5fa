"""The Textual application: screens and keys over the session and its work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.containers import Container
from textual.timer import Timer
from textual.widgets import ContentSwitcher, Footer, Static, TextArea

from hapdsl.explore import disk
from hapdsl.explore.actions import ACTIONS
from hapdsl.explore.describe import describe
from hapdsl.explore.messages import Heard, Missed
from hapdsl.explore.palette import ActionProvider
from hapdsl.explore.saving import Saving
from hapdsl.explore.state import Document, Session
from hapdsl.explore.widgets.detail import Detail
from hapdsl.explore.widgets.dialogs import Help, Question
from hapdsl.explore.widgets.editor import ProgramEditor, TextPane
from hapdsl.explore.widgets.plans import PlanList
from hapdsl.explore.work import Checked, Formatted, News, Rewritten, Searching, Trouble, Work
from hapdsl.explore.workers import Connect, Subprocess
from hapdsl.lang.amounts import in_seconds

DEBOUNCE = 0.12  # seconds from the last key to the check
WIDE = 140  # columns from which the panes stand side by side


def _bindings() -> list[BindingType]:
    """Keys from the registry. A text that is being typed takes plain keys before they get here."""
    found: list[BindingType] = []
    for action in ACTIONS:
        for k, key in enumerate((*action.keys, *action.plain)):
            shown = bool(action.footer) and k == 0
            found.append(Binding(key, action.name, action.footer or action.title, show=shown, priority=key == "ctrl+q", tooltip=action.help))
    return found


class ExploreApp(App[int]):
    """`search`: whether a plan is looked for at once; `connect` starts helpers."""

    CSS_PATH = Path(__file__).with_name("explore.tcss")
    TITLE = "hapdsl explore"
    BINDINGS: ClassVar[list[BindingType]] = _bindings()
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ActionProvider}
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 (Textual declares it for instances)

    def __init__(
        self,
        session: Session,
        model: str | None = None,
        cluster: str | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        connect: Connect = Subprocess,
        search: bool = True,
    ) -> None:
        super().__init__()
        self.session = session
        self.search_at_once = search
        self.work = Work(session, model, cluster, settings or {}, connect, self._hear, self._miss)
        self.saving = Saving(self)
        self.debounce = DEBOUNCE
        self.panes: dict[str, TextPane] = {}
        self.shown: tuple[str, str] | None = None
        self._pending: dict[str, Timer] = {}

    # -- screen ------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        with Container(id="body"):
            yield PlanList(id="plans")
            yield ContentSwitcher(id="texts")
            yield Detail(id="detail")
        yield Footer()

    async def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, lambda _: self._recolour())
        await self._show_document(self.session.main)
        self.editor.focus()
        self._refresh()
        self.work.check(self.session.main)
        if self.search_at_once:
            self.work.plan()

    async def on_unmount(self) -> None:
        await self.work.stop()

    @property
    def pane(self) -> TextPane:
        return self.panes[self.session.document.key]

    @property
    def editor(self) -> ProgramEditor:
        return self.pane.editor

    async def _show_document(self, document: Document) -> None:
        """Bring a document's editor to the front; it is made the first time."""
        switcher = self.query_one("#texts", ContentSwitcher)
        if document.key not in self.panes:
            pane = self.panes[document.key] = TextPane(document.key, document.text, id=f"text-{len(self.panes)}")
            await switcher.add_content(pane)
        switcher.current = self.panes[document.key].id

    async def show_plan(self, key: tuple[str, str], move: bool = True) -> None:
        """Show a plan: its document, at its program."""
        plan = self.session.plans.get(key)
        if plan is None:
            return
        document = self.session.documents[plan.document]
        await self._show_document(document)
        self.session.current = key
        priced = document.program(plan.program)
        if move and priced is not None and self.shown != key:
            self.editor.go_to(priced.line, top=True)
        self.shown = key
        self.work.check(document)
        self._refresh()

    def _refresh(self) -> None:
        """Everything on the screen that tells of the session."""
        if not self.is_running or not self.panes:
            return
        document = self.session.document
        editor, margin = self.editor, self.pane.margin
        editor.mark(document.findings)
        costs, old = document.costs()
        plan = self.session.plan
        priced = document.last_good(plan.program) if plan is not None else None
        margin.show(costs, old, (priced.sync_s or 0.0) if priced is not None else 0.0, editor.marks)
        self.query_one(PlanList).show(self.session.rows(), self.session.current)
        self._refresh_detail()
        self.query_one("#title", Static).update(self._title(document))

    def _refresh_detail(self) -> None:
        line = self.editor.cursor_location[0] + 1
        self.query_one(Detail).show(describe(self.session.document, self.session.plan, line))

    def _title(self, document: Document) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f" {document.title}{' •' if document.dirty else ''}", "bold")
        plan = self.session.plan
        if plan is not None:
            good = document.last_good(plan.program)
            cost = f" {in_seconds(good.sync_s)}" if good is not None and good.sync_s is not None else ""
            text.append(f"  {plan.program}{cost}")
        errors = sum(f.is_error for f in document.findings)
        if document.checking:
            text.append("  checking…", "dim")
        elif errors:
            text.append(f"  {errors} error{'s' * (errors > 1)}", "bold red")
        if self.session.searching:
            text.append(f"  search: {self.session.searching} (esc stops)", "dim")
        elif self.work.outcome not in ("", "done"):
            text.append(f"  search: {self.work.outcome}", "dim")
        return text

    def _recolour(self) -> None:
        for pane in self.panes.values():
            pane.editor.recolour()
            pane.margin.refresh()
        self._refresh()

    # -- typing ------------------------------------------------------------------------

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        pane = next((p for p in self.panes.values() if p.editor is event.text_area), None)
        if pane is None or not self.session.documents[pane.key].edit(pane.editor.text):
            return
        if (timer := self._pending.pop(pane.key, None)) is not None:
            timer.stop()
        document = self.session.documents[pane.key]
        self._pending[pane.key] = self.set_timer(self.debounce, lambda: self._check_now(document))
        self._refresh()

    def _check_now(self, document: Document) -> None:
        self._pending.pop(document.key, None)
        self.work.check(document)

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        if self.panes and event.text_area is self.editor:
            self._refresh_detail()

    def on_program_editor_left(self) -> None:
        self.action_cancel()

    async def on_plan_list_chosen(self, event: PlanList.Chosen) -> None:
        await self.show_plan(event.key)

    # -- helpers' answers --------------------------------------------------------------

    def _hear(self, which: str, answer: dict[str, Any]) -> None:
        self.post_message(Heard(which, answer))

    def _miss(self, which: str, words: str) -> None:
        self.post_message(Missed(which, words))

    async def on_heard(self, message: Heard) -> None:
        name, _, run = message.which.partition(" ")
        said = self.work.planner_said(int(run), message.answer) if name == "planner" else self.work.checker_said(message.answer)
        await self._react(said)

    async def on_missed(self, message: Missed) -> None:
        name, _, run = message.which.partition(" ")
        await self._react(self.work.planner_died(int(run), message.words) if name == "planner" else self.work.checker_died(message.words))

    async def _react(self, news: list[News]) -> None:
        for item in news:
            match item:
                case Trouble(words, severity):
                    self.tell(words, severity)
                case Formatted():
                    await self.saving.formatted(item)
                case Rewritten(key):
                    self._rewritten(self.session.documents[key])
                case Checked(key) if self.shown is None and self.session.current is not None:
                    await self.show_plan(self.session.current)
                case Checked() | Searching():
                    pass
        if news:
            self._refresh()

    def _rewritten(self, document: Document) -> None:
        pane = self.panes.get(document.key)
        if pane is not None and pane.editor.text != document.text:
            line, column = pane.editor.cursor_location
            pane.editor.load_text(document.text)
            pane.editor.go_to(line + 1, column + 1)

    def tell(self, words: str, severity: str = "information") -> None:
        """A message in the corner."""
        known = {"error": "error", "warning": "warning"}
        self.notify(words, severity=known.get(severity, "information"), markup=False, timeout=8)  # type: ignore[arg-type]

    # -- actions -------------------------------------------------------------------------

    def action_save(self) -> None:
        self.saving.save(self.session.document)

    def action_save_as(self) -> None:
        self.saving.save_as(self.session.document)

    def action_reload(self) -> None:
        self.saving.reload(self.session.document)

    async def action_quit(self) -> None:
        unsaved = self.session.unsaved
        if not unsaved:
            self.exit(0)
            return
        if isinstance(self.screen, Question):
            return
        names = ", ".join(d.title for d in unsaved)
        self.push_screen(Question(f"Not saved: {names}", [("y", "quit without saving"), ("n", "stay")]), self._quit_answered)

    def _quit_answered(self, answer: str | None) -> None:
        if answer == "y":
            self.exit(0)

    def action_undo(self) -> None:
        self.editor.undo()

    def action_redo(self) -> None:
        self.editor.redo()

    def action_format(self) -> None:
        self.work.format(self.session.document, "format")

    def action_next_problem(self) -> None:
        self._go_to_problem(1)

    def action_previous_problem(self) -> None:
        self._go_to_problem(-1)

    def _go_to_problem(self, step: int) -> None:
        places = sorted({(f.line, f.column) for f in self.session.document.findings if f.here and f.line})
        if not places:
            self.tell("nothing is wrong here" if not self.session.document.checking else "still checking")
            return
        line, column = self.editor.cursor_location
        here = (line + 1, column + 1)
        behind = [p for p in places if (p > here if step > 0 else p < here)]
        target = (behind or places)[0 if step > 0 else -1]
        self.editor.go_to(*target)
        self.editor.focus()

    async def action_next_plan(self) -> None:
        await self._step_plan(1)

    async def action_previous_plan(self) -> None:
        await self._step_plan(-1)

    async def _step_plan(self, step: int) -> None:
        keys = [r.plan.key for r in self.session.rows()]
        if keys:
            at = keys.index(self.session.current) if self.session.current in keys else -step
            await self.show_plan(keys[(at + step) % len(keys)])

    def action_plan(self) -> None:
        self.work.plan()
        self._refresh()

    def action_cancel(self) -> None:
        if self.work.cancel():
            self._refresh()
        else:
            self.query_one(PlanList).focus()

    def action_focus_plans(self) -> None:
        self.query_one(PlanList).focus()

    def action_focus_editor(self) -> None:
        self.editor.focus()

    def action_focus_detail(self) -> None:
        self.query_one(Detail).focus()

    def action_theme(self) -> None:
        self.search_themes()

    def action_toggle_dark(self) -> None:
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"

    def action_palette(self) -> None:
        self.action_command_palette()

    def action_help(self) -> None:
        self.push_screen(Help())


def session_of(path: str | Path) -> Session:
    """A session with one file open. Raises HapError (HAP120 to HAP123) where it can't be read."""
    text = disk.read(Path(path))
    session = Session()
    session.open(Document("file", text, path=Path(path), saved=text))
    return session


def run(path: str, model: str | None = None, cluster: str | None = None, settings: dict[str, Any] | None = None) -> int:
    """Open `path` in the explorer; returns the exit status.

    Raises HapError: HAP120 to HAP123 for a file that can't be read, HAP820 where there is no terminal.
    """
    session = session_of(path)
    if not (sys.__stdin__ is not None and sys.__stdin__.isatty() and sys.__stderr__ is not None and sys.__stderr__.isatty()):
        from hapdsl.lang.diagnostics import error

        raise error("HAP820", "the explorer needs a terminal", help="hapdsl check, cost and plan answer without one")
    app = ExploreApp(session, model, cluster, settings)
    app.run()
    return app.return_code or 0
