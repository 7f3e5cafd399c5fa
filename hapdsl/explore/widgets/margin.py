"""The margin beside an editor: what each line costs, and a mark where it is wrong."""

from __future__ import annotations

from collections.abc import Mapping

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from hapdsl.explore.highlight import MANNERS
from hapdsl.explore.state import Finding, LineCost
from hapdsl.explore.widgets.editor import WRONG, ProgramEditor
from hapdsl.lang.amounts import in_seconds

_PLAIN = Style()


class CostMargin(Widget):
    """A column beside an editor: what the line costs, and a mark where it is wrong."""

    WIDTH = 11

    def __init__(self, editor: ProgramEditor) -> None:
        super().__init__()
        self.editor = editor
        self.costs: Mapping[int, LineCost] = {}
        self.old: set[int] = set()
        self.total = 0.0
        self.marks: Mapping[int, list[Finding]] = {}
        self.ran: Mapping[int, float] = {}  # seconds that lines were measured to take
        self._base = Style()
        self._drawn: dict[int, list[tuple[str, Style]]] = {}  # by line of the window: what it says

    def on_mount(self) -> None:
        self.watch(self.editor, "scroll_y", self._scrolled, init=False)

    def _scrolled(self) -> None:
        self.refresh()

    def show(
        self, costs: Mapping[int, LineCost], old: set[int], total: float, marks: Mapping[int, list[Finding]]
    ) -> None:
        """`total` is the step's seconds, which line costs are shaded by."""
        self.costs, self.old, self.total, self.marks = costs, old, total, marks
        rows = [y for y, shown in self._drawn.items() if y < self.size.height and self._pieces(y) != shown]
        if rows:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in rows))

    def render_lines(self, crop: Region) -> list[Strip]:
        self._base = self.rich_style  # once for all lines: all that stands around the widget has a say in it
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        pieces = self._drawn[y] = self._pieces(y)
        parts = [Segment(words, self._base + style) for words, style in pieces]
        return Strip(parts).adjust_cell_length(self.size.width, self._base)

    def _pieces(self, y: int) -> list[tuple[str, Style]]:
        """What a line of the margin says, and how."""
        row = self.editor.folded.row_at(self.editor.scroll_offset.y + y)
        if y >= self.editor.scrollable_content_region.height or row is None:
            return []
        lines = range(row + 1, self.editor.folded.last(row) + 2)  # more than one where it is folded
        marks = [m for line in lines for m in self.marks.get(line, ())]
        dark = self.app.current_theme.dark
        sign, sign_style = "  ", _PLAIN
        if marks:
            error = any(m.is_error for m in marks)
            sign, sign_style = ("✗ " if error else "! "), WRONG[dark, error] + Style(underline=False, bold=True)
        seconds = sum(self.costs[line].seconds for line in lines if line in self.costs)
        words = in_seconds(seconds) if seconds > 0 else ""
        pieces = [
            (sign, sign_style),
            (f"{words:>8} ", self._shade(seconds, any(line in self.old for line in lines), dark)),
        ]
        if self.ran:
            ran = sum(self.ran.get(line, 0.0) for line in lines)
            pieces.append((f"{f'ran {in_seconds(ran)}' if ran > 0 else '':>13} ", self._shade(ran, False, dark)))
        return pieces

    def measured(self, ran: Mapping[int, float]) -> None:
        """Put what lines were measured to take beside what they should; nothing takes it away."""
        if ran != self.ran:
            self.ran = ran
            self.styles.width = self.WIDTH + (14 if ran else 0)
            self.refresh()

    def _shade(self, seconds: float, old: bool, dark: bool) -> Style:
        """What takes a fifth of the step stands out, what takes less than a hundredth is quiet; so is what is only remembered."""
        if old:
            return Style.parse("italic #6e7681" if dark else "italic #8c959f")
        share = seconds / self.total if self.total > 0 else 0.0
        if share >= 0.2:
            return Style.parse("bold #ff9e64" if dark else "bold #b93a00")
        if share >= 0.01:
            return Style.parse("#d7dce3" if dark else "#24292f")
        return Style.parse(MANNERS[dark]["dim"])


class TextPane(Horizontal):
    """An editor with its margin."""

    def __init__(self, key: str, text: str, *, id: str) -> None:
        super().__init__(id=id)
        self.key = key
        self.editor = ProgramEditor(text)
        self.margin = CostMargin(self.editor)

    def compose(self) -> ComposeResult:
        yield self.editor
        yield self.margin

    def on_program_editor_folds_changed(self) -> None:
        self.margin.refresh()
