"""A program as DOT text: values coloured by placement, collectives as hexagons, layers as frames, shares in the title."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hapdsl.cost.evaluate import Cost
from hapdsl.draw.critical import critical_path
from hapdsl.draw.fold import Folded, Key, Turn, fold, unfolded
from hapdsl.draw.picture import Box, Cluster, Edge, Picture, to_dot
from hapdsl.draw.turns import turn_of
from hapdsl.draw.words import shares_in_words
from hapdsl.graph.program import Instruction, Program, Value
from hapdsl.lang.amounts import in_bytes, in_seconds
from hapdsl.theory.placements import Placements, show

FOLD_ABOVE = 100  # instructions: what fits on a screen, every load with a box of its own
MOST_BOXES = 400
COLOURS = {"R": "#e2e5ea", "P": "#fdcf9c"}
SHARDED = ("#b9d7fb", "#b5ebc6", "#d9d0fb", "#a8ecf4", "#f9c9e2")
SHAPES = (
    ("ellipse", "loaded"),
    ("box", "computed"),
    ("hexagon", "collective, wider with its bytes"),
    ("cds", "local conversion"),
)
ROWS = ("rows", "read here: loaded, or made in another section (↑)")
MOST_ROWS = 6


def colour(placement: str) -> str:
    """The colour of one axis of a placement (`R`, `P`, `S(0)`, …)."""
    return COLOURS.get(placement) or SHARDED[min(int(placement[2:-1]), len(SHARDED) - 1)]


def program_dot(program: Program, cost: Cost | None = None) -> str:
    """The DOT text of a program, with seconds per instruction where its cost is given.

    Above FOLD_ABOVE instructions a run of equal turns is drawn once, marked "×N", and what is loaded, or made in another section, has no box
    of its own but a row in those that read it; above MOST_BOXES boxes the rest is left out and the drawing says so. Cost: linear in instructions.
    """
    return to_dot(Drawing(program, cost).picture())


@dataclass(frozen=True)
class _Item:
    """What becomes one box: an instruction, or the values of a load that the same instructions read."""

    number: int
    instruction: Instruction
    outputs: tuple[Value, ...]


class Drawing:
    """Turns a program into a picture; `title`, `notes`, `legend`, `placed` and `colours` say what is shown of it."""

    def __init__(self, program: Program, cost: Cost | None = None) -> None:
        self.program, self.cost, self.graph = program, cost, program.graph
        self.critical = frozenset(() if cost is None else critical_path(program, cost))
        self.items: list[_Item] = []
        self.reads: list[list[int]] = []  # per item, the items it reads
        self.collect()
        self.keys: list[Key] = [
            (i.instruction.section, turn_of(i.instruction, i.outputs, self.graph)) for i in self.items
        ]

    def collect(self) -> None:
        """Items in program order, and who reads whom (the latest maker of a value before its reader)."""
        made: dict[Value, tuple[int, int]] = {}  # value -> (instruction, its place among the outputs)
        sources: list[list[tuple[int, int]]] = []
        readers: dict[tuple[int, int], list[int]] = {}
        kept = [(n, i) for n, i in enumerate(self.program.instructions) if i.op != "free"]
        for k, (_, instruction) in enumerate(kept):
            sources.append([made[v] for v in dict.fromkeys(instruction.inputs) if v in made])
            for source in sources[-1]:
                readers.setdefault(source, []).append(k)
            for place, value in enumerate(instruction.outputs):
                made[value] = (k, place)
        item_of: dict[tuple[int, int], int] = {}
        loads: dict[object, int] = {}  # what the same instructions read in the same placement shares a box
        for k, (number, instruction) in enumerate(kept):
            for place, value in enumerate(instruction.outputs):
                together: object = (k,)
                if not instruction.inputs:
                    read_by = tuple(readers.get((k, place), (-k,)))
                    together = (instruction.op, instruction.section, read_by, value.placement)
                n = loads.setdefault(together, len(self.items))
                if n == len(self.items):
                    self.items.append(_Item(number, instruction, (value,)))
                    self.reads.append([item_of[s] for s in sources[k]])
                else:
                    self.items[n] = replace(self.items[n], outputs=(*self.items[n].outputs, value))
                item_of[k, place] = n

    # -- the picture -----------------------------------------------------------------

    def picture(self) -> Picture:
        large = len(self.program.instructions) > FOLD_ABOVE
        folded = self.folded() if large else unfolded(len(self.items))
        read = {r for reads in self.reads for r in reads} if large else set()
        inside = {k for k in read if not self.items[k].instruction.inputs}  # loads that are rows of their readers
        drawn = [k for k in range(len(self.items)) if folded.shown[k] == k and k not in inside][:MOST_BOXES]
        box_of = {k: n for n, k in enumerate(drawn)}
        boxes = [self.box(k, folded.alike.get(k, 1)) for k in drawn]
        for k in {folded.shown[k] for k, item in enumerate(self.items) if item.number in self.critical} & box_of.keys():
            boxes[box_of[k]] = replace(boxes[box_of[k]], marked=True)
        edges = self.edges(folded, box_of)
        if large:
            for k, n in box_of.items():
                boxes[n] = replace(boxes[n], rows=self.rows(k, inside))
        else:
            self.stand_ins(box_of, boxes, edges)
        edges += _in_rows(boxes, edges)
        clusters: dict[tuple[str, ...], Cluster] = {}
        for k in drawn:
            section, turn = self.keys[k]
            clusters.setdefault((section,), Cluster(section, quiet=True))
            if turn:
                clusters.setdefault((section, _path(turn)), Cluster(self.turn_label((section, turn), folded)))
        left_out = len({s for s in folded.shown if s not in box_of and s not in inside})
        if left_out:
            boxes.append(Box(f"… {left_out:,} more instructions", ("not drawn",), shape="note"))
        return Picture(
            title=self.title(),
            notes=self.notes(),
            boxes=boxes,
            edges=edges,
            clusters=clusters,
            colours=self.legend([*drawn, *(r for k in drawn for r in self.reads[k])] if large else drawn),
            shapes=(
                *((shape, word) for shape, word in SHAPES if any(b.shape == shape for b in boxes)),
                *([ROWS] if any(b.rows for b in boxes) else []),
            ),
        )

    def folded(self) -> Folded:
        """The turns that are drawn; what converts between turns leaves its frame where that makes more of them equal."""
        contents = [self.content(i) for i in self.items]
        found = fold(self.keys, contents, self.reads)
        between = self.between_turns(found)
        keys = [(section, () if k in between else turn) for k, (section, turn) in enumerate(self.keys)]
        freed = fold(keys, contents, self.reads)
        if len(set(freed.shown)) < len(set(found.shown)):
            self.keys = keys
            return freed
        return found

    def between_turns(self, folded: Folded) -> set[int]:
        """Conversions that nothing computed in their own turn reads, in repeats of which more than one turn would be drawn."""
        frames: dict[tuple[str, str], set[Turn]] = {}
        for k in folded.shown:
            section, turn = self.keys[k]
            if turn:
                frames.setdefault((section, _repeat(turn)), set()).add(turn)
        leaves: set[int] = set()
        stays: set[int] = set()
        for k in reversed(range(len(self.items))):  # readers before what they read
            section, turn = self.keys[k]
            converts = (
                turn and len(frames.get((section, _repeat(turn)), ())) > 1 and _converts(self.items[k].instruction)
            )
            if converts and k not in stays:
                leaves.add(k)
            else:
                stays.update(r for r in self.reads[k] if self.keys[r] == self.keys[k])
        return leaves

    def title(self) -> str:
        return (
            f"{self.program.name} for {self.graph.model}{f' on {self.program.cluster}' if self.program.cluster else ''}"
        )

    def notes(self) -> tuple[str, ...]:
        count = sum(i.op != "free" for i in self.program.instructions)
        facts = [f"{count:,} instructions on {self.program.layout.devices} devices"]
        if self.cost is not None:
            facts.append(f"{in_seconds(self.cost.sync_s)} synchronous, {in_seconds(self.cost.overlap_s)} overlapped")
            facts.append(f"at most {in_bytes(float(self.cost.memory_bytes.max(initial=0)))} on a device")
            facts.append("bordered red: what the step waits for")
        return (" · ".join(facts), *shares_in_words(self.program))

    def legend(self, drawn: Sequence[int]) -> tuple[tuple[str, str], ...]:
        words = {"R": "R: replicated", "P": "P: partial sums"}
        found = {str(p) for k in drawn for v in self.values(k) for p in v.placement}
        return tuple(
            (colour(p), words.get(p, f"{p}: sharded on dim {p[2:-1]}"))
            for p in sorted(found, key=lambda p: ("RSP".index(p[0]), p))
        )

    def values(self, k: int) -> Iterable[Value]:
        item = self.items[k]
        return item.outputs if not item.instruction.is_collective else (*item.instruction.inputs, *item.outputs)

    def turn_label(self, key: Key, folded: Folded) -> str:
        path, number = key[1][-1]
        if key not in folded.times:
            return f"{path} {number}"
        return f"{path} {number} … {folded.last[key]}  ×{folded.times[key]}"

    def content(self, item: _Item) -> tuple[object, ...]:
        """What an item is, whatever turn it stands in."""
        i = item.instruction
        cut = tuple(self.graph.tensors[v.tensor].classes for v in item.outputs)
        shapes = tuple(self.graph.tensors[v.tensor].shape for v in item.outputs)
        return (
            i.op,
            i.method,
            i.axis,
            tuple(v.placement for v in i.inputs),
            tuple(v.placement for v in item.outputs),
            cut,
            shapes,
        )

    def edges(self, folded: Folded, box_of: dict[int, int]) -> list[Edge]:
        """Who reads whom among what is drawn; what one turn hands to the next of the same frame goes back up, dashed."""
        found: dict[tuple[int, int], Edge] = {}
        for k, reads in enumerate(self.reads):
            for r in reads:
                target, source = folded.shown[k], folded.shown[r]
                if target not in box_of or source not in box_of:
                    continue
                if self.keys[source][0] != self.keys[target][0]:
                    continue  # see stand_ins
                # Of folded turns' items only what is handed on counts: to the next turn (by a conversion, it may be), or out of the repeat.
                same = self.keys[source] == self.keys[target]
                back = same and self.keys[k] != self.keys[r]
                back = back or (k != target and box_of[source] > box_of[target])
                if k != target and not back:
                    continue
                pair = (box_of[source], box_of[target])
                strong = self.items[source].instruction.is_collective or self.items[target].instruction.is_collective
                edge = Edge(*pair, "next" if back else "", strong and not back, back)
                if pair not in found or found[pair].back:
                    found[pair] = edge
        return [found[pair] for pair in sorted(found)]

    def rows(self, k: int, inside: set[int]) -> tuple[tuple[str, str], ...]:
        """What an item reads that has no box in its section. Conversions say what they read in any case."""
        instruction = self.items[k].instruction
        if instruction.node is None:
            return ()
        (section, turn), read = self.keys[k], set(instruction.inputs)
        found = []
        for r in dict.fromkeys(self.reads[k]):
            if r in inside or self.keys[r][0] != section:
                mark = "" if r in inside else " ↑"
                found += [(self.name(v, turn) + mark, self.colours(v)[0]) for v in self.items[r].outputs if v in read]
        return tuple(
            found
            if len(found) <= MOST_ROWS
            else [*found[: MOST_ROWS - 1], (f"… {len(found) - MOST_ROWS + 1} more", "#ffffff")]
        )

    def stand_ins(self, box_of: dict[int, int], boxes: list[Box], edges: list[Edge]) -> None:
        """What an earlier section made stands again, dashed, beside its readers: lines across sections would hide all else."""
        readers: dict[tuple[int, Key], set[int]] = {}
        for k, target in box_of.items():
            for r in self.reads[k]:
                if self.keys[r][0] != self.keys[k][0]:
                    readers.setdefault((r, self.keys[k]), set()).add(target)
        together: dict[tuple[Key, tuple[int, ...]], list[int]] = {}
        for (source, key), targets in readers.items():
            together.setdefault((key, tuple(sorted(targets))), []).append(source)
        for (key, fed), sources in together.items():
            read = {v for k, n in box_of.items() if n in fed for v in self.items[k].instruction.inputs}
            values = [v for s in sources for v in self.items[s].outputs if v in read]
            turn = key[1]
            names = _few([self.name(v, turn) for v in values])
            origin = " and ".join(dict.fromkeys(self.keys[s][0] for s in sources))
            box = Box(
                names[0],
                (*names[1:], f"from {origin}"),
                self.colours(values[0]),
                "ellipse",
                0.0,
                _group(key),
                dashed=True,
            )
            edges.extend(Edge(len(boxes), target) for target in fed)
            boxes.append(box)

    # -- boxes -------------------------------------------------------------------------

    def box(self, k: int, alike: int) -> Box:
        item = self.items[k]
        i = item.instruction
        section, turn = self.keys[k]
        group = _group((section, turn))
        seconds = self.seconds(item)
        names = self.names(item, turn)
        times = f"  ×{alike}" if alike > 1 else ""
        if _converts(i):
            moved = sum(self.graph.tensors[v.tensor].bytes for v in i.inputs)
            before, after = show(i.inputs[0].placement), show(i.outputs[0].placement)
            facts = (f"{before} → {after}", in_bytes(moved) + seconds) if i.is_collective else (f"{before} → {after}",)
            op = i.op if i.said_method is None else f"{i.op} ({i.said_method})"
            colours: tuple[str, ...] = (_first(i.inputs[0].placement, i.axis), _first(i.outputs[0].placement, i.axis))
            shape = "hexagon" if i.is_collective else "cds"
            return Box(op + times, (*names, *facts), colours, shape, float(moved) if i.is_collective else 0.0, group)
        colours = self.colours(item.outputs[0])
        if not i.inputs:
            return Box(names[0], (*names[1:], i.op), colours, "ellipse", 0.0, group)
        return Box(names[0], (*names[1:], i.op + times + seconds), colours, "box", 0.0, group)

    def names(self, item: _Item, turn: Turn) -> tuple[str, ...]:
        """The values of a box; of a conversion, whose placements stand elsewhere, the tensors."""
        if _converts(item.instruction):
            return _few([self.name(v, turn).rpartition("@")[0] for v in item.outputs])
        return _few([self.name(v, turn) for v in item.outputs])

    def name(self, value: Value, turn: Turn) -> str:
        """A value as it is called inside its frame."""
        prefix = f"{_path(turn)}." if turn else ""
        return value.tensor.removeprefix(prefix) + self.placed(value)

    def placed(self, value: Value) -> str:
        return f"@{show(value.placement)}"

    def colours(self, value: Value) -> tuple[str, ...]:
        return tuple(colour(str(p)) for p in value.placement)

    def seconds(self, item: _Item) -> str:
        if self.cost is None:
            return ""
        spent = float(self.cost.per_instruction_s[item.number].max(initial=0.0))
        return f" · {in_seconds(spent)}" if spent > 0 else ""


def _in_rows(boxes: Sequence[Box], edges: Sequence[Edge]) -> list[Edge]:
    """Updates don't depend on each other: hidden lines stack them, so that a frame of them is about as high as wide."""
    feeds: dict[int, list[int]] = {}
    for edge in edges:
        feeds.setdefault(edge.target, []).append(edge.source)
    frames: dict[tuple[str, ...], list[int]] = {}
    for n, box in enumerate(boxes):
        if box.group[:1] == ("update",) and box.shape == "box":
            frames.setdefault(box.group, []).append(n)
    found = []
    for own in frames.values():
        columns = max(2, round((len(own) / 2) ** 0.5))
        found += [
            Edge(a, source, hidden=True)
            for a, b in zip(own, own[columns:], strict=False)
            for source in feeds.get(b, [b])
        ]
    return found


def _few(names: list[str]) -> tuple[str, ...]:
    """A long list says how many it leaves out."""
    return tuple(names) if len(names) <= 4 else (*names[:3], f"… {len(names) - 3} more")


def _group(key: Key) -> tuple[str, ...]:
    section, turn = key
    return (section, _path(turn)) if turn else (section,)


def _converts(instruction: Instruction) -> bool:
    """Collectives and local conversions: what makes another placement of what it reads."""
    return instruction.node is None and bool(instruction.inputs)


def _repeat(turn: Turn) -> str:
    """The repeat of a turn, with the turns around it."""
    return ".".join((*(f"{path}.{number}" for path, number in turn[:-1]), turn[-1][0]))


def _path(turn: Turn) -> str:
    return f"{turn[-1][0]}.{turn[-1][1]}"


def _first(placement: Placements, axis: int) -> str:
    return colour(str(placement[min(axis, len(placement) - 1)]))
