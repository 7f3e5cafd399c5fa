"""The command palette: every action of the registry, found by its words."""

from __future__ import annotations

from functools import partial

from rich.text import Text
from textual.command import DiscoveryHit, Hit, Hits, Provider

from hapdsl.explore.actions import ACTIONS, Action


class ActionProvider(Provider):
    """Hits for actions; the palette itself isn't one."""

    async def discover(self) -> Hits:
        for action in ACTIONS:
            if action.name != "palette":
                yield DiscoveryHit(
                    _display(action), partial(self.app.run_action, action.name), text=action.title, help=action.help
                )

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in ACTIONS:
            if action.name == "palette":
                continue
            score = max(matcher.match(action.title), matcher.match(action.help) * 0.5)
            if score > 0:
                yield Hit(
                    score,
                    _display(action),
                    partial(self.app.run_action, action.name),
                    text=action.title,
                    help=action.help,
                )


def _display(action: Action) -> Text:
    text = Text(action.title)
    if action.shown_keys:
        text.append(f"  {action.shown_keys}", "dim")
    return text
