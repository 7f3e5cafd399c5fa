"""The editor of a document, and the margin with what each line costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.document._wrapped_document import WrappedDocument
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import TextArea
from textual.widgets.text_area import TextAreaTheme

from hapdsl.explore.highlight import DARK, LIGHT, spans
from hapdsl.explore.state import Finding, LineCost
from hapdsl.lang.amounts import in_seconds

_STYLES = {dark: {kind: Style.parse(style) for kind, style in (DARK if dark else LIGHT).items()} for dark in (True, False)}
_WRONG = {
    (dark, error): Style.parse(f"underline {colour}")
    for dark, error, colour in ((True, True, "#ff7070"), (True, False, "#e5c07b"), (False, True, "#c0102a"), (False, False, "#8a5a00"))
}

# The line with the cursor keeps the colours of its words: only its background differs.
_CURSOR_LINE = {True: "#2b2f36", False: "#c9ced6"}


class Flat(WrappedDocument):
    """A document without wrapping: as high as it has lines. The original adds all lines up for each line that is drawn."""

    @property
    def height(self) -> int:
        return self.document.line_count


class ProgramEditor(TextArea, inherit_bindings=False):
    """A text area that colours the language and underlines what is wrong. F6 and F7 are the application's."""

    BINDINGS: ClassVar[list[BindingType]] = [b for b in TextArea.BINDINGS if not (isinstance(b, Binding) and b.key in ("f6", "f7"))]

    class Left(Message):
        """Escape was pressed: whoever holds the editor decides what that means."""

    def __init__(self, text: str, *, id: str | None = None) -> None:
        super().__init__(text, id=id, show_line_numbers=True, soft_wrap=False, tab_behavior="indent", theme="css", max_checkpoints=2000)
        self.marks: dict[int, list[Finding]] = {}
        for dark, shade in _CURSOR_LINE.items():
            self.register_theme(TextAreaTheme(f"hap-{dark}", cursor_line_style=Style(bgcolor=shade)))

    @property
    def wrapped_document(self) -> WrappedDocument:
        return self._flat

    @wrapped_document.setter
    def wrapped_document(self, value: WrappedDocument) -> None:
        self._flat = value if isinstance(value, Flat) else Flat(value.document, tab_width=value._tab_width)

    def on_mount(self) -> None:
        self.recolour()

    def recolour(self) -> None:
        """Follow the application's theme."""
        self.theme = f"hap-{self.app.current_theme.dark}"
        self.notify_style_update()
        self.refresh()

    def get_line(self, line_index: int) -> Text:
        """The line with its colours: TextArea's own hook."""
        text = super().get_line(line_index)
        dark = self.app.current_theme.dark
        styles = _STYLES[dark]
        for start, end, kind in spans(text.plain):
            style = styles.get(kind)
            if style is not None:
                text.stylize(style, start, end)
        for mark in self.marks.get(line_index + 1, ()):
            start = max(0, mark.column - 1)
            end = mark.end_column - 1 if mark.end_line == mark.line and mark.end_column > mark.column else len(text)
            if start >= len(text):
                start = max(0, len(text) - 1)
            text.stylize(_WRONG[dark, mark.is_error], start, max(end, start + 1))
        return text

    def mark(self, findings: Sequence[Finding]) -> None:
        """Underline these, and nothing else."""
        marks: dict[int, list[Finding]] = {}
        for f in findings:
            if f.here and f.line:
                marks.setdefault(f.line, []).append(f)
        if marks != self.marks:
            self.marks = marks
            self.notify_style_update()
            self.refresh()

    async def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            event.prevent_default()
            self.post_message(self.Left())

    def go_to(self, line: int, column: int = 1, top: bool = False) -> None:
        """Put the cursor on a line (from 1) and show it, at the top of the window if asked."""
        row = min(max(0, line - 1), self.document.line_count - 1)
        self.move_cursor((row, min(max(0, column - 1), len(self.document.get_line(row)))))
        if top:
            # Once the panes have their sizes: before that there may be nothing to scroll in.
            self.call_after_refresh(self.scroll_to, y=max(0, row - 1), x=0, animate=False, force=True)

    def put(self, text: str) -> None:
        """Replace the whole text as one edit that can be undone; the cursor keeps its line."""
        row, column = self.cursor_location
        last = self.document.line_count - 1
        self.replace(text, (0, 0), (last, len(self.document.get_line(last))), maintain_selection_offset=False)
        self.go_to(row + 1, column + 1)


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

    def on_mount(self) -> None:
        self.watch(self.editor, "scroll_y", self._scrolled, init=False)

    def _scrolled(self) -> None:
        self.refresh()

    def show(self, costs: Mapping[int, LineCost], old: set[int], total: float, marks: Mapping[int, list[Finding]]) -> None:
        """`total` is the step's seconds, which line costs are shaded by."""
        self.costs, self.old, self.total, self.marks = costs, old, total, marks
        self.refresh()

    def render_line(self, y: int) -> Strip:
        base = self.rich_style
        line = self.editor.scroll_offset.y + y + 1
        if y >= self.editor.scrollable_content_region.height or line > self.editor.document.line_count:
            return Strip.blank(self.size.width, base)
        marks = self.marks.get(line)
        dark = self.app.current_theme.dark
        sign, sign_style = "  ", base
        if marks:
            error = any(m.is_error for m in marks)
            sign, sign_style = ("✗ " if error else "! "), base + _WRONG[dark, error] + Style(underline=False, bold=True)
        cost = self.costs.get(line)
        words = in_seconds(cost.seconds) if cost is not None and cost.seconds > 0 else ""
        style = base + self._shade(cost.seconds if cost is not None else 0.0, line in self.old, dark)
        parts = [Segment(sign, sign_style), Segment(f"{words:>8} ", style)]
        if self.ran:
            ran = self.ran.get(line, 0.0)
            parts.append(Segment(f"{f'ran {in_seconds(ran)}' if ran > 0 else '':>13} ", base + self._shade(ran, False, dark)))
        return Strip(parts).adjust_cell_length(self.size.width, base)

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
        return Style.parse("#8b949e" if dark else "#6e7781")


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
