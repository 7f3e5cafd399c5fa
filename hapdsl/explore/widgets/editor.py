"""The editor of a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.document._document import EditResult, Location, Selection
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import Reactive, reactive
from textual.strip import Strip
from textual.widgets import TextArea
from textual.widgets.text_area import TextAreaTheme

from hapdsl.explore.blocks import changed, repeats
from hapdsl.explore.highlight import DARK, LIGHT, MANNERS, harmless, spans, widest
from hapdsl.explore.state import Finding
from hapdsl.explore.widgets.folds import Folded, Steps
from hapdsl.explore.widgets.rows import Rows

_STYLES = {
    dark: {kind: Style.parse(style) for kind, style in (DARK if dark else LIGHT).items()} for dark in (True, False)
}
WRONG = {
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
_QUIET = {dark: Style.parse(manners["dim"]) for dark, manners in MANNERS.items()}
_CLOSED, _OPEN = "▸", "▾"


class ProgramEditor(TextArea, inherit_bindings=False):
    """A text area that colours the language, says in its place what is wrong and folds blocks. F6 and F7 are the application's.

    TextArea draws all lines for each key, and has the screen laid out when the widest line grows. Here a line is drawn when what it shows has changed
    (`_shows`), and how far there is to scroll is between the editor and its scrollbars.
    """

    selection = reactive(Selection(), init=False, always_update=True, repaint=False)
    virtual_size = Reactive(Size(0, 0), repaint=False)

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
        self._drawn: dict[int, tuple[object, ...]] = {}  # by line of the window: what it shows
        self._strips: LRUCache[tuple[object, ...], Strip] = LRUCache(2048)  # by what they show
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

    folded: Folded  # what is shown of the document, under TextArea's name `wrapped_document`

    def _set_document(self, text: str, language: str | None) -> None:
        """TextArea's hook for a text that is loaded: its rows are the language's lines, and what was folded stays so as far as that goes."""
        before = getattr(self, "folded", None)
        self.document = Rows(text)
        self.wrapped_document = self.folded = Folded(self.document, tab_width=self.indent_width)
        if before is not None:
            self.folded.adopt(before)
        self.navigator = Steps(self.folded)
        self._build_highlight_map()
        self.move_cursor((0, 0))
        self._rewrap_and_refresh_virtual_size()

    def on_mount(self) -> None:
        self.recolour()

    def recolour(self) -> None:
        """Follow the application's theme."""
        self.theme = f"hap-{self.app.current_theme.dark}"
        self.notify_style_update()
        self.refresh()

    def get_line(self, line_index: int) -> Text:
        """The line with its colours: TextArea's own hook."""
        text = Text(harmless(self.document.get_line(line_index)), end="", no_wrap=True)
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
            text.stylize(WRONG[dark, mark.is_error], start, max(end, start + 1))
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
        return f"  {'✗' if worst.is_error else '!'} {harmless(worst.message)}", WRONG[dark, worst.is_error] + Style(
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
            self._refresh_size()
            self._redraw()

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
        before, after = self.document.lines, Rows(text).lines
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
        self._redraw()

    def _build_highlight_map(self) -> None:
        """TextArea's hook after each change of the text."""
        self._redraw()

    def _rewrap_and_refresh_virtual_size(self) -> None:
        super()._rewrap_and_refresh_virtual_size()
        self.refresh()

    def notify_style_update(self) -> None:
        self._strips.clear()
        super().notify_style_update()

    def _refresh_size(self) -> None:
        """As high as there is something to show."""
        width = widest(self.document.lines, self.indent_width)
        more = (r for r in (*self.folded.folds, *(line - 1 for line in self.marks)) if r < self.document.line_count)
        shown = max((len(self.document.get_line(r)) + len(self._behind(r)[0]) for r in more), default=0)
        room = (
            self.scrollable_content_region.width - self.gutter_width - 1
        )  # nobody has to scroll for what isn't in the text
        size = Size(max(width, min(shown, room)) + self.gutter_width + 1, self.folded.height)
        if size != self.virtual_size:
            self.virtual_size = size
            self._scroll_update(size)

    # -- drawing -------------------------------------------------------------------------

    def _shows(self, row: int | None) -> tuple[object, ...]:
        """All that the picture of a row depends on; of a line below the text, without a row, too."""
        around = (self.size.width, self.gutter_width, self.scroll_offset.x, self.theme)
        if row is None:
            return around
        selection, bracket = self.selection, self._matching_bracket_location
        here = selection.end[0] == row
        first, last = sorted((selection.start[0], selection.end[0]))
        return (
            *around,
            row,
            self.document.get_line(row),
            row in self.folded.blocks,
            row in self.folded.folds and self.folded.last(row),
            tuple(self.marks.get(row + 1, ())),
            selection if here or (first <= row <= last and not selection.is_empty) else None,
            here and self._draw_cursor,
            bracket if bracket is not None and (here or bracket[0] == row) else None,
        )

    def _redraw(self) -> None:
        """Have those lines drawn again that show something else by now."""
        top, height = self.scroll_offset.y, self.size.height
        rows = [
            y for y, shown in self._drawn.items() if y < height and self._shows(self.folded.row_at(y + top)) != shown
        ]
        if rows:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in rows))

    def render_line(self, y: int) -> Strip:
        """A line of TextArea's, with a mark between its number and its text where a block begins."""
        row = self.folded.row_at(y + self.scroll_offset.y)
        shown = self._drawn[y] = self._shows(row)
        strip = self._strips.get(shown)
        if strip is None:
            strip = self._strips[shown] = self._draw(y, row)
        return strip

    def _draw(self, y: int, row: int | None) -> Strip:
        strip = self._render_line(y)
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
