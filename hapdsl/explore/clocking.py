"""The timeline beside the program: it follows the plan and the cursor, and the cursor follows it."""

from __future__ import annotations

from typing import Any

from hapdsl.explore.looking import RESTS, Looking
from hapdsl.explore.protocol import trouble
from hapdsl.explore.widgets.timeline import Timeline
from hapdsl.explore.work import Answered


class Clocking(Looking):
    """Predicted times, and those of `trace` beside them."""

    timed: tuple[Any, dict[str, Any]] | None = None  # (subject, kind, trace), and the answer
    clocked: object = None  # what will be asked about
    kind = "overlap"

    def action_timeline(self) -> None:
        """Show the timeline, or take it away."""
        pane = self.query_one(Timeline)
        pane.display = not pane.display
        if pane.display:
            pane.focus()
        elif self.focused is pane:
            self.editor.focus()
        self.refresh_all()

    def action_focus_timeline(self) -> None:
        pane = self.query_one(Timeline)
        pane.display = True
        pane.focus()
        self.refresh_all()

    def refresh_detail(self) -> None:
        super().refresh_detail()
        self._refresh_timeline()

    def _refresh_timeline(self) -> None:
        pane = self.query_one(Timeline)
        if not pane.display:
            return
        line = self.editor.cursor_location[0] + 1
        subject = self.subject()
        if subject is None:
            words = (
                "being checked…"
                if self.session.document.checking
                else "only a proven program with a cluster has a timeline"
            )
            pane.show(self._before(), line, words)
            return
        key = (subject, self.kind, self.trace)
        if self.timed is not None and self.timed[0] == key:
            pane.show(
                self.timed[1] if "rows" in self.timed[1] else None,
                line,
                "" if "rows" in self.timed[1] else trouble(self.timed[1]),
            )
        elif key != self.clocked and not self.about("timeline", key):
            self.clocked = key
            self.later("timeline", RESTS, self._ask_timeline)  # not at once: whoever types on would wait for it

    def _before(self) -> dict[str, Any] | None:
        """The last timeline of the program on the screen: it stays while that is checked or wrong."""
        plan = self.session.plan
        if self.timed is None or "rows" not in self.timed[1] or plan is None:
            return None
        document, _, program = self.timed[0][0]
        return self.timed[1] if (document, program) == plan.key else None

    def _ask_timeline(self) -> None:
        subject = self.subject()
        self.clocked = None
        if subject is not None:
            document, key = self.session.documents[subject[0]], (subject, self.kind, self.trace)
            self.work.inquiries.ask(
                "timeline", "timeline", [(document, subject[2])], key, kind=self.kind, trace=self.trace
            )

    async def heard_timeline(self, news: Answered) -> None:
        if self.trace is not None and news.answer.get("findings") and "rows" not in news.answer:
            self.tell(trouble(news.answer), "error")
            if news.question.subject[2] == self.trace:
                self.trace = None
            return
        self.timed = (news.question.subject, news.answer)
        measured = news.answer.get("measured")
        for key, pane in self.panes.items():
            own = measured is not None and key == news.question.subject[0][0]
            pane.margin.measured({int(line): s for line, s in measured["lines"].items()} if measured and own else {})

    def on_timeline_picked(self, event: Timeline.Picked) -> None:
        self.editor.go_to(event.line)

    def on_timeline_kind(self) -> None:
        self.kind = "sync" if self.kind == "overlap" else "overlap"
        self.refresh_all()
