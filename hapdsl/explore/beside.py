"""Plans beside each other: marking, comparing, and trying them on other hardware."""

from __future__ import annotations

from typing import Any

from hapdsl.explore.inquiries import ADVISER
from hapdsl.explore.protocol import trouble
from hapdsl.explore.session import Plan
from hapdsl.explore.shell import Shell
from hapdsl.explore.state import Document
from hapdsl.explore.widgets.compare import Compare
from hapdsl.explore.widgets.whatif import WhatIf
from hapdsl.explore.work import Answered

COMPARE, WHATIF = "compare", "whatif"


class Beside(Shell):
    """What is marked is compared; without marks the plan on the screen with the fastest other one."""

    compared: tuple[object, dict[str, Any]] | None = None
    tried: tuple[tuple[object, ...], dict[str, Any]] | None = None

    def action_mark(self) -> None:
        """Mark the plan on the screen for comparison, or take the mark away; in the view of the search: hold it."""
        if self.view == "search":
            self.run_worker(self.run_action("hold"))
            return
        if self.session.plan is None:
            return
        marked, key = self.session.marked, self.session.plan.key
        if key in marked:
            marked.remove(key)
        else:
            marked.append(key)
        self.refresh_all()

    def candidates(self) -> list[Plan]:
        """The plans that have a price, those that are marked or on the screen first."""
        rows = [r for r in self.session.rows() if r.seconds is not None and not r.old]
        by_key = {r.plan.key: r for r in rows}
        first = [k for k in self.session.marked if k in by_key]
        if not first and self.session.current in by_key:
            first = [self.session.current]
        model = by_key[first[0]].model if first else None
        rest = sorted((r for r in rows if r.plan.key not in first), key=lambda r: (r.model != model, r.seconds or 0.0))
        return [by_key[k].plan for k in first] + [r.plan for r in rest]

    def asked_of(self, plans: list[Plan]) -> tuple[list[tuple[Document, str]], tuple[object, ...]]:
        """Plans as questions name them, and what tells one state of them from another."""
        named = [(self.session.documents[p.document], p.program) for p in plans]
        return named, tuple((d.key, d.version, program) for d, program in named)

    def action_compare(self) -> None:
        if self.compared is not None and "plans" not in self.compared[1]:
            self._ask_again(COMPARE)
            self.compared = None
        self.toggle_view(COMPARE)

    def action_whatif(self) -> None:
        if self.tried is not None and self.tried[1].get("trouble"):
            self._ask_again(WHATIF)
            self.tried = None
        self.toggle_view(WHATIF)

    def _ask_again(self, topic: str) -> None:
        """What failed, or was stopped, is tried again when a person comes back to it."""
        self.work.inquiries.current.pop(topic, None)

    def refresh_views(self) -> None:
        super().refresh_views()
        if self.view == COMPARE:
            self._refresh_compare()
        elif self.view == WHATIF:
            self._refresh_whatif()

    def _refresh_compare(self) -> None:
        pane = self.query_one(Compare)
        plans = self.candidates()
        marked = [p for p in plans if p.key in self.session.marked]
        plans = marked if len(marked) > 1 else plans
        if len(plans) < 2:
            pane.show(None, "There is one plan with a price: p looks for more, or open a program in the file's text.")
            return
        named, subject = self.asked_of(plans)
        if self.compared is not None and self.compared[0] == subject:
            pane.show(
                self.compared[1] if "plans" in self.compared[1] else None, str(self.compared[1].get("failed", ""))
            )
        elif not self.about("compare", subject):
            pane.show(
                self.compared[1] if self.compared is not None and "plans" in self.compared[1] else None,
                "being compared…",
            )
            self.work.inquiries.ask("compare", "compare", named, subject, ADVISER, several=True)

    async def heard_compare(self, news: Answered) -> None:
        self.compared = (news.question.subject, news.answer)

    def _refresh_whatif(self) -> None:
        pane = self.query_one(WhatIf)
        plans = sorted(self.candidates(), key=lambda p: list(self.session.plans).index(p.key))
        if not plans:
            pane.show({}, (), "There is no plan with a price yet.")
            return
        named, state = self.asked_of(plans)
        subject = (state, tuple(sorted(pane.factors.items())), pane.slider)
        titles = [p.title for p in plans]
        held = self._tried(state)
        pane.show(held, titles, held.get("trouble") or "being priced…")
        if not self.about("whatif", subject):
            self.work.inquiries.ask(
                "whatif", "whatif", named, subject, ADVISER, several=True, factors=pane.factors, slider=pane.slider
            )

    async def heard_whatif(self, news: Answered) -> None:
        state = news.question.subject[0]
        fresh = {k: v for k, v in news.answer.items() if k in ("sliders", "now", "base", "strip")}
        failed = "failed" in news.answer or "findings" in news.answer
        self.tried = (state, {**self._tried(state), **fresh, "trouble": trouble(news.answer) if failed else ""})

    def _tried(self, state: tuple[object, ...]) -> dict[str, Any]:
        """What is known so far of these plans on other hardware."""
        return self.tried[1] if self.tried is not None and self.tried[0] == state else {}

    def on_what_if_moved(self) -> None:
        self.later("whatif", 0.05, self.refresh_all)
