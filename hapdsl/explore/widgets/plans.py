"""The list of plans at hand."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from hapdsl.explore.highlight import MANNERS
from hapdsl.explore.session import BASELINE, SYNTHESISED, Row, gap_in_words
from hapdsl.explore.state import PROVEN, SKETCH, TEXT, UNKNOWN
from hapdsl.lang.amounts import in_seconds

MARKS = {PROVEN: "✓", SKETCH: "~", UNKNOWN: "·", TEXT: " "}
_LIKE = {"✓": "good", "~": "warning", "·": "dim", " ": "dim", "✗": "error"}
BAR = 8  # columns of the longest bar
ONE_LINE = 56  # columns from which a plan takes one line


class PlanList(OptionList):
    """Plans with cost, gap and proof mark. Moving the cursor shows a plan."""

    class Chosen(Message):
        def __init__(self, key: tuple[str, str]) -> None:
            super().__init__()
            self.key = key

    class Opened(Message):
        """Enter, or a click: somebody wants to see the program."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.rows: list[Row] = []
        self.marked: Sequence[tuple[str, str]] = ()

    def show(
        self, rows: Sequence[Row], current: tuple[str, str] | None, marked: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Show these plans with the cursor on the current one; `marked` ones are numbered."""
        self.marked = list(marked)
        same = [r.plan.key for r in rows] == [r.plan.key for r in self.rows]
        self.rows = list(rows)
        with self.prevent(OptionList.OptionHighlighted):
            if same:
                for k, row in enumerate(rows):
                    self._tell(k, self._prompt(row))
            else:
                self.clear_options()
                self.add_options([Option(self._prompt(row)) for row in rows])
            self.highlighted = next((k for k, r in enumerate(rows) if r.plan.key == current), None)

    def _tell(self, index: int, prompt: Text) -> None:
        """Another prompt, if it is one: the list is laid out again for it."""
        if prompt != self.get_option_at_index(index).prompt:
            self.replace_option_prompt_at_index(index, prompt)

    def on_resize(self, event: events.Resize) -> None:
        for k, row in enumerate(self.rows):
            self.replace_option_prompt_at_index(k, self._prompt(row))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self._choose(event.option_index)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self._choose(event.option_index)
        self.post_message(self.Opened())

    def _choose(self, index: int) -> None:
        if 0 <= index < len(self.rows):
            self.post_message(self.Chosen(self.rows[index].plan.key))

    def _prompt(self, row: Row) -> Text:
        width = max(16, self.size.width - self.gutter.width - 2 * self._left - 1) if self.size.width else 30
        manners = MANNERS[self.app.current_theme.dark]
        mark, quiet = MARKS.get(row.state, "✗"), manners["dim"]
        cost = in_seconds(row.seconds) if row.seconds is not None else ""
        manner = f"italic {quiet}" if row.old else "bold"
        about = f"{self._bar(row)}{self._about(row)}"
        text = Text(no_wrap=True, overflow="ellipsis", end="")
        text.append(f"{mark} ", Style.parse(f"bold {manners[_LIKE[mark]]}"))
        number = f"[{self.marked.index(row.plan.key) + 1}] " if row.plan.key in self.marked else ""
        title = f"{number}{row.plan.title}{' •' if row.dirty else ''}"
        if width >= ONE_LINE:
            text.append(set_cell_size(title, 24))
            text.append(f"{cost:>9}", Style.parse(manner))
            text.append(set_cell_size(f"   {about}", max(0, width - 35)), Style.parse(quiet))
            return text
        room = width - 2 - max(cell_len(cost), 1) - 1
        text.append(set_cell_size(title, room))
        text.append(f" {cost}", Style.parse(manner))
        text.append(f"\n  {set_cell_size(about, width - 2)}", Style.parse(quiet))
        return text

    def _bar(self, row: Row) -> str:
        """The cost beside the dearest of the list."""
        worst = max((r.seconds for r in self.rows if r.seconds is not None), default=0.0)
        if row.seconds is None or worst <= 0 or len(self.rows) < 2:
            return ""
        return "▆" * max(1, round(BAR * row.seconds / worst)) + " "

    @property
    def _left(self) -> int:
        """Columns that an option keeps free on each side."""
        padding = self.get_component_styles("option-list--option").padding
        return int(padding.left)

    def _about(self, row: Row) -> str:
        plan = row.plan
        if not plan.program:
            return "what the plans are for" if row is self.rows[0] else "no program"
        kind = {SYNTHESISED: "synthesised", BASELINE: "baseline"}.get(plan.origin, "in this file")
        parts = [plan.doing or gap_in_words(plan.gap), kind, "" if row.fits else "doesn't fit", row.model]
        return " · ".join(p for p in parts if p)
