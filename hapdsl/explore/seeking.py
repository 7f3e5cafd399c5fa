"""The search: started, watched, held, stopped."""

from __future__ import annotations

from hapdsl.explore.session import GAP
from hapdsl.explore.shell import Shell
from hapdsl.explore.widgets.words import Words

SEARCH = "search"


class Seeking(Shell):
    """A search that runs beside the screen."""

    def action_plan(self) -> None:
        self.work.plan()
        self.refresh_all()

    def action_closer(self) -> None:
        """Search on, to a quarter of the gap that is there."""
        reached = self.work.log.gap
        if self.work.searching:
            self.tell("a search is running")
        elif reached == 0:
            self.tell("the plan is proven to be the best for its shares")
        else:
            self.work.plan(min(GAP, reached if reached is not None else GAP) / 4)
            self.refresh_all()

    def action_search_view(self) -> None:
        self.toggle_view(SEARCH)

    def action_hold(self) -> None:
        """Hold the search for a while, or let it go on."""
        held = self.work.pause()
        if held is None:
            self.tell("no search is running")
        self.refresh_all()

    def refresh_views(self) -> None:
        super().refresh_views()
        if self.view == SEARCH:
            pane = self.query_one(f"#{SEARCH}", Words)
            pane.show(
                self.work.log.told(pane.size.width, pane.size.height // 2, self.work.outcome, self.work.searching)
            )
            if self.work.searching and not self.work.log.held:
                self.later("watch", 0.5, self.refresh_all)
