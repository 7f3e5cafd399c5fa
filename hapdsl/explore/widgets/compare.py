"""Two or more plans side by side: totals, lines by tensor, stages, devices."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from hapdsl.explore.describe import signed
from hapdsl.explore.highlight import MANNERS
from hapdsl.lang.amounts import in_bytes, in_seconds

Object = dict[str, Any]
ROWS = 400  # of one table on the screen; what more there is is said
PARTS = ("lines", "stages", "devices")


class Compare(VerticalScroll, can_focus=True):
    """The first plan beside another; keys choose the other, the part, and whether what is equal is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "other(1)", "Next pair"),
        Binding("N", "other(-1)", show=False),
        Binding("tab", "part", "Lines, stages, devices"),
        Binding("equals_sign", "same", "Equal ones too", key_display="="),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.answer: Object | None = None
        self.other, self.part, self.all = 0, "lines", False
        self.words = ""  # while there is no answer
        self.plain = ""

    def compose(self) -> ComposeResult:
        yield Static(classes="head", markup=False)
        yield Static(classes="totals", markup=False)
        yield Static(classes="rows", markup=False)

    def show(self, answer: Object | None, words: str) -> None:
        """`answer` of the service's `compare`; `words` while there is none."""
        self.answer, self.words = answer, words
        if answer is not None:
            self.other = min(self.other, max(0, len(answer["pairs"]) - 1))
        head = (
            words
            if answer is None
            else f"{self.part}{'' if self.all or self.part == 'devices' else ', only what differs'}   tab: lines, stages, devices   =: equal ones too   n: next pair   w: what if"
        )
        self.query_one(".head", Static).update(Text(head))
        self.query_one(".totals", Static).update(Text() if answer is None else self._totals(answer))
        rows = Text() if answer is None else self._rows(answer)
        self.query_one(".rows", Static).update(rows)

    def action_other(self, step: int) -> None:
        if self.answer is not None and self.answer["pairs"]:
            self.other = (self.other + step) % len(self.answer["pairs"])
            self.show(self.answer, self.words)

    def action_part(self) -> None:
        self.part = PARTS[(PARTS.index(self.part) + 1) % len(PARTS)]
        self.show(self.answer, self.words)

    def action_same(self) -> None:
        self.all = not self.all
        self.show(self.answer, self.words)

    # -- tables -----------------------------------------------------------------------

    def _totals(self, answer: Object) -> Table:
        table = _table("", "plan", "a step", "overlapped", "communication", "compute", "most memory")
        first = answer["plans"][0]
        said = []
        for k, plan in enumerate(answer["plans"]):
            mark = letter(k)
            if "trouble" in plan:
                table.add_row(Text(mark), Text(plan["trouble"], self._style("less")))
                continue
            base = first.get("sync_s")
            against = "" if k == 0 or not base else f" ({round((plan['sync_s'] / base - 1) * 100, 1) + 0.0:+.1f} %)"
            style = "bold" if k in (0, self.other + 1) else ""
            memory = max(plan["memory"], default=0)
            cells = [mark, f"{plan['name']} on {plan['cluster']}", in_seconds(plan["sync_s"]) + against, in_seconds(plan["overlap_s"]), in_seconds(plan["communication_s"]),
                     in_seconds(plan["sync_s"] - plan["communication_s"]), in_bytes(memory) + ("" if plan["fits"] else " too much")]  # fmt: skip
            table.add_row(*(Text(c, style) for c in cells))
            said.append(" ".join(cells))
        self.plain = "\n".join(said)
        return table

    def _rows(self, answer: Object) -> Table | Text:
        plans = answer["plans"]
        if len(plans) < 2:
            return Text("There is one plan: mark two in the list with space, then d.")
        pair, second = answer["pairs"][self.other], plans[self.other + 1]
        if pair is None:
            return Text("One of the two has no price.")
        if pair.get("other_model"):
            return Text("They are for different models, so that their lines have nothing to do with each other.")
        a, b = letter(0), letter(self.other + 1)
        table = {
            "lines": self._lines,
            "stages": self._stages,
            "devices": lambda p, x, y: self._devices(plans[0], second, x, y, p),
        }[self.part](pair, a, b)
        return table

    def _lines(self, pair: Object, a: str, b: str) -> Table:
        table = _table(("tensor", 1), (a, 3), (b, 3), "difference")
        shown = [r for r in pair["lines"] if self.all or not r["same"]]
        shown.sort(key=lambda r: 0 if self.all else -abs(r["b_s"] - r["a_s"]))
        for r in shown[:ROWS]:
            delta = r["b_s"] - r["a_s"]
            turns = f" ×{r['turns']}" if r["turns"] > 1 else ""
            left, right = "\n".join(r["a"]) or "-", "\n".join(r["b"]) or "-"
            quiet = self._style("same") if r["same"] else None
            alike = left == right
            table.add_row(
                Text(f"{r['tensor']}{turns}", quiet or ""), Text(left, quiet or self._style("" if alike else "less")), Text(right, quiet or self._style("" if alike else "more")),
                Text("" if r["same"] else _difference(delta), quiet or self._style("less" if delta > 0 else "more" if delta < 0 else "")),
            )  # fmt: skip
        self._note(table, len(shown), len(pair["lines"]))
        return table

    def _note(self, table: Table, count: int, every: int) -> None:
        words = (
            "nothing differs"
            if not count
            else f"and {count - ROWS} more"
            if count > ROWS
            else f"{every - count} are equal"
            if every > count
            else ""
        )
        if words:
            table.add_row(Text(words, self._style("same")))
        self.plain += "\n" + "\n".join(
            " | ".join(str(c).replace("\n", "; ") for c in row)
            for row in zip(*(list(col.cells) for col in table.columns), strict=False)
        )

    def _stages(self, pair: Object, a: str, b: str) -> Table:
        table = _table(("stage", 2), f"{a} collective", f"{a} compute", f"{b} collective", f"{b} compute", "difference")
        shown = [
            s
            for s in pair["stages"]
            if self.all
            or s["a"] is None
            or s["b"] is None
            or abs(sum(s["a"]) - sum(s["b"])) > 1e-9 * (sum(s["a"]) + sum(s["b"]))
        ]
        for s in shown[:ROWS]:
            delta = sum(s["b"] or [0.0]) - sum(s["a"] or [0.0])
            cells = [
                in_seconds(x) if side is not None else "-" for side in (s["a"], s["b"]) for x in (side or (0.0, 0.0))
            ]
            table.add_row(
                Text(s["name"]),
                *map(Text, cells),
                Text(_difference(delta), self._style("less" if delta > 0 else "more")),
            )
        self._note(table, len(shown), len(pair["stages"]))
        return table

    def _devices(self, first: Object, second: Object, a: str, b: str, pair: Object) -> Table:
        table = _table(
            ("device", 2), *(f"{side} {what}" for what in ("computes", "communicates", "holds") for side in (a, b))
        )
        if first["devices"] != second["devices"]:
            table.add_row(Text("they are for different devices"))
            return table
        for d, name in enumerate(first["devices"][:ROWS]):
            cells = [
                f(p[key][d])
                for key, f in (("compute_s", in_seconds), ("collectives_s", in_seconds), ("memory", in_bytes))
                for p in (first, second)
            ]
            table.add_row(Text(name), *map(Text, cells))
        for s in pair["shares"]:
            table.add_row(Text(f"shares of {s['class']}"), Text(f"{a} {s['a']}"), Text(f"{b} {s['b']}"))
        self._note(table, len(first["devices"]), len(first["devices"]))
        return table

    def _style(self, manner: str) -> Style:
        dark = self.app.current_theme.dark
        colours = {
            "more": "#7ee2a8" if dark else "#116329",
            "less": "#ff9e64" if dark else "#b93a00",
            "same": MANNERS[dark]["dim"],
        }
        return Style.parse(colours[manner]) if manner in colours else Style()


def _table(*columns: str | tuple[str, int]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for column in columns:
        name, ratio = column if isinstance(column, tuple) else (column, None)
        table.add_column(Text(name, "bold"), overflow="fold", ratio=ratio)
    return table


def letter(k: int) -> str:
    """A, B, …; then #27."""
    return chr(ord("A") + k) if k < 26 else f"#{k + 1}"


def _difference(seconds: float) -> str:
    return signed(seconds) if seconds else "0 s"
