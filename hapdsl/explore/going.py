"""Going about in the text: searching, definitions and uses, fixes, layers rolled and unrolled."""

from __future__ import annotations

import re

from textual.widgets import Input

from hapdsl.explore.editing import Editing
from hapdsl.explore.inquiries import ADVISER
from hapdsl.explore.looking import Looking
from hapdsl.explore.names import definition, fix_of, name_at, uses
from hapdsl.explore.widgets.finder import Finder
from hapdsl.explore.widgets.plans import PlanList
from hapdsl.explore.work import Answered


class Going(Editing, Looking):
    """`sought` is the last search; while there is one, n and N go through its places."""

    sought: str = ""

    def action_find(self) -> None:
        """Search the text as one types; enter keeps the place, escape goes back."""
        finder = self.query_one(Finder)
        self.show_view("texts", focus=False)
        finder.begin(self.editor.cursor_location)

    def on_finder_sought(self, event: Finder.Sought) -> None:
        self.sought = event.words
        if event.words:
            self._find(event.start, 1, stay=True)

    def on_finder_left(self, event: Finder.Left) -> None:
        self.set_focus(self.editor)
        self.query_one(Finder).display = False
        if event.back is not None:
            self.editor.move_cursor(event.back)
            self.sought = ""

    def places(self) -> list[tuple[int, int]]:
        """Where what is sought stands; capitals count where some are typed."""
        sought, text = self.sought, self.editor.text
        manner = re.NOFLAG if any(c.isupper() for c in sought) else re.IGNORECASE
        found = []
        starts = [0]
        for line in text.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        row = 0
        for match in re.finditer(re.escape(sought), text, manner):
            while starts[row + 1] <= match.start():
                row += 1
            found.append((row, match.start() - starts[row]))
        return found

    def _find(self, start: tuple[int, int], step: int, stay: bool = False) -> None:
        places = self.places()
        self.query_one(Finder).tell(self._count(places))
        if not places:
            return
        if step > 0:
            at = next((p for p in places if p >= start if stay or p > start), places[0])
        else:
            at = next((p for p in reversed(places) if p < start), places[-1])
        self.editor.move_cursor(at)
        self.editor.move_cursor((at[0], at[1] + len(self.sought)), select=True)
        self.editor.scroll_cursor_visible(center=True, animate=False)

    def _count(self, places: list[tuple[int, int]] | None = None) -> str:
        count = len(self.places() if places is None else places)
        return f"{count:,} place{'s' * (count != 1)}"

    def action_next_match(self) -> None:
        """The next place of the search; without a search the next problem."""
        self._step(1)

    def action_previous_match(self) -> None:
        self._step(-1)

    def _step(self, step: int) -> None:
        if not self.sought:
            self.run_worker(self.run_action("next_problem" if step > 0 else "previous_problem"))
            return
        selection = self.editor.selection
        self._find(min(selection.start, selection.end), step)
        self.tell(f"'{self.sought}': {self._count()}")

    # -- names -----------------------------------------------------------------------------

    def action_definition(self) -> None:
        """Go to where the name under the cursor is made: in the program, else in the model; from there the model's line."""
        editor = self.editor
        row, column = editor.cursor_location
        name = name_at(editor.document.get_line(row), column)
        target = definition(editor.text, name, row + 1, self.session.document.program_at(row + 1)) if name else None
        if target is not None:
            self.went.append((self.session.document.key, row + 1, column + 1))
            self.go_to_line(*target)
            return
        source = (
            self.line_facts[1].get("source")
            if self.line_facts is not None and self.line_facts[0] == self.place()
            else None
        )
        if source is not None and source["file"] == self.session.document.name:
            self.went.append((self.session.document.key, row + 1, column + 1))
            self.go_to_line(source["line"], source["column"])
        else:
            where = f": it is in {source['file']}, line {source['line']}" if source is not None else ""
            self.tell(f"'{name}' isn't made in this text{where}" if name else "there is no name under the cursor")

    def action_jump_back(self) -> None:
        """Back to where the last jump began."""
        while self.went:
            key, line, column = self.went.pop()
            if key == self.session.document.key:
                self.go_to_line(line, column)
                return
        self.tell("no jump to go back from")

    def action_uses(self) -> None:
        """Go to the next use of the name under the cursor, round and round."""
        editor = self.editor
        row, column = editor.cursor_location
        name = name_at(editor.document.get_line(row), column)
        places = uses(editor.text, name, row + 1, self.session.document.program_at(row + 1)) if name else []
        if len(places) < 2:
            self.tell(f"'{name}' stands nowhere else" if name else "there is no name under the cursor")
            return
        behind = [p for p in places if p > (row + 1, column + 1)]
        self.went.append((self.session.document.key, row + 1, column + 1))
        self.go_to_line(*(behind or places)[0])
        self.tell(f"{name}: {len(places)} places")

    # -- fixes and layers -----------------------------------------------------------------

    def action_fix(self) -> None:
        """Do what the diagnostic of the line proposes."""
        row = self.editor.cursor_location[0]
        for finding in self.session.document.findings:
            if finding.here and finding.line == row + 1:
                fix = fix_of(finding, self.editor.document.get_line(row))
                if fix is not None:
                    self.editor.replace(fix.text, (row, fix.start), (row, fix.end))
                    self.tell(fix.said)
                    return
        self.tell("there is no fix for this line that can be made by itself; its help says what to do")

    def action_fold(self) -> None:
        """The block around the cursor is one line, or whole again."""
        self._see_program()
        if not self.editor.toggle_fold():
            self.tell("there is no block around the cursor")

    def _see_program(self) -> None:
        """Without giving the editor the keys: the next plain key isn't meant to be typed."""
        if self.view != "texts":
            self.show_view("texts", focus=False)
            self.query_one(PlanList).focus()

    def action_fold_layers(self) -> None:
        """Everything that is rolled is one line each, or all is whole again."""
        self._see_program()
        count = self.editor.fold_layers()
        if count is None:
            self.tell("nothing is rolled here; ctrl+space folds the block around the cursor")

    def action_unroll(self) -> None:
        """Write the layers of the program out, or roll them again."""
        subject = self.subject()
        if subject is None:
            self.tell("only a proven program can be rolled or unrolled")
            return
        self.work.inquiries.ask("unroll", "unroll", [(self.session.documents[subject[0]], subject[2])], None, ADVISER)

    async def heard_unroll(self, news: Answered) -> None:
        await self.rewrite(news, "")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
