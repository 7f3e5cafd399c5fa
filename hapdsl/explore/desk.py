"""What the service has on its desk: texts that were asked about lately, with all that was worked out from them.

A text comes once; later questions name it by its path and version. Whoever asks about one that is gone is told so (`Lost`)
and sends it again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hapdsl.check.verify import Checked
from hapdsl.cluster import Cluster
from hapdsl.cost.evaluate import Cost
from hapdsl.graph.program import Program
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.live import Live, Reading, stamps_of
from hapdsl.workbench import Workbench

Object = dict[str, Any]
_T = TypeVar("_T")
Name = tuple[str, int]  # of a text: its document (or path) and version
Stamps = tuple[tuple[Path, object], ...]  # when the files that a text imports were written
FILES, READINGS, TEXTS = 12, 12, 40


class Lost(Exception):
    """A question names a text that isn't here (any more)."""


@dataclass(frozen=True)
class Opened:
    """A complete program that is proven, and what it costs on its cluster."""

    bench: Workbench
    tree: nodes.Program
    checked: Checked
    cluster: Cluster
    cost: Cost
    key: tuple[object, ...]

    @property
    def program(self) -> Program:
        return self.checked.program


class Desk:
    """Readings by (path, text, cluster), as long as the files that they import are what they were; the oldest make room."""

    def __init__(self) -> None:
        self.texts: OrderedDict[Name, str] = OrderedDict()
        self.live: OrderedDict[tuple[str, str | None], Live] = OrderedDict()
        self.readings: OrderedDict[tuple[str, str, str | None], tuple[Reading, Stamps]] = OrderedDict()
        self.known: OrderedDict[object, Any] = OrderedDict()
        self.told: OrderedDict[Name, dict[str, Any]] = OrderedDict()  # lines of programs that the asker has

    def text(self, request: Object) -> str:
        """The text that a request is about. Raises Lost."""
        key = name_of(request)
        if "text" in request:
            self.texts[key] = request["text"]
            _keep(self.texts, key, TEXTS)
        elif key not in self.texts:
            raise Lost
        return self.texts[key]

    def reading(self, request: Object) -> Reading:
        """What there is to say of a request's text; `cluster` prices the programs that name none. Raises Lost as `text` does."""
        return self._read(request)[0]

    def _read(self, request: Object) -> tuple[Reading, Stamps]:
        path, on = str(request["path"]), request.get("cluster")
        key = (path, self.text(request), on)
        held = self.readings.get(key)
        if held is None or not _stands(*held):
            live = self.live.setdefault((path, on), Live(path, on))
            reading = live.update(key[1])
            held = self.readings[key] = (reading, _stamped(reading))
            _keep(self.live, (path, on), FILES)
        _keep(self.readings, key, READINGS)
        return held

    def bench(self, request: Object) -> Workbench:
        """The bench of a request's text. Raises HapError for one that can't be read."""
        reading = self.reading(request)
        if reading.bench is None:
            raise HapError(*reading.diagnostics)
        return reading.bench

    def tree(self, request: Object) -> nodes.Program:
        """The program that a request names. Raises HapError HAP580 to HAP582."""
        return self.bench(request).program(request.get("program"))

    def opened(self, request: Object) -> Opened:
        """The priced program that a request names. Raises HapError for what isn't proven or has no price, Lost as `text` does."""
        bench, tree = self.bench(request), self.tree(request)
        reading, stamps = self._read(request)
        found = next((p for p in reading.programs if p.tree.name == tree.name), None)
        key = (str(request["path"]), self.text(request), tree.name, request.get("cluster"), stamps)
        if found is None or found.cost is None or found.checked is None or found.cluster is None:
            bench.cost(tree, request.get("cluster") if tree.cluster is None else None)  # says why
            raise error("HAP584", f"'{tree.name}' has no price", tree.span)
        return Opened(bench, found.tree, found.checked, found.cluster, found.cost, key)

    def tell(self, name: Name, lines: dict[str, Any]) -> None:
        """Whoever asks knows these lines of a text's programs now."""
        self.told[name] = lines
        _keep(self.told, name, READINGS)

    def remember(self, key: object, make: Callable[[], _T]) -> _T:
        """What `make()` gives, worked out once per key."""
        if key not in self.known:
            self.known[key] = make()
        _keep(self.known, key, READINGS)
        return self.known[key]


def name_of(request: Object) -> Name:
    """How a request names its text: two documents may stand at the same path."""
    return str(request.get("document", request["path"])), int(request.get("version", 0))


def _stamped(reading: Reading) -> Stamps:
    return () if reading.bench is None else tuple(stamps_of(reading.bench).items())


def _stands(reading: Reading, stamps: Stamps) -> bool:
    """Would it be read the same again? Of a text that can't be read nobody knows which files that hangs on."""
    if reading.bench is None:
        return False
    now = stamps_of(reading.bench)
    return all(now.get(path) == stamp for path, stamp in stamps)


def _keep(table: OrderedDict[Any, Any], key: object, most: int) -> None:
    table.move_to_end(key)
    while len(table) > most:
        table.popitem(last=False)


def on_one_axis(program: Program, what: str) -> None:
    """Raises HapError HAP604 for a program on a mesh of several axes."""
    if len(program.layout.mesh) > 1:
        raise error(
            "HAP604",
            f"'{program.name}' is on a mesh of {len(program.layout.mesh)} axes",
            help=f"{what} is for one axis",
        )
