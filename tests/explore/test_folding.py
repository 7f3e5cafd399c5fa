"""Blocks of the editor that are one line: what is seen, what keys do, and that nothing is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from textual.widgets import Input

from hapdsl.explore.app import ExploreApp
from hapdsl.explore.blocks import around, blocks, carried
from hapdsl.explore.widgets.words import Words
from hapdsl.lang.amounts import in_seconds
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text

from .conftest import FILES, on_screen, opened, run, settled

TEXT = (FILES / "small.hap").read_text()
BACKWARD = TEXT.split("\n").index("    backward {")


def test_blocks_are_found_by_their_braces() -> None:
    text = 'a {\n  b { c { \n  # }\n  s = "}"\n  } }\n  d { x }\n  e {\n  } f {\n    y\n  }  # end\n}\n} {\n'
    # Nothing is left to be hidden of e; what isn't closed is no block.
    assert blocks(text.split("\n")) == {
        0: 10,
        1: 4,
        7: 9,
    }
    assert around({0: 10, 1: 4, 7: 9}, 3) == 1 and around({0: 10}, 12) is None and around({0: 10, 7: 9}, 7) == 7


def test_folds_stay_with_their_blocks() -> None:
    lines = TEXT.split("\n")
    starts = sorted(blocks(lines))
    for row in starts:
        assert carried({row}, lines, ["# new", *lines]) == {row + 1}
        assert carried({row}, lines, [*lines[:row], lines[row].replace(" {", "  {"), *lines[row + 1 :]]) == {row}
    without = [line for k, line in enumerate(lines) if not BACKWARD <= k <= blocks(lines)[BACKWARD]]
    assert carried({BACKWARD, starts[-1]}, lines, without) == {starts[-1] - (len(lines) - len(without))}


def seen(app: ExploreApp) -> str:
    return on_screen(app)


def test_a_block_is_one_line_with_all_that_it_costs(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(120, 30)) as (app, pilot):
            editor = app.editor
            end = editor.folded.blocks[BACKWARD]
            costs = app.session.document.costs()[0]
            editor.go_to(BACKWARD + 4, 9)
            await pilot.press("ctrl+@")
            await settled(app, pilot)
            assert editor.cursor_location[0] == BACKWARD and editor.folded.folds == {BACKWARD}
            line = next(row for row in seen(app).split("\n") if "backward {" in row)
            together = in_seconds(sum(c.seconds for n, c in costs.items() if BACKWARD + 1 <= n <= end + 1))
            assert f"▸ {TEXT.split(chr(10))[BACKWARD]} … }}  {end - BACKWARD} lines" in line and together in line
            assert "z.grad@S(0)  =" not in seen(app) and "update {" in seen(app)
            assert f"lines {BACKWARD + 1} to {end + 1} together: {together}" in app.query_one("#detail", Words).plain
            assert editor.text == TEXT and editor.virtual_size.height == editor.document.line_count - (end - BACKWARD)
            await pilot.press("down")
            assert editor.cursor_location[0] == end + 1
            await pilot.press("up", "end", "right")
            assert editor.cursor_location == (end + 1, 0)
            await pilot.press("left")
            assert editor.cursor_location == (BACKWARD, len("    backward {"))
            # The mouse: behind the line, and on its number.
            y = BACKWARD - editor.scroll_offset.y
            await pilot.click(type(editor), offset=(editor.gutter_width + 22, y))
            assert not editor.folded.folds
            await pilot.click(type(editor), offset=(1, y))
            assert editor.folded.folds == {BACKWARD}
            # Jumps open what hides where they go.
            editor.go_to(1)
            await pilot.press("ctrl+g")
            app.query_one(Input).value = "relu_grad"
            await settled(app, pilot, lambda: editor.selected_text == "relu_grad")
            assert not editor.folded.folds and "relu_grad" in seen(app)

    run(work())


def test_a_problem_in_a_fold_is_marked_and_found(small: Path) -> None:
    async def work() -> None:
        async with opened(small, size=(120, 30)) as (app, pilot):
            editor = app.editor
            editor.go_to(BACKWARD + 1)
            await pilot.press("ctrl+@", "up")
            editor.put(TEXT.replace("relu_grad(h@S(0), h.grad@S(0))", "relu_grad(h@S(0), h.grad@R)"))
            await settled(app, pilot)
            assert editor.folded.folds == {BACKWARD} and "✗" in next(
                row for row in seen(app).split("\n") if "backward {" in row
            )
            await pilot.press("f8")
            await settled(app, pilot)
            assert not editor.folded.folds and "relu_grad" in editor.document.get_line(editor.cursor_location[0])
            await pilot.press("escape", "Z")  # nothing is rolled in this file
            assert not editor.folded.folds and any("nothing is rolled" in n.message for n in app._notifications)

    run(work())


def test_keys_delete_nothing_that_is_not_seen(small: Path) -> None:
    async def work() -> None:
        async with opened(small) as (app, pilot):
            editor = app.editor
            end = editor.folded.blocks[BACKWARD]
            for at, key in (
                ((end + 1, 0), "backspace"),
                ((BACKWARD, 14), "delete"),
                ((end + 1, 0), "ctrl+w"),
                ((BACKWARD, 14), "ctrl+k"),
                ((end + 1, 0), "ctrl+u"),
            ):
                editor.folded.fold({BACKWARD})
                editor.move_cursor(at)
                await pilot.press(key)
                assert editor.text == TEXT and not editor.folded.folds, key
            editor.folded.fold({BACKWARD})
            editor.move_cursor((BACKWARD, 3))
            await pilot.press("ctrl+x")  # but one line that stands for many is cut as what it stands for
            assert "backward" not in editor.text and editor.text.count("\n") == TEXT.count("\n") - (end - BACKWARD + 1)
            await pilot.press("ctrl+z")
            assert editor.text == TEXT
            # What is saved is the whole text, and what was folded still is, though lines above it came and went.
            editor.toggle_fold(BACKWARD)
            editor.move_cursor((0, 0))
            await pilot.press("#", "enter")
            await settled(app, pilot)
            await pilot.press("ctrl+s")
            await settled(app, pilot, lambda: not app.session.unsaved)
            assert small.read_text() == editor.text == to_text(parse("#\n" + TEXT))
            assert [editor.document.get_line(r).strip() for r in editor.folded.folds] == ["backward {"]

    run(work())


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_typed_over_folds_the_text_is_that_of_an_editor_without(small: Path, seed: int) -> None:
    """Random edits, folds, undo and redo beside the same on a plain list of versions."""

    async def work() -> None:
        rng = random.Random(seed)
        async with opened(small) as (app, _):
            editor, texts, at = app.editor, [TEXT], 0
            for _ in range(60):
                kind = rng.randrange(5)
                lines = editor.document.lines
                if kind == 0:
                    editor.toggle_fold(rng.randrange(len(lines)))
                elif kind == 1 and at:
                    at -= 1
                    editor.undo()
                elif kind == 2 and at + 1 < len(texts):
                    at += 1
                    editor.redo()
                else:
                    editor.history.checkpoint()
                    row = rng.randrange(len(lines))
                    last = min(len(lines) - 1, row + rng.choice((0, 0, 0, 1, 7)))
                    a, b = (row, rng.randint(0, len(lines[row]))), (last, len(lines[last]))
                    words = rng.choice(("x", "\n", "{", "}\n", "", "forward {\n  y\n}\n", "z@R"))
                    start = sum(len(line) + 1 for line in lines[:row]) + a[1]
                    stop = sum(len(line) + 1 for line in lines[:last]) + b[1]
                    if not words and start == stop:
                        continue
                    texts = [*texts[: at + 1], texts[at][:start] + words + texts[at][stop:]]
                    at += 1
                    editor.replace(words, a, b)
                folded = editor.folded
                assert editor.text == texts[at]
                assert folded.folds <= blocks(editor.document.lines).keys()
                assert not folded.holding(editor.cursor_location[0])
                shown = [folded.row_at(y) for y in range(folded.height)]
                assert shown == [r for r in range(editor.document.line_count) if not folded.holding(r)]
                assert editor.virtual_size.height == folded.height

    run(work())
