"""The timeline under the program: two streams and the memory of each device, linked with the cursor."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from hapdsl.lang.amounts import in_bytes, in_seconds

Object = dict[str, Any]
LEFT = 18  # columns of names
CLOSEST = 1e-4  # of the whole: the shortest window
DARK = {
    "forward": "#79b8ff",
    "backward": "#ffb066",
    "update": "#c3b1ff",
    "collective": "#f2cc60",
    "idle": "#30363d",
    "memory": "#7ee2a8",
    "here": "#ff5fd2",
}
LIGHT = {
    "forward": "#0550ae",
    "backward": "#b35900",
    "update": "#6639ba",
    "collective": "#7d4e00",
    "idle": "#d0d7de",
    "memory": "#116329",
    "here": "#bf0090",
}
LEVELS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Lane:
    """One line of the picture."""

    label: str
    kind: str  # compute, communication, memory
    row: Object
    strong: bool = False


class Timeline(ScrollView, can_focus=True):
    """Left and right go from instruction to instruction, + and - zoom, shift with arrows moves the window."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "Before"),
        Binding("right", "step(1)", "Next"),
        Binding("plus,equals_sign", "zoom(0.5)", "Closer", key_display="+"),
        Binding("minus", "zoom(2.0)", "Wider", key_display="-"),
        Binding("shift+left", "pan(-0.25)", show=False),
        Binding("shift+right", "pan(0.25)", show=False),
        Binding("0", "whole", "Whole step"),
        Binding("k", "kind", "Stages or overlap"),
    ]

    class Picked(Message):
        """An instruction was chosen: its line."""

        def __init__(self, line: int) -> None:
            super().__init__()
            self.line = line

    class Kind(Message):
        """The other reading is wanted."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.answer: Object | None = None
        self.words = ""
        self.line = 0
        self.start, self.length = 0.0, 1.0  # the window, as parts of the whole
        self.lanes: list[Lane] = []
        self._base = Style()
        self.at: int | None = None  # the instruction that the keys go from

    def show(self, answer: Object | None, line: int, words: str = "") -> None:
        """`answer` of the service's `timeline`; `line` of the program is where the cursor is; `words` say why there is none, or none that is new."""
        before = self.answer, self.line, self.words
        if answer is not self.answer:
            self.answer = answer
            self.lanes = list(self._lanes(answer)) if answer is not None else []
            self.virtual_size = Size(self.size.width, len(self.lanes) + 1)
            self.at = None
        if line != self.line and answer is not None and (self.at is None or answer["instructions"][self.at][0] != line):
            self.at = next((k for k, i in enumerate(answer["instructions"]) if i[0] == line), None)
        self.line, self.words = line, words
        if answer is not before[0] or (line, words) != before[1:]:
            self.refresh()

    @property
    def total(self) -> float:
        if self.answer is None:
            return 0.0
        measured = self.answer.get("measured")
        return max(float(self.answer["total"]), float(measured["total"]) if measured else 0.0)

    def _lanes(self, answer: Object) -> list[Lane]:
        found = []
        measured = {r["devices"][0]: r for r in (answer.get("measured") or {}).get("rows", ())}
        for row in answer["rows"]:
            names = row["devices"]
            short = names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1}"
            found.append(Lane(short, "compute", row, True))
            found.append(Lane("  messages", "communication", row))
            for name in names:
                if name in measured:
                    found.append(Lane("  ran" if len(names) == 1 else f"  {name} ran", "compute", measured[name]))
                    found.append(Lane("  messages", "communication", measured[name]))
            part = row["peak"] / row["capacity"] if row["capacity"] else 0.0
            found.append(Lane(f"  {in_bytes(row['peak'])} {part * 100:.0f} %", "memory", row))
        return found

    # -- the picture ---------------------------------------------------------------------

    def render_lines(self, crop: Region) -> list[Strip]:
        self._base = self.rich_style  # once for all lines: all that stands around the widget has a say in it
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        base = self._base
        y += self.scroll_offset.y
        width = max(1, self.size.width)
        if self.answer is None or width <= LEFT + 4:
            return Strip([Segment(self.words[:width] if y == 0 else "", base)]).adjust_cell_length(width, base)
        if y == 0:
            return self._ruler(width, base)
        if y - 1 >= len(self.lanes):
            return Strip.blank(width, base)
        lane = self.lanes[y - 1]
        label = f" {lane.label}"[: LEFT - 1].ljust(LEFT)
        cells = self._memory(lane, width - LEFT) if lane.kind == "memory" else self._bars(lane, width - LEFT)
        return Strip([Segment(label, base + Style(bold=lane.strong, dim=not lane.strong)), *cells]).adjust_cell_length(
            width, base
        )

    def _ruler(self, width: int, base: Style) -> Strip:
        assert self.answer is not None
        first, last = self.start * self.total, (self.start + self.length) * self.total
        kind = "beside" if self.answer["kind"] == "overlap" else "in stages"
        measured = self.answer.get("measured")
        ran = f", ran {in_seconds(measured['total'])}" if measured else ""
        late = " (as it was)" if self.words else ""
        head = f" {in_seconds(self.answer['total'])} {kind}{ran}{late}"
        room = width - LEFT
        marks = f"{in_seconds(first)}{in_seconds(last):>{max(1, room - len(in_seconds(first)))}}"
        if len(head) >= LEFT:  # the head reaches into the scale
            marks = marks[max(0, len(head) - LEFT + 1) :]
            return Strip(
                [
                    Segment(f"{head} ", base + Style(bold=True)),
                    Segment(f"{marks:>{max(0, width - len(head) - 1)}}", base + Style(dim=True)),
                ]
            )
        return Strip([Segment(head.ljust(LEFT), base + Style(bold=True)), Segment(marks, base + Style(dim=True))])

    def _bars(self, lane: Lane, columns: int) -> list[Segment]:
        assert self.answer is not None
        colours = DARK if self.app.current_theme.dark else LIGHT
        instructions = self.answer["instructions"]
        t0, dt = self.start * self.total, self.length * self.total / columns
        busy: list[dict[str, float]] = [{} for _ in range(columns)]
        bars: Sequence[Sequence[float]] = lane.row[lane.kind]
        first = max(0, bisect_right(bars, t0, key=lambda b: b[0]) - 1) if bars and dt > 0 else len(bars)
        for start, end, k in bars[first:]:
            if start >= t0 + dt * columns:
                break
            kind = "here" if instructions[int(k)][0] == self.line else instructions[int(k)][2]
            c = max(0, int((start - t0) / dt))
            while c < columns and t0 + c * dt < end:
                part = min(end, t0 + (c + 1) * dt) - max(start, t0 + c * dt)
                if part > 0:
                    busy[c][kind] = busy[c].get(kind, 0.0) + part
                c += 1
        segments = []
        for cell in busy:
            if not cell:
                segments.append(Segment("·", Style.parse(colours["idle"])))
                continue
            kind = "here" if "here" in cell else max(cell, key=lambda n: cell[n])
            full = sum(cell.values()) / dt
            shade = "█" if full > 0.75 else "▓" if full > 0.5 else "▒" if full > 0.25 else "░"
            segments.append(Segment(shade, Style.parse(colours.get(kind, colours["forward"]))))
        return segments

    def _memory(self, lane: Lane, columns: int) -> list[Segment]:
        """Heights of the fullest moment in each column, as parts of the row's own peak."""
        colours = DARK if self.app.current_theme.dark else LIGHT
        steps: Sequence[Sequence[float]] = lane.row["memory"]
        t0, dt = self.start * self.total, self.length * self.total / columns
        style = Style.parse("#ff7070" if lane.row["peak"] > lane.row["capacity"] else colours["memory"])
        peak = lane.row["peak"] or 1
        segments = []
        for c in range(columns):
            low = max(0, bisect_right(steps, t0 + c * dt, key=lambda s: s[0]) - 1)
            high = max(low + 1, bisect_right(steps, t0 + (c + 1) * dt, key=lambda s: s[0]))
            most = max((s[1] for s in steps[low:high]), default=0.0)
            segments.append(Segment(LEVELS[min(8, round(most / peak * 8))], style))
        return segments

    # -- moving in it -----------------------------------------------------------------------

    def action_step(self, step: int) -> None:
        """To the next instruction that takes time."""
        if self.answer is None:
            return
        order = sorted(
            {
                int(b[2]): b[0]
                for row in self.answer["rows"]
                for lane in ("compute", "communication")
                for b in row[lane]
            }.items(),
            key=lambda f: (f[1], f[0]),
        )
        numbers = [k for k, _ in order]
        if not numbers:
            return
        if self.at in numbers:
            at = numbers[max(0, min(len(numbers) - 1, numbers.index(self.at) + step))]
        else:
            at = numbers[0 if step > 0 else -1]
        self._pick(at, dict(order)[at])

    def _pick(self, at: int, when: float) -> None:
        assert self.answer is not None
        self.at = at
        part = when / self.total if self.total else 0.0
        if not self.start <= part <= self.start + self.length:
            self.start = max(0.0, min(1.0 - self.length, part - self.length / 2))
        self.post_message(self.Picked(int(self.answer["instructions"][at][0])))
        self.refresh()

    def action_zoom(self, factor: float) -> None:
        middle = self.start + self.length / 2
        here = self._when()
        if here is not None:
            middle = here
        self.length = max(CLOSEST, min(1.0, self.length * factor))
        self.start = max(0.0, min(1.0 - self.length, middle - self.length / 2))
        self.refresh()

    def _when(self) -> float | None:
        """Where the cursor's instruction begins, as a part of the whole."""
        if self.answer is None or self.at is None or not self.total:
            return None
        starts = [
            b[0]
            for row in self.answer["rows"]
            for lane in ("compute", "communication")
            for b in row[lane]
            if b[2] == self.at
        ]
        return min(starts) / self.total if starts else None

    def action_pan(self, part: float) -> None:
        self.start = max(0.0, min(1.0 - self.length, self.start + part * self.length))
        self.refresh()

    def action_whole(self) -> None:
        self.start, self.length = 0.0, 1.0
        self.refresh()

    def action_kind(self) -> None:
        self.post_message(self.Kind())

    def on_click(self, event: events.Click) -> None:
        """A click on a bar goes to its line."""
        inside = event.get_content_offset(self)
        y = (inside.y if inside is not None else -1) + self.scroll_offset.y - 1
        if (
            inside is None
            or self.answer is None
            or inside.x < LEFT
            or not 0 <= y < len(self.lanes)
            or self.lanes[y].kind == "memory"
        ):
            return
        columns = self.size.width - LEFT
        when = (self.start + self.length * (inside.x - LEFT + 0.5) / columns) * self.total
        half = self.length * self.total / columns / 2
        hit = [b for b in self.lanes[y].row[self.lanes[y].kind] if b[0] - half <= when <= b[1] + half]
        if hit:
            longest = max(hit, key=lambda b: b[1] - b[0])
            self._pick(int(longest[2]), longest[0])

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        if event.ctrl:
            event.stop()
            self.action_zoom(0.5)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        if event.ctrl:
            event.stop()
            self.action_zoom(2.0)
