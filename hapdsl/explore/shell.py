"""The application without its actions: the screen, and the ways by which it comes to know something: what is typed, what helpers answer."""

from __future__ import annotations

from functools import cached_property

from textual.widgets import TextArea

from hapdsl.explore.messages import Heard, Missed
from hapdsl.explore.saving import Saving
from hapdsl.explore.showing import WAITING, Showing
from hapdsl.explore.state import Document
from hapdsl.explore.widgets.margin import TextPane
from hapdsl.explore.widgets.plans import PlanList
from hapdsl.explore.work import Answered, Checked, Formatted, News, Rewritten, Searching, Trouble

PATIENCE = 0.25  # seconds that a check may take before the screen tells that it is on its way
SOON = 0.05  # and from the prices to what is said of the line
KEEPS = 0.8  # and until what is unsaved is put into the journal


class Shell(Showing):
    """Texts change and answers come."""

    lines = 0  # of the text that was typed into last

    @cached_property
    def saving(self) -> Saving:
        return Saving(self)

    # -- texts that change ---------------------------------------------------------------

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        pane = next((p for p in self.panes.values() if p.editor is event.text_area), None)
        if pane is not None:
            self.take_typed(pane)

    def take_typed(self, pane: TextPane) -> None:
        """What was typed into an editor is its document's."""
        document = self.session.documents[pane.key]
        if not document.edit(pane.editor.text):
            return
        self.edited(document)
        # All else is told with the answer, which is soon there: whoever types sees nothing flicker, and waits for one picture instead of two.
        if pane.editor.document.line_count != self.lines:
            self.lines = pane.editor.document.line_count
            self.refresh_lines()
        if WAITING not in self._pending:
            self.later(WAITING, PATIENCE, self.refresh_prices)

    def put_text(self, document: Document, text: str) -> None:
        """A new text as one edit, which can be taken back."""
        pane = self.panes.get(document.key)
        if pane is not None:
            pane.editor.put(text)
        if document.edit(text):
            self.edited(document)
        self.refresh_all()

    def edited(self, document: Document) -> None:
        """A document has another text: it is checked, and kept in the journal until it is saved."""
        self.work.check(document)
        self.later("journal", KEEPS, self.keep_journal)

    def keep_journal(self) -> bool:
        """Keep what is unsaved; False where that can't be."""
        return self.journal.keep(self.session.unsaved)

    async def on_unmount(self) -> None:
        """Whoever didn't quit (a closed page, a fault) finds what is unsaved in the next session."""
        if self.return_value is None:
            self.keep_journal()

    def _rewritten(self, document: Document) -> None:
        """A text that nobody has typed takes the place of another such one."""
        pane = self.panes.get(document.key)
        if pane is not None and pane.editor.text != document.text:
            line, column = pane.editor.cursor_location
            pane.editor.load_text(document.text)
            pane.editor.go_to(line + 1, column + 1)

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        if self.panes and event.text_area is self.editor and WAITING not in self._pending:
            self.refresh_detail()

    async def on_plan_list_chosen(self, event: PlanList.Chosen) -> None:
        self.chosen = True
        await self.show_plan(event.key)

    # -- helpers' answers --------------------------------------------------------------

    async def on_heard(self, message: Heard) -> None:
        self._catch_up()
        await self._react(self.work.said(message.which, message.answer))

    async def on_missed(self, message: Missed) -> None:
        self._catch_up()
        await self._react(self.work.died(message.which, message.words))

    def _catch_up(self) -> None:
        """Take what was typed and is still on its way as a message: an answer may bring another text, which must not go over it."""
        if self.panes:
            self.take_typed(self.pane)

    async def _react(self, news: list[News]) -> None:
        for item in news:
            match item:
                case Answered():
                    await self.answered(item)
                case Trouble(words, severity):
                    self.tell(words, severity)
                case Formatted():
                    self.saving.formatted(item)
                case Rewritten(key):
                    self._rewritten(self.session.documents[key])
                    await self._follow()
                case Checked() if self.shown is None and self.session.current is not None:
                    await self.show_plan(self.session.current)
                case Checked() | Searching():
                    pass
        if any(isinstance(item, Checked) for item in news):
            self.refresh_prices()
            self.later("detail", SOON, self.refresh_detail)
        elif news:
            self.refresh_all()

    async def answered(self, news: Answered) -> None:
        """Hand an answer to `heard_<topic>`."""
        await getattr(self, f"heard_{news.question.topic}")(news)

    async def heard_overview(self, news: Answered) -> None:
        self.facts = {
            k: v for k, v in self.facts.items() if k[0] != news.question.subject[0] or k[1] == news.question.subject[1]
        }
        self.facts[news.question.subject] = news.answer
