"""The registry of actions as the screen takes it: keys, and the command palette, where each is found by its words."""

from __future__ import annotations

from functools import partial

from rich.text import Text
from textual.binding import Binding, BindingType
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


def bindings() -> list[BindingType]:
    """Keys from the registry. A text that is being typed takes plain keys before they get here."""
    found: list[BindingType] = []
    for action in ACTIONS:
        for k, key in enumerate((*action.keys, *action.plain)):
            shown = bool(action.footer) and k == 0
            found.append(
                Binding(
                    key,
                    action.name,
                    action.footer or action.title,
                    show=shown,
                    priority=key == "ctrl+q",
                    tooltip=action.help,
                )
            )
    return found
