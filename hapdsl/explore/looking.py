"""The line under the cursor: asked about, explained, and replaced by an alternative."""

from __future__ import annotations

from typing import Any

from hapdsl.explore.describe import describe
from hapdsl.explore.inquiries import ADVISER
from hapdsl.explore.protocol import trouble
from hapdsl.explore.shell import Shell
from hapdsl.explore.state import PROVEN, SKETCH
from hapdsl.explore.widgets.alternatives import Alternatives, Asked
from hapdsl.explore.widgets.dialogs import Note
from hapdsl.explore.widgets.words import Words
from hapdsl.explore.work import Answered
from hapdsl.lang.amounts import in_seconds

Subject = tuple[str, int, str]  # document, version, program
Place = tuple[str, int, str, int]  # with a line
RESTS = 0.15  # seconds that the cursor stays before a line is asked about
ASKS = 0.6  # and before its alternatives are


class Looking(Shell):
    """Keeps the inspector and the alternatives at the cursor."""

    line_facts: tuple[Place, dict[str, Any]] | None = None
    asked: tuple[tuple[str, int, str, str], Asked] | None = None  # what is asked of a tensor
    wanted: Place | None = None

    # -- where ---------------------------------------------------------------------------

    def place(self) -> Place | None:
        """The line under the cursor, where it is one of a proven program."""
        document = self.session.document
        line = self.editor.cursor_location[0] + 1
        priced = document.program_at(line)
        if document.checking or priced is None or document.state(priced.name) != PROVEN or priced.sync_s is None:
            return None
        return (document.key, document.version, priced.name, line)

    def subject(self) -> Subject | None:
        """The program on the screen, where it is proven and priced."""
        plan = self.session.plan
        if plan is None:
            return None
        document = self.session.documents[plan.document]
        now = None if document.checking or document.analysis is None else document.analysis.program(plan.program)
        if now is None or now.state != PROVEN or now.sync_s is None:
            return None
        return (document.key, document.version, plan.program)

    def refresh_detail(self) -> None:
        """The panel says at once what is known, and asks for the rest when the cursor rests."""
        place = self.place()
        known = self.line_facts
        # Those of the line before the last edit stay until the new ones are there.
        facts = known[1] if known is not None and _same_line(known[0], place) else None
        line = self.editor.cursor_location[0] + 1
        last = self.editor.folded.last(line - 1) + 1
        self.query_one("#detail", Words).show(describe(self.session.document, self.session.plan, line, facts, last))
        if place != self.wanted:
            self.wanted = place
            self.later("line", RESTS, self._ask_line)
        self.refresh_alternatives()

    def _ask_line(self) -> None:
        place = self.place()
        if place is None or (self.line_facts is not None and self.line_facts[0] == place):
            return
        document = self.session.documents[place[0]]
        self.work.inquiries.ask("line", "line", [(document, place[2])], place, line=place[3])

    async def heard_line(self, news: Answered) -> None:
        self.line_facts = (news.question.subject, news.answer)
        self.later("why", ASKS, self._ask_why)

    # -- alternatives ----------------------------------------------------------------------

    def _subject(self) -> tuple[str, int, str, str] | None:
        """The tensor whose choices the line is about."""
        place = self.place()
        if place is None or self.line_facts is None or self.line_facts[0] != place:
            return None
        tensor = self.line_facts[1].get("tensor")
        return None if tensor is None else (*place[:3], tensor)

    def _ask_why(self) -> None:
        subject = self._subject()
        pane = self.query_one(Alternatives)
        if subject is None or not pane.display or (self.asked is not None and self.asked[0] == subject):
            return
        document = self.session.documents[subject[0]]
        self.asked = (subject, Asked(subject[3]))
        self.work.inquiries.ask("why", "why", [(document, subject[2])], subject, ADVISER, tensor=subject[3])
        self.refresh_alternatives()

    async def heard_why(self, news: Answered) -> None:
        if self.asked is not None and self.asked[0] == news.question.subject:
            self.asked[1].hear(news.answer)

    def refresh_alternatives(self) -> None:
        pane = self.query_one(Alternatives)
        if not pane.display:
            return
        subject, place = self._subject(), self.place()
        known = self.line_facts
        if known is not None and known[0] != place and _same_line(known[0], place):
            return  # what was said before the last edit stays until the line has been asked about
        asked = self.asked[1] if self.asked is not None and self.asked[0] == subject else None
        hint = "looking for other choices…" if asked is not None else "" if subject is None else "…"
        pane.show(asked, hint)

    def action_focus_alternatives(self) -> None:
        self.query_one("#side").add_class("asking")
        self.query_one(Alternatives).focus()
        self.call_after_refresh(self._ask_why)
        self.refresh_alternatives()

    def action_focus_detail(self) -> None:
        self.query_one("#side").remove_class("asking")
        self.query_one("#detail").focus()

    def on_alternatives_taken(self, event: Alternatives.Taken) -> None:
        if self.asked is None or self._subject() != self.asked[0]:
            self.tell("the text has changed: look again", "warning")
            return
        document = self.session.documents[self.asked[0][0]]
        self.tell("taking it…")
        self.work.inquiries.ask("take", "take", [(document, self.asked[0][2])], None, ADVISER, option=event.option)

    async def heard_take(self, news: Answered) -> None:
        await self.rewrite(news, "taken")

    async def rewrite(self, news: Answered, did: str, quiet: bool = False) -> None:
        """Put an answer's text in the place of the one that was asked about, as one edit that can be undone; `quiet`ly, without words."""
        answer = news.answer
        key, version, _ = news.question.plans[0]
        document = self.session.documents.get(key)
        if "text" not in answer:
            if answer.get("findings") or "failed" in answer:
                self.tell(trouble(answer), "error")
            return
        if document is None or document.version != version:
            self.tell("the text was changed meanwhile, so it is left as it is", "warning")
            return
        self.put_text(document, answer["text"])
        if quiet:
            return
        cost = f", {in_seconds(answer['cost_s'])} a step" if answer.get("cost_s") is not None else ""
        self.tell(f"{answer.get('said') or did}{cost}; ctrl+z takes it back")

    # -- sketches and words ------------------------------------------------------------------

    def action_complete(self) -> None:
        """Have the search fill in what a sketch leaves open."""
        plan = self.session.plan
        document = self.session.document
        line = self.editor.cursor_location[0] + 1
        priced = document.program_at(line) or (document.program(plan.program) if plan is not None else None)
        if priced is None or document.state(priced.name) != SKETCH:
            self.tell("there is no sketch here: write ? for a placement, or ... for lines that are left to the search")
            return
        self.session.searching = f"completing {priced.name}"
        self.work.inquiries.ask("complete", "complete", [(document, priced.name)], None, ADVISER)
        self.refresh_all()

    async def heard_complete(self, news: Answered) -> None:
        if "doing" in news.answer:
            best = news.answer.get("best_s")
            self.session.searching = f"{news.answer['doing']}{f', best {in_seconds(best)}' if best is not None else ''}"
        else:
            self.session.searching = "" if self.work.planner is None else self.session.searching
            await self.rewrite(news, "completed")

    def action_explain(self) -> None:
        """Say in plain words what the line does."""
        place = self.place()
        if place is None:
            document = self.session.document
            words = (
                "still checking"
                if document.checking
                else "only the lines of a proven program can be explained: f8 goes to what is wrong"
            )
            self.tell(words)
            return
        document = self.session.documents[place[0]]
        self.work.inquiries.ask("explain", "line", [(document, place[2])], place, line=place[3])

    async def heard_explain(self, news: Answered) -> None:
        answer = news.answer
        if "plainly" not in answer:
            self.tell(
                trouble(answer)
                if answer.get("findings") or "failed" in answer
                else "this line does nothing by itself: put the cursor on an instruction"
            )
            return
        row = news.question.subject[3] - 1
        text = self.editor.document.get_line(row).strip() if row < self.editor.document.line_count else ""
        self.push_screen(Note(text, answer["plainly"]))


def _same_line(one: Place, other: Place | None) -> bool:
    """Is it the same line of a program, whatever its version?"""
    return other is not None and (one[0], *one[2:]) == (other[0], *other[2:])
