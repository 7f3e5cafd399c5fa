"""The screen: its panes and views, and what they show of the session. How that comes to know anything is `shell`'s."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.command import Provider
from textual.containers import Container, Vertical
from textual.timer import Timer
from textual.widgets import ContentSwitcher, Footer, Static

from hapdsl.explore.highlight import harmless
from hapdsl.explore.journal import Journal
from hapdsl.explore.messages import Heard, Missed
from hapdsl.explore.palette import ActionProvider, bindings
from hapdsl.explore.session import Session
from hapdsl.explore.settings import Settings as Options
from hapdsl.explore.state import Document
from hapdsl.explore.summary import Facts, summarise
from hapdsl.explore.widgets.alternatives import Alternatives
from hapdsl.explore.widgets.compare import Compare
from hapdsl.explore.widgets.editor import ProgramEditor
from hapdsl.explore.widgets.finder import Finder
from hapdsl.explore.widgets.margin import TextPane
from hapdsl.explore.widgets.plans import PlanList
from hapdsl.explore.widgets.shares import Shares
from hapdsl.explore.widgets.timeline import Timeline
from hapdsl.explore.widgets.whatif import WhatIf
from hapdsl.explore.widgets.words import Words
from hapdsl.explore.work import Work
from hapdsl.explore.workers import Connect, Subprocess
from hapdsl.lang.amounts import in_seconds

WIDE = 140  # columns from which the panes stand side by side
LOW = 12  # lines below which only the middle is shown
TALL = 36  # lines from which the timeline is there at once
PROGRAM, SUMMARY = "texts", "summary"
WAITING = "waiting"  # for the answer to an edit


class Showing(App[int]):
    """`search`: whether a plan is looked for at once; `summary`: whether it opens with it; `trace`: a measured step to show; `connect` starts helpers.

    `options` are a person's settings, `journals` is the folder for unsaved edits (None keeps none).
    """

    CSS_PATH = Path(__file__).with_name("explore.tcss")
    TITLE = "hapdsl explore"
    BINDINGS: ClassVar[list[BindingType]] = bindings()
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ActionProvider}
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 (Textual declares it for instances)
    VERTICAL_BREAKPOINTS = [(0, "-short"), (LOW, "-high")]  # noqa: RUF012

    def __init__(
        self,
        session: Session,
        model: str | None = None,
        cluster: str | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        connect: Connect = Subprocess,
        search: bool = True,
        summary: bool = True,
        trace: str | None = None,
        options: Options | None = None,
        journals: Path | None = None,
    ) -> None:
        super().__init__()
        self.session = session
        self.settings = options or Options()
        self.search_at_once, self.summary_first = search, summary and self.settings.open_with == "summary"
        self.journal = Journal(journals, session.main.path or session.main.suggested)
        self.went: list[tuple[str, int, int]] = []  # where jumps began
        self.work = Work(session, model, cluster, settings or {}, connect, self._hear, self._miss)
        self.trace = trace  # a file whose measured step is laid over the predicted one
        self.chosen = False  # whether somebody chose a plan
        self.typing = False  # whether the editor had the keys when a view took its place
        self.haste = 1.0  # what waits are multiplied by
        self.panes: dict[str, TextPane] = {}
        self.shown: tuple[str, str] | None = None
        self.facts: dict[tuple[str, int, str], Facts] = {}  # of summaries, by document, version, program
        self.title_shown: Text | None = None
        self.at_rest: Callable[[], object] | None = None  # is called once, when the screen is there
        self._pending: dict[str, Timer] = {}

    def _hear(self, which: str, answer: dict[str, Any]) -> None:
        self.post_message(Heard(which, answer))

    def _miss(self, which: str, words: str) -> None:
        self.post_message(Missed(which, words))

    # -- beginning and end -------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        with Container(id="body"):
            yield PlanList(id="plans")
            with ContentSwitcher(id="views", initial=SUMMARY if self.summary_first else PROGRAM):
                yield ContentSwitcher(id=PROGRAM)
                yield Words(id=SUMMARY)
                yield Shares(id="shares")
                yield Compare(id="compare")
                yield WhatIf(id="whatif")
                yield Words(id="search")
            with Vertical(id="side"):
                yield Words(id="detail")
                yield Alternatives(id="alternatives")
        yield Timeline(id="timeline")
        yield Finder(id="finder")
        yield Footer()

    async def on_mount(self) -> None:
        self.query_one(Finder).display = False
        roomy = self.size.width >= WIDE and self.size.height >= TALL
        wanted = self.settings.timeline if self.settings.timeline is not None else roomy
        self.query_one(Timeline).display = self.trace is not None or wanted
        if self.settings.theme in self.available_themes:
            self.theme = self.settings.theme
        elif self.settings.theme is not None:
            self.tell(f"there is no theme '{self.settings.theme}': {', '.join(self.available_themes)}", "warning")
        if self.settings.trouble:
            self.tell(self.settings.trouble, "warning")
        self.theme_changed_signal.subscribe(self, lambda _: self._recolour())
        await self._show_document(self.session.main)
        self._give_room()
        if self.summary_first:
            self.query_one(PlanList).focus()
        else:
            self.editor.focus()
        self.refresh_all()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """Once the screen is there: processes that start before would take the processor from its first frame."""
        self.work.check(self.session.main)
        if self.search_at_once:
            self.work.plan()
        self.started()
        if self.at_rest is not None:
            self.at_rest()

    def started(self) -> None:
        """The screen is there."""

    async def on_unmount(self) -> None:
        await self.work.stop()

    # -- what is shown -----------------------------------------------------------------

    @property
    def pane(self) -> TextPane:
        return self.panes[self.session.document.key]

    @property
    def editor(self) -> ProgramEditor:
        return self.pane.editor

    @property
    def view(self) -> str:
        """What the middle shows: the program, the summary, or one of the other views."""
        return self.query_one("#views", ContentSwitcher).current or PROGRAM

    def show_view(self, view: str, focus: bool = True) -> None:
        """Show something in the middle; it gets the keys unless the list of plans has them."""
        self.query_one("#views", ContentSwitcher).current = view
        self._give_room()
        self.refresh_all()
        if focus and view == PROGRAM:
            self.set_focus(self.editor)  # at once: the next key is meant for it
        elif focus:
            self.query_one(f"#{view}").focus()

    def _give_room(self) -> None:
        """The panel is about the program; other views need the room, and a small screen's summary needs it as well."""
        self.query_one("#side").display = self.view == PROGRAM or (self.view == SUMMARY and self.size.width >= WIDE)

    def on_resize(self) -> None:
        if self.panes:
            self._give_room()

    async def _show_document(self, document: Document) -> None:
        """Bring a document's editor to the front; it is made the first time."""
        switcher = self.query_one(f"#{PROGRAM}", ContentSwitcher)
        if document.key not in self.panes:
            pane = self.panes[document.key] = TextPane(document.key, document.text, id=f"text-{len(self.panes)}")
            await switcher.add_content(pane)
        switcher.current = self.panes[document.key].id

    async def show_plan(self, key: tuple[str, str], move: bool = True) -> None:
        """Show a plan: its document, at its program."""
        if key not in self.session.plans and key != self.session.whole:
            return
        document = self.session.documents[key[0]]
        await self._show_document(document)
        self.session.current = key
        priced = document.program(key[1])
        if move and priced is not None and self.shown != key:
            self.editor.go_to(priced.line, top=True)
        self.shown = key
        self.work.check(document)
        self.refresh_all()

    def refresh_all(self) -> None:
        """Everything on the screen that tells of the session."""
        if not self.is_running or not self.panes:
            return
        self.refresh_prices()
        self.refresh_detail()

    def refresh_prices(self) -> None:
        """What a person who types waits for: lines, plans, the title, and whatever the middle shows. The panel can wait."""
        self.forget(WAITING)
        self.refresh_lines()
        self.query_one(PlanList).show(
            self.session.listed(), self.session.current or self.session.whole, self.session.marked
        )
        self.refresh_views()
        title = self._title(self.session.document)
        if title != self.title_shown:
            self.title_shown = title
            self.query_one("#title", Static).update(title, layout=False)

    def refresh_lines(self) -> None:
        """What stands at the lines of the text: what is wrong with them, what they cost."""
        document = self.session.document
        editor, margin = self.editor, self.pane.margin
        editor.mark(document.findings)
        costs, old = document.costs()
        plan = self.session.plan
        priced = document.last_good(plan.program) if plan is not None else None
        margin.show(costs, old, (priced.sync_s or 0.0) if priced is not None else 0.0, editor.marks)

    def refresh_views(self) -> None:
        """Whatever the middle shows."""
        if self.view == SUMMARY:
            self.refresh_summary()

    def toggle_view(self, view: str) -> None:
        """Show a view, or the program again."""
        if self.view == PROGRAM:
            self.typing = self.focused is self.editor
        self.show_view(PROGRAM if self.view == view else view)

    def about(self, topic: str, subject: object) -> bool:
        """Was the last question under a topic about this?"""
        question = self.work.inquiries.current.get(topic)
        return question is not None and question.subject == subject

    def refresh_detail(self) -> None:
        """The panel about the line under the cursor."""

    def refresh_summary(self) -> None:
        """The summary as far as it is known; what is missing is asked for."""
        plan, facts = self.session.plan, None
        if plan is not None:
            document = self.session.documents[plan.document]
            key = (document.key, document.version, plan.program)
            facts = self.facts.get(key)
            now = None if document.checking or document.analysis is None else document.analysis.program(plan.program)
            if facts is None and now is not None and now.sync_s is not None and not self.about("overview", key):
                self.work.inquiries.ask("overview", "overview", [(document, plan.program)], key)
        self.query_one(f"#{SUMMARY}", Words).show(summarise(self.session, plan, facts, self.work.outcome))

    async def _follow(self) -> None:
        """Of a model alone the summary tells of the best plan so far, until somebody chooses one."""
        best = self.session.best
        if best is not None and self.view == SUMMARY and not self.chosen and self.session.current != best.key:
            await self.show_plan(best.key)

    def _title(self, document: Document) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f" {harmless(document.title)}{' •' if document.dirty else ''}", "bold")
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
        if self.session.importing:
            text.append(f"  importing {self.session.importing}… (esc stops)", "dim")
        elif self.session.searching:
            text.append(f"  search: {self.session.searching} (esc stops)", "dim")
        elif self.work.outcome not in ("", "done"):
            text.append(f"  search: {self.work.outcome}", "dim")
        return text

    def _recolour(self) -> None:
        for pane in self.panes.values():
            pane.editor.recolour()
            pane.margin.refresh()
        self.refresh_all()

    # -- later, and in words -------------------------------------------------------------

    def forget(self, what: str) -> None:
        """Don't do what was to be done later."""
        if (timer := self._pending.pop(what, None)) is not None:
            timer.stop()

    def later(self, what: str, seconds: float, do: Callable[[], object]) -> None:
        """Do something after a while in which nobody asks for the same again."""
        self.forget(what)

        def now() -> None:
            self._pending.pop(what, None)
            do()

        self._pending[what] = self.set_timer(seconds * self.haste, now)

    def tell(self, words: str, severity: str = "information") -> None:
        """A message in the corner."""
        known = {"error": "error", "warning": "warning"}
        self.notify(harmless(words), severity=known.get(severity, "information"), markup=False, timeout=8)  # type: ignore[arg-type]
