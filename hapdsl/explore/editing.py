"""Actions on the text: saving, undoing, going about in it."""

from __future__ import annotations

from hapdsl.explore.shell import Shell


class Editing(Shell):
    """What changes a document or moves in it."""

    def action_save(self) -> None:
        self.saving.save(self.session.document)

    def action_save_as(self) -> None:
        self.saving.save_as(self.session.document)

    def action_reload(self) -> None:
        self.saving.reload(self.session.document)

    def action_undo(self) -> None:
        self.editor.undo()

    def action_redo(self) -> None:
        self.editor.redo()

    def action_format(self) -> None:
        self.work.format(self.session.document)

    def action_next_problem(self) -> None:
        self._go_to_problem(1)

    def action_previous_problem(self) -> None:
        self._go_to_problem(-1)

    def _go_to_problem(self, step: int) -> None:
        places = sorted({(f.line, f.column) for f in self.session.document.findings if f.here and f.line})
        if not places:
            self.tell("nothing is wrong here" if not self.session.document.checking else "still checking")
            return
        line, column = self.editor.cursor_location
        here = (line + 1, column + 1)
        behind = [p for p in places if (p > here if step > 0 else p < here)]
        self.go_to_line(*(behind or places)[0 if step > 0 else -1])

    def go_to_line(self, line: int, column: int = 1) -> None:
        """Show the program at a place, with the cursor there."""
        self.show_view("texts")
        self.editor.go_to(line, column)
