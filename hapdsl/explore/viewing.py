"""Actions that change what is seen: panes, views, plans, colours, help."""

from __future__ import annotations

from hapdsl.explore.filing import LOOKS, Filing
from hapdsl.explore.showing import PROGRAM, SUMMARY
from hapdsl.explore.widgets.dialogs import Help, Question
from hapdsl.explore.widgets.plans import PlanList


class Viewing(Filing):
    """What changes nothing but the screen, and the search that runs beside it."""

    async def action_next_plan(self) -> None:
        await self._step_plan(1)

    async def action_previous_plan(self) -> None:
        await self._step_plan(-1)

    async def _step_plan(self, step: int) -> None:
        keys = [r.plan.key for r in self.session.listed()]
        if keys:
            self.chosen = True
            current = self.session.current or self.session.whole
            at = keys.index(current) if current in keys else -step
            await self.show_plan(keys[(at + step) % len(keys)])

    def action_cancel(self) -> None:
        """Whatever is going on ends: the search, a long answer, a view; then the keys go to the list of plans."""
        if self.work.cancel() or self.stop_run() or self.work.give_up():
            self.refresh_all()
        elif self.view not in (PROGRAM, SUMMARY):
            # To where the view was called from: a plain key that comes next isn't typed into a program by surprise.
            self.show_view(PROGRAM, focus=self.typing)
            if not self.typing:
                self.query_one(PlanList).focus()
        else:
            self.query_one(PlanList).focus()

    def on_program_editor_left(self) -> None:
        """Escape in the editor only leaves it: whoever stops typing doesn't mean the search."""
        self.query_one(PlanList).focus()

    def on_plan_list_opened(self) -> None:
        self.action_focus_editor()

    def action_focus_plans(self) -> None:
        self.query_one(PlanList).focus()

    def action_focus_editor(self) -> None:
        self.show_view(PROGRAM)

    def action_summary(self) -> None:
        self.toggle_view(SUMMARY)

    def action_theme(self) -> None:
        self.search_themes()

    def action_toggle_dark(self) -> None:
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"

    def started(self) -> None:
        """From now on files are looked at, and a theme that is chosen is remembered."""
        self.offer_left()
        self.set_interval(LOOKS, self.look_at_files)
        self.theme_changed_signal.subscribe(self, lambda theme: self._remember(theme.name))

    def _remember(self, theme: str) -> None:
        if self.settings.theme != theme and (trouble := self.settings.save(theme=theme)):
            self.tell(trouble, "warning")

    def action_palette(self) -> None:
        self.action_command_palette()

    def action_help(self) -> None:
        self.push_screen(Help())

    async def action_quit(self) -> None:
        unsaved = self.session.unsaved
        if not unsaved:
            self.journal.forget()
            self.exit(0)
            return
        if isinstance(self.screen, Question):
            return
        names = ", ".join(d.title for d in unsaved)
        self.push_screen(
            Question(f"Not saved: {names}", [("y", "quit without saving"), ("n", "stay")]), self._quit_answered
        )

    def _quit_answered(self, answer: str | None) -> None:
        if answer == "y":
            self.journal.forget()
            self.exit(0)
