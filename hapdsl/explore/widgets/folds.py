"""What a text area shows of a document whose blocks may be folded: each of them is one line then. The document itself knows nothing of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from rich.cells import cell_len
from textual.document._document import DocumentBase, Location
from textual.document._document_navigator import DocumentNavigator
from textual.document._wrapped_document import WrappedDocument
from textual.expand_tabs import expand_tabs_inline
from textual.geometry import Offset

from hapdsl.explore.blocks import around, blocks, carried


class Folded(WrappedDocument):
    """A document without wrapping, some of whose rows are hidden.

    `folds` are the rows that open what is folded. The original keeps lists per line for wrapped sections, adds all lines up for each line that is
    drawn, and can hide none.
    """

    def __init__(self, document: DocumentBase, width: int = 0, tab_width: int = 4) -> None:
        self.folds: set[int] = set()
        self._rows: Sequence[int] = range(0)  # what is shown, from top to bottom
        self._before: list[str] = []  # the lines that `folds` are rows of
        self._blocks: dict[int, int] | None = None
        super().__init__(document, 0, tab_width)

    # -- folding -------------------------------------------------------------------------

    @property
    def blocks(self) -> dict[int, int]:
        """What can be folded: first rows to last ones; looked for once per text."""
        if self._blocks is None:
            self._blocks = blocks(self.document.lines)
        return self._blocks

    def fold(self, folds: set[int]) -> None:
        """Fold these and nothing else."""
        self.folds = folds & self.blocks.keys()
        self._lay()

    def adopt(self, other: Folded) -> None:
        """Be folded as another text was, as far as that goes."""
        if other.folds:
            self.fold(carried(other.folds, other._before, self.document.lines))

    def last(self, row: int) -> int:
        """The last row of what the line of a row stands for: its own, unless it is folded."""
        return self.blocks[row] if row in self.folds else row

    def around(self, row: int) -> int | None:
        """The row that opens the innermost block around a row."""
        return around(self.blocks, row)

    def holding(self, row: int) -> set[int]:
        """The folds that hide a row."""
        return {r for r in self.folds if r < row <= self.blocks[r]}

    # -- rows and lines ------------------------------------------------------------------

    def y_of(self, row: int) -> int:
        """The line of the screen's text that a row is in; for a hidden one that of its fold."""
        return max(0, bisect_right(self._rows, row) - 1)

    def row_at(self, y: int) -> int | None:
        return self._rows[y] if 0 <= y < len(self._rows) else None

    def before(self, row: int) -> int | None:
        """The row shown above."""
        return self.row_at(self.y_of(row) - 1)

    def after(self, row: int) -> int | None:
        return self.row_at(self.y_of(row) + 1)

    # -- what the text area asks ------------------------------------------------------------

    def wrap(self, width: int, tab_width: int | None = None) -> None:
        self._tab_width = tab_width or self._tab_width
        self._renew()

    def wrap_range(self, start: Location, old_end: Location, new_end: Location) -> None:
        self._renew()

    @property
    def height(self) -> int:
        return len(self._rows)

    def offset_to_location(self, offset: Offset) -> Location:
        row = self._rows[min(max(0, offset.y), len(self._rows) - 1)]
        return row, self.get_target_document_column(row, max(0, offset.x), 0)

    def location_to_offset(self, location: Location) -> Offset:
        row = min(max(0, location[0]), self.document.line_count - 1)
        before = self.document.get_line(row)[: location[1]]
        return Offset(cell_len(expand_tabs_inline(before, self._tab_width)), self.y_of(row))

    def get_sections(self, line_index: int) -> list[str]:
        return [self.document.get_line(line_index)]

    def get_offsets(self, line_index: int) -> list[int]:
        return []

    # -- after a change ------------------------------------------------------------------------

    def _renew(self) -> None:
        self._blocks = None
        if self.folds:
            self.folds = carried(self.folds, self._before, self.document.lines)
        self._lay()

    def _lay(self) -> None:
        count = self.document.line_count
        self._before = list(self.document.lines) if self.folds else []
        if self.folds:
            rows, row = [], 0
            while row < count:
                rows.append(row)
                row = self.last(row) + 1
            self._rows = rows
        else:
            self._rows = range(count)
        self._offset_to_line_info = [(row, 0) for row in self._rows]


class Steps(DocumentNavigator):
    """Where the cursor goes from line to line: past what is hidden."""

    def __init__(self, folded: Folded) -> None:
        super().__init__(folded)
        self._folded = folded

    def _in(self, row: int, location: Location) -> Location:
        """The column of a row that lies above or below a location, or where the cursor wandered from."""
        x = max(self._folded.location_to_offset(location).x, self.last_x_offset)
        return row, self._folded.get_target_document_column(row, x, 0)

    def _end(self, row: int) -> Location:
        return row, len(self._document.get_line(row))

    def get_location_above(self, location: Location) -> Location:
        row = self._folded.before(location[0])
        return (0, 0) if row is None else self._in(row, location)

    def get_location_below(self, location: Location) -> Location:
        row = self._folded.after(location[0])
        return self._end(location[0]) if row is None else self._in(row, location)

    def get_location_left(self, location: Location) -> Location:
        row = self._folded.before(location[0])
        return self._end(row) if location[1] == 0 and row is not None else super().get_location_left(location)

    def get_location_right(self, location: Location) -> Location:
        if not self.is_end_of_document_line(location):
            return super().get_location_right(location)
        row = self._folded.after(location[0])
        return location if row is None else (row, 0)
