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
from textual.document._document import Document, EditResult, Location, Selection
from textual.document._document_navigator import DocumentNavigator
from textual.document._wrapped_document import WrappedDocument
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import TextArea
from textual.widgets.text_area import TextAreaTheme

from hapdsl.explore.blocks import changed, repeats
from hapdsl.explore.highlight import DARK, LIGHT, spans, widest
from hapdsl.explore.state import Finding, LineCost
from hapdsl.explore.widgets.folds import Folded, Steps
from hapdsl.lang.amounts import in_seconds

_STYLES = {
    dark: {kind: Style.parse(style) for kind, style in (DARK if dark else LIGHT).items()} for dark in (True, False)
}
_WRONG = {
    (dark, error): Style.parse(f"underline {colour}")
    for dark, error, colour in (
        (True, True, "#ff7070"),
        (True, False, "#e5c07b"),
        (False, True, "#c0102a"),
        (False, False, "#8a5a00"),
    )
}

# The line with the cursor keeps the colours of its words: only its background differs.
_CURSOR_LINE = {True: "#2b2f36", False: "#c9ced6"}
_QUIET = {True: Style.parse("#8b949e"), False: Style.parse("#6e7781")}
_CLOSED, _OPEN = "▸", "▾"


class ProgramEditor(TextArea, inherit_bindings=False):
    """A text area that colours the language, says in its place what is wrong and folds blocks. F6 and F7 are the application's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(b for b in TextArea.BINDINGS if not (isinstance(b, Binding) and b.key in ("f6", "f7"))),
        Binding("ctrl+home", "text_start", show=False),
        Binding("ctrl+end", "text_end", show=False),
        Binding("ctrl+shift+home", "text_start(True)", show=False),
        Binding("ctrl+shift+end", "text_end(True)", show=False),
    ]

    class Left(Message):
        """Escape was pressed: whoever holds the editor decides what that means."""

    def __init__(self, text: str, *, id: str | None = None) -> None:
        self.marks: dict[int, list[Finding]] = {}  # by line; asked for as soon as there is a text
        super().__init__(
            text,
            id=id,
            show_line_numbers=True,
            soft_wrap=False,
            tab_behavior="indent",
            theme="css",
            max_checkpoints=2000,
        )
        for dark, shade in _CURSOR_LINE.items():
            self.register_theme(TextAreaTheme(f"hap-{dark}", cursor_line_style=Style(bgcolor=shade)))

    # TextArea makes both of these for each document that is loaded; ours take their places.

    folded: Folded
    _steps: Steps

    @property
    def wrapped_document(self) -> WrappedDocument:
        return self.folded

    @wrapped_document.setter
    def wrapped_document(self, value: WrappedDocument) -> None:
        fresh = Folded(value.document, tab_width=value._tab_width)
        if hasattr(self, "folded"):
            fresh.adopt(self.folded)
        self.folded = fresh

    @property
    def navigator(self) -> DocumentNavigator:
        return self._steps

    @navigator.setter
    def navigator(self, value: DocumentNavigator) -> None:
        self._steps = Steps(self.folded)

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
        words, style = self._behind(line_index, dark)
        if words:
            text.append(words, style)
        return text

    def _behind(self, row: int, dark: bool = True) -> tuple[str, Style]:
        """What is shown behind a row and isn't in the text: what stands for the rows that a fold hides, or what is wrong."""
        count = self.folded.last(row) - row
        if count:
            return f" … }}  {count} line{'s' * (count > 1)}", _QUIET[dark]
        marks = self.marks.get(row + 1)
        if not marks:
            return "", Style()
        worst = min(marks, key=lambda f: not f.is_error)
        return f"  {'✗' if worst.is_error else '!'} {worst.message}", _WRONG[dark, worst.is_error] + Style(
            underline=False, italic=True
        )

    def mark(self, findings: Sequence[Finding]) -> None:
        """Underline these, and nothing else."""
        marks: dict[int, list[Finding]] = {}
        for f in findings:
            if f.here and f.line:
                marks.setdefault(f.line, []).append(f)
        if marks != self.marks:
            self.marks = marks
            self.notify_style_update()
            self._refresh_size()
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
            self.call_after_refresh(self._scroll_to_row, row)

    def action_text_start(self, select: bool = False) -> None:
        self.move_cursor((0, 0), select=select)

    def action_text_end(self, select: bool = False) -> None:
        """The last line that is shown: what is folded stays so."""
        row = self.folded.row_at(self.folded.height - 1) or 0
        self.move_cursor((row, len(self.document.get_line(row))), select=select)

    def _scroll_to_row(self, row: int) -> None:
        self.scroll_to(y=max(0, self.folded.y_of(row) - 1), x=0, animate=False, force=True)

    def put(self, text: str) -> None:
        """Replace what differs from a text as one edit that can be undone; the cursor keeps its line."""
        row, column = self.cursor_location
        before, after = self.document.lines, Document(text).lines
        head, last, by = changed(before, after)
        if head == last == last + by:
            return
        if head == last or head == last + by:  # lines are taken away, or put in: with one beside them
            head, last = (head - 1, last) if head else (head, last + 1)
        self.replace(
            "\n".join(after[head : last + by]),
            (head, 0),
            (last - 1, len(before[last - 1])),
            maintain_selection_offset=True,
        )
        self.go_to(row + 1, column + 1)

    # -- folding -------------------------------------------------------------------------

    class FoldsChanged(Message):
        """Other lines are shown than before."""

    def toggle_fold(self, row: int | None = None) -> bool:
        """Fold or unfold the innermost block around a row, the cursor's if none is said; False where there is no block."""
        first = self.folded.around(self.cursor_location[0] if row is None else row)
        if first is None:
            return False
        self._fold(self.folded.folds ^ {first})
        return True

    def fold_layers(self) -> int | None:
        """Fold everything that is rolled, or unfold all where that is folded; how many are folded now, None where nothing is rolled."""
        layers = set(repeats(self.document.lines, self.folded.blocks))
        if not layers and not self.folded.folds:
            return None
        opened = not layers - self.folded.folds
        self._fold(set() if opened else self.folded.folds | layers)
        return 0 if opened else len(layers)

    def _fold(self, folds: set[int]) -> None:
        row, column = self.cursor_location
        outside = min((r for r in folds if r < row <= self.folded.blocks.get(r, r)), default=None)
        if outside is not None:  # before it is hidden, or it would be opened again
            self.move_cursor((outside, min(column, len(self.document.get_line(outside)))))
        self.folded.fold(folds)
        self._folds_changed()

    def _folds_changed(self) -> None:
        self.notify_style_update()  # what was drawn was drawn for other lines
        self._refresh_size()
        self.scroll_cursor_visible()
        self.refresh()
        self.post_message(self.FoldsChanged())

    def watch_selection(self, before: Selection, now: Selection) -> None:
        """Nobody's cursor is where it can't be seen."""
        holding = self.folded.holding(now.end[0])
        if holding:
            self.folded.fold(self.folded.folds - holding)
            self._folds_changed()
        elif self.folded.folds:
            self._line_cache.clear()  # its keys take lines of the screen for rows of the text

    def _refresh_size(self) -> None:
        """As high as there is something to show."""
        width = widest(self.document.lines, self.indent_width)
        more = (r for r in (*self.folded.folds, *(line - 1 for line in self.marks)) if r < self.document.line_count)
        shown = max((len(self.document.get_line(r)) + len(self._behind(r)[0]) for r in more), default=0)
        room = (
            self.scrollable_content_region.width - self.gutter_width - 1
        )  # nobody has to scroll for what isn't in the text
        self.virtual_size = Size(max(width, min(shown, room)) + self.gutter_width + 1, self.folded.height)
        self._refresh_scrollbars()

    def render_line(self, y: int) -> Strip:
        """A line of TextArea's, with a mark between its number and its text where a block begins."""
        strip = super().render_line(y)
        row = self.folded.row_at(y + self.scroll_offset.y)
        if row is None or row not in self.folded.blocks:
            return strip
        at = self.gutter_width - 2
        sign = Strip([Segment(_CLOSED if row in self.folded.folds else _OPEN, _QUIET[self.app.current_theme.dark])])
        under = next((s.style for s in strip.crop(at, at + 1) if s.style is not None), Style())
        return Strip.join([strip.crop(0, at), sign.apply_style(under), strip.crop(at + 1)])

    async def on_mouse_down(self, event: events.MouseDown) -> None:
        """A click on the number of a line that begins a block folds it; one behind a folded line unfolds it."""
        row = self.folded.row_at(event.y - self.gutter.top + self.scroll_offset.y)
        if row is None or row not in self.folded.blocks:
            return
        x = event.x - self.gutter.left - self.gutter_width
        end = self.get_column_width(row, len(self.document.get_line(row)))
        if x < 0 or (row in self.folded.folds and x + self.scroll_offset.x > end):
            event.stop()
            event.prevent_default()
            self.toggle_fold(row)

    # Keys never delete what isn't seen: first it is shown.

    def _delete_via_keyboard(self, start: Location, end: Location) -> EditResult | None:
        first, last = sorted((start[0], end[0]))
        unseen = {r for r in self.folded.folds if r < last and self.folded.last(r) >= first}
        if unseen and self.selection.is_empty and first != last:
            self.folded.fold(self.folded.folds - unseen)
            self._folds_changed()
            return None
        return super()._delete_via_keyboard(start, end)

    def _delete_cursor_line(self) -> EditResult | None:
        """A folded line is all that it stands for."""
        row, _ = self.cursor_location
        if self.selection.is_empty and row in self.folded.folds:
            return self.delete((row, 0), (self.folded.last(row) + 1, 0), maintain_selection_offset=False)
        return super()._delete_cursor_line()


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

    def on_mount(self) -> None:
        self.watch(self.editor, "scroll_y", self._scrolled, init=False)

    def _scrolled(self) -> None:
        self.refresh()

    def show(
        self, costs: Mapping[int, LineCost], old: set[int], total: float, marks: Mapping[int, list[Finding]]
    ) -> None:
        """`total` is the step's seconds, which line costs are shaded by."""
        self.costs, self.old, self.total, self.marks = costs, old, total, marks
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        self._base = self.rich_style  # once for all lines: all that stands around the widget has a say in it
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        base = self._base
        row = self.editor.folded.row_at(self.editor.scroll_offset.y + y)
        if y >= self.editor.scrollable_content_region.height or row is None:
            return Strip.blank(self.size.width, base)
        lines = range(row + 1, self.editor.folded.last(row) + 2)  # more than one where it is folded
        marks = [m for line in lines for m in self.marks.get(line, ())]
        dark = self.app.current_theme.dark
        sign, sign_style = "  ", base
        if marks:
            error = any(m.is_error for m in marks)
            sign, sign_style = ("✗ " if error else "! "), base + _WRONG[dark, error] + Style(underline=False, bold=True)
        seconds = sum(self.costs[line].seconds for line in lines if line in self.costs)
        words = in_seconds(seconds) if seconds > 0 else ""
        style = base + self._shade(seconds, any(line in self.old for line in lines), dark)
        parts = [Segment(sign, sign_style), Segment(f"{words:>8} ", style)]
        if self.ran:
            ran = sum(self.ran.get(line, 0.0) for line in lines)
            parts.append(
                Segment(f"{f'ran {in_seconds(ran)}' if ran > 0 else '':>13} ", base + self._shade(ran, False, dark))
            )
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

    def on_program_editor_folds_changed(self) -> None:
        self.margin.refresh()
