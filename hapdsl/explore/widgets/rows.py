"""The text of an editor, as rows."""

from __future__ import annotations

from textual.document._document import Document, EditResult, Location

from hapdsl.explore.disk import unix


class Rows(Document):
    """A document whose rows end with `\\n`, as the language counts lines.

    Textual's own ends them with whatever Unicode calls a line break (a form feed, U+2028): costs and findings would stand at other rows, and what
    is saved would be another text than the one that was read.
    """

    def __init__(self, text: str) -> None:
        super().__init__("")
        self._newline = "\n"
        self._lines = unix(text).split("\n")

    def replace_range(self, start: Location, end: Location, text: str) -> EditResult:
        """Put a text in the place of what stands between two locations (row and column from 0)."""
        taken = super().replace_range(start, end, "")
        row, column = taken.end_location
        rest = self._lines[row]
        rows = unix(text).split("\n")
        after = len(rows[-1]) if len(rows) > 1 else column + len(rows[0])
        rows[0] = rest[:column] + rows[0]
        rows[-1] += rest[column:]
        self._lines[row : row + 1] = rows
        return EditResult((row + len(rows) - 1, after), taken.replaced_text)
