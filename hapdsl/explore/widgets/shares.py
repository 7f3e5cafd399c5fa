"""The table of shares: classes by devices, editable, with shadow prices under it."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import DataTable, Static

from hapdsl.explore.describe import signed
from hapdsl.explore.highlight import MANNERS
from hapdsl.lang.amounts import in_seconds

Object = dict[str, Any]


class Shares(Vertical):
    """Devices as rows, classes as columns: + and - move a unit, a number and enter set one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus", "step(1)", "One more", key_display="+"),
        Binding("minus", "step(-1)", "One less", key_display="-"),
        Binding("right_square_bracket", "step(10)", show=False),
        Binding("left_square_bracket", "step(-10)", show=False),
        Binding("o", "optimise", "Optimise"),
    ]

    class Moved(Message):
        """`units` to have, or a `step`."""

        def __init__(self, cls: str, device: int, units: int | None = None, step: int | None = None) -> None:
            super().__init__()
            self.cls, self.device, self.units, self.step = cls, device, units, step

    class Optimised(Message):
        pass

    class Typed(Message):
        """A number is begun for a cell."""

        def __init__(self, cls: str, device: int, digit: str) -> None:
            super().__init__()
            self.cls, self.device, self.digit = cls, device, digit

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.table: Object | None = None
        self.prices: list[Object] = []
        self.plain = ""

    def compose(self) -> ComposeResult:
        yield Static(classes="head", markup=False)
        yield DataTable(cursor_type="cell", zebra_stripes=True)
        yield Static(classes="prices", markup=False)

    def focus(self, scroll_visible: bool = True) -> Shares:
        self.query_one(DataTable).focus(scroll_visible)
        return self

    def show(self, table: Object | None, prices: list[Object] | None, words: str) -> None:
        """`table` and `prices` as the service tells them; `words` where there is no table."""
        self.query_one(".head", Static).update(Text(self._head(table, words)))
        if table != self.table:
            self._fill(table)
        self.table, self.prices = table, prices or []
        below = self._prices(prices) if table is not None else Text()
        self.plain = below.plain
        self.query_one(".prices", Static).update(below)

    def _head(self, table: Object | None, words: str) -> str:
        if table is None:
            return words
        return f"{in_seconds(table['cost_s'])} a step. + - move a unit, [ ] ten, a number sets one, o finds the best, ctrl+z takes back"

    def _fill(self, table: Object | None) -> None:
        grid = self.query_one(DataTable)
        at = grid.cursor_coordinate
        grid.clear(columns=True)
        if table is None:
            return
        classes = table["classes"]
        grid.add_column("device")
        for c in classes:
            grid.add_column(Text(f"{c['class']} ({c['units']})"))
        grid.add_column("computes")
        top = max(table["busy"], default=0.0) or 1.0
        for d, name in enumerate(table["devices"]):
            cells = [Text(f"{c['shares'][d]:>6}  {c['shares'][d] / (c['units'] or 1) * 100:5.1f} %") for c in classes]
            bar = "█" * round(table["busy"][d] / top * 10)
            grid.add_row(Text(name), *cells, Text(f"{in_seconds(table['busy'][d]):>8} {bar}"))
        grid.move_cursor(row=min(at.row, len(table["devices"]) - 1), column=min(max(at.column, 1), len(classes)))

    def _prices(self, prices: list[Object] | None) -> Text:
        text = Text()
        quiet = Style.parse(MANNERS[self.app.current_theme.dark]["dim"])
        if prices is None:
            return text.append("looking what a unit is worth…", quiet)
        names = self.table["devices"] if self.table is not None else []
        text.append("What a unit is worth (shadow prices)\n", "bold")
        for p in prices:
            who = names[p["devices"][0]] + (f" and {len(p['devices']) - 1} more" if len(p["devices"]) > 1 else "")
            more = (
                "nobody to take it from"
                if p["more_s"] is None
                else f"{signed(p['more_s'])} from {names[p['more_from']]}"
            )
            less = "nobody to give it to" if p["less_s"] is None else f"{signed(p['less_s'])} to {names[p['less_to']]}"
            text.append(f"  {p['class']} on {who}: ", quiet)
            text.append(f"one more {more}; one less {less}\n")
        return text

    @property
    def cell(self) -> tuple[str, int] | None:
        """The class and device under the cursor."""
        at = self.query_one(DataTable).cursor_coordinate
        if (
            self.table is None
            or not 1 <= at.column <= len(self.table["classes"])
            or at.row >= len(self.table["devices"])
        ):
            return None
        return self.table["classes"][at.column - 1]["class"], at.row

    def action_step(self, step: int) -> None:
        if self.cell is not None:
            self.post_message(self.Moved(*self.cell, step=step))

    def action_optimise(self) -> None:
        self.post_message(self.Optimised())

    def on_key(self, event: Any) -> None:
        if event.character is not None and event.character.isdecimal() and self.cell is not None:
            event.stop()
            event.prevent_default()
            self.post_message(self.Typed(*self.cell, event.character))
