"""The view of the shares: its table follows the program, and moves in it are edits of the text."""

from __future__ import annotations

from typing import Any

from hapdsl.explore.inquiries import ADVISER
from hapdsl.explore.looking import Looking, Subject
from hapdsl.explore.protocol import trouble
from hapdsl.explore.widgets.dialogs import Ask
from hapdsl.explore.widgets.shares import Shares
from hapdsl.explore.work import Answered

SHARES = "shares"


class Dealing(Looking):
    """Who gets how much."""

    dealt: tuple[Subject, dict[str, Any]] | None = None
    worth: tuple[Subject, list[dict[str, Any]]] | None = None
    owed: tuple[tuple[tuple[str, str], dict[str, Any]], ...] = ()  # moves that wait: of which plan, and what

    def action_shares(self) -> None:
        self.toggle_view(SHARES)

    def refresh_views(self) -> None:
        super().refresh_views()
        if self.view == SHARES:
            self._refresh_shares()
        else:
            self.owed = ()

    def _refresh_shares(self) -> None:
        subject, pane = self.subject(), self.query_one(Shares)
        if subject is None:
            document = self.session.document
            # While a move is being checked the table stays as it was.
            if not document.checking or self.dealt is None:
                pane.show(
                    None,
                    None,
                    "being checked…" if document.checking else "only a proven program has shares that can be priced",
                )
            return
        self._move()
        document = self.session.documents[subject[0]]
        if self.dealt is None or self.dealt[0] != subject:
            if not self.about("shares", subject):
                self.work.inquiries.ask("shares", "shares", [(document, subject[2])], subject)
                self.work.inquiries.ask("unit_prices", "unit_prices", [(document, subject[2])], subject, ADVISER)
            return
        table = self.dealt[1]
        prices = self.worth[1] if self.worth is not None and self.worth[0] == subject else None
        pane.show(table if "classes" in table else None, prices, "" if "classes" in table else trouble(table))

    async def heard_shares(self, news: Answered) -> None:
        self.dealt = (news.question.subject, news.answer)

    async def heard_unit_prices(self, news: Answered) -> None:
        self.worth = (news.question.subject, news.answer.get("prices", []))

    def on_shares_moved(self, event: Shares.Moved) -> None:
        """Moves are made one after the other; keys that come meanwhile for one cell are one move."""
        plan = self.session.plan
        if plan is None:
            return
        cell: dict[str, Any] = {"class": event.cls, "device": event.device}
        if event.units is not None:
            self.owed = (*self.owed, (plan.key, {**cell, "units": event.units}))
        elif self.owed and self.owed[-1][0] == plan.key and cell.items() <= self.owed[-1][1].items():
            last = dict(self.owed[-1][1])
            last["step" if "step" in last else "units"] += event.step
            self.owed = (*self.owed[:-1], (plan.key, last))
        else:
            self.owed = (*self.owed, (plan.key, {**cell, "step": event.step}))
        self._move()

    def _move(self) -> None:
        """Ask for the next move that is owed, once the one before is in the text and priced."""
        subject, plan = self.subject(), self.session.plan
        self.owed = tuple(o for o in self.owed if plan is not None and o[0] == plan.key)
        under_way = any(q.topic == "move" for q in self.work.inquiries.flying.values())
        if self.owed and subject is not None and not under_way:
            (_, fields), *rest = self.owed
            self.owed = tuple(rest)
            named = [(self.session.documents[subject[0]], subject[2])]
            self.work.inquiries.ask("move", "move_shares", named, None, ADVISER, **fields)

    def on_shares_typed(self, event: Shares.Typed) -> None:
        def typed(answer: str | None) -> None:
            if answer is None:
                return
            try:
                units = int(answer)
            except ValueError:
                units = -1
            if units < 0:
                self.tell(f"'{answer[:40]}' is no number of units", "warning")
            else:
                self.on_shares_moved(Shares.Moved(event.cls, event.device, units=units))

        self.push_screen(Ask(f"Units of {event.cls}", event.digit, "the others share the rest as before"), typed)

    def on_shares_optimised(self) -> None:
        subject = self.subject()
        if subject is not None:
            self.tell("looking for better shares…")
            self.work.inquiries.ask(
                "move", "optimise_shares", [(self.session.documents[subject[0]], subject[2])], None, ADVISER
            )

    async def heard_move(self, news: Answered) -> None:
        if "text" not in news.answer:
            self.owed = ()
        quiet = news.question.do == "move_shares"
        await self.rewrite(news, "" if quiet else "shares found anew", quiet and "text" in news.answer)
