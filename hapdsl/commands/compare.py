"""`hapdsl compare A B [C…]`"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from hapdsl.commands.options import files
from hapdsl.commands.output import Output, json_option
from hapdsl.commands.units import indented, table
from hapdsl.lang.amounts import in_bytes, in_seconds

if TYPE_CHECKING:
    from hapdsl.cluster import Cluster
    from hapdsl.cost.comparison import Difference
    from hapdsl.cost.evaluate import Cost
    from hapdsl.graph.program import Program

STAGES, DEVICES, LINES = 6, 16, 12  # rows in words; --json has all
WIDEST = 110  # of a line of a program


@dataclass(frozen=True)
class Priced:
    """One of the programs compared: `letter` is its head in tables."""

    letter: str
    file: str
    program: Program
    cluster: Cluster
    cost: Cost

    @property
    def title(self) -> str:
        return f"{self.letter}  {self.file}: {self.program.name} for {self.program.graph.model} on {self.cluster.name}"


@click.command("compare")
@click.argument("files", metavar="A [B…]", shell_complete=files, nargs=-1, required=True)
@click.option(
    "--on",
    metavar="CLUSTER",
    shell_complete=files,
    help="Price all of them on this cluster: a NAME in the file, a file, or FILE:NAME.",
)
@json_option
@click.pass_obj
def command(out: Output, files: tuple[str, ...], on: str | None) -> int:
    """Programs side by side: totals, stages, devices, what travels, memory, and the lines that differ with what they cost.

    A and B are FILE or FILE:PROGRAM; of one FILE all complete programs are compared. Differences are those from the first.
    """
    plans = _plans(files, on)
    if len(plans) < 2:
        raise click.UsageError("there is one program: name two, as FILE or FILE:PROGRAM")
    found = {plan.letter: _differences(plans[0], plan) for plan in plans[1:]}
    out.data(_object(plans, found), _words(plans, found))
    return 0


def _plans(files: Sequence[str], on: str | None) -> list[Priced]:
    from hapdsl.workbench import Workbench, file_and_name

    benches: dict[str, Workbench] = {}
    plans: list[Priced] = []
    for spec in files:
        file, name = file_and_name(spec)
        if file not in benches:
            benches[file] = Workbench(file)
        bench = benches[file]
        programs = [bench.program(name)] if name is not None or len(files) > 1 else bench.programs()
        if len(programs) > 1:
            programs = [p for p in programs if not bench.checked(p, on).sketch]
        for program in programs or [bench.program()]:  # says what is missing
            checked, cluster, cost = bench.cost(program, on)
            letter = chr(ord("A") + len(plans)) if len(plans) < 26 else f"#{len(plans) + 1}"
            plans.append(Priced(letter, file, checked.program, cluster, cost))
    return plans


def _differences(first: Priced, other: Priced) -> list[Difference] | None:
    """None where they are for different models, whose lines have nothing to do with each other."""
    from hapdsl.cost.comparison import differences

    if first.program.graph.fingerprint != other.program.graph.fingerprint:
        return None
    return differences(first.program, first.cost, other.program, other.cost)


def _object(plans: Sequence[Priced], found: dict[str, list[Difference] | None]) -> dict[str, Any]:
    from hapdsl.cost.comparison import busy, volumes

    shown = []
    for plan in plans:
        compute, comm = busy(plan.program, plan.cost)
        head: dict[str, Any] = {"file": plan.file, "program": plan.program.name, "model": plan.program.graph.model}
        head |= {"cluster": plan.cluster.name, "devices": [d.name for d in plan.cluster.devices]}
        busy_s = {"device_compute_s": compute, "device_comm_s": comm}
        volume = [asdict(v) for v in volumes(plan.program, plan.cost)]
        shown.append({**head, **plan.cost.as_json(), **busy_s, "communication": volume})
    listed = [
        {"tensor": d.tensor, "a": d.a, "b": d.b, "delta_s": d.delta_s, "turns": d.turns, "plan": k}
        for k, plan in enumerate(plans[1:], start=1)
        for d in found[plan.letter] or ()
    ]
    return {"plans": shown, "same_model": all(d is not None for d in found.values()), "differences": listed}


# -- in words --------------------------------------------------------------------------


def _words(plans: Sequence[Priced], found: dict[str, list[Difference] | None]) -> str:
    parts = [plan.title for plan in plans]
    parts += ["", indented(_totals(plans)), "", "what travels in a step", indented(_travels(plans))]
    parts += ["", "longest stages", indented(_stages(plans)), "", "devices", indented(_devices(plans))]
    for plan in plans[1:]:
        parts += ["", *_lines(plans[0], plan, found[plan.letter])]
    return "\n".join(parts)


def _totals(plans: Sequence[Priced]) -> str:
    def against(value: float, base: float) -> str:
        return f"  ({(value / base - 1) * 100:+.1f} %)" if base and value != base else ""

    rows: list[list[str]] = []
    for words, value, shown in (
        ("synchronous", lambda c: c.sync_s, in_seconds),
        ("overlapped", lambda c: c.overlap_s, in_seconds),
        ("collectives", lambda c: sum(s.comm_s for s in c.stages), in_seconds),
        ("compute, slowest of each stage", lambda c: c.sync_s - sum(s.comm_s for s in c.stages), in_seconds),
        ("most memory on a device", lambda c: float(c.memory_bytes.max(initial=0)), in_bytes),
    ):
        values = [value(p.cost) for p in plans]
        rows.append([words, *(shown(v) + against(v, values[0]) for v in values)])
    rows.append(["stages", *(str(len(p.cost.stages)) for p in plans)])
    if not all(p.cost.fits for p in plans):
        rows.append(["fits into memory", *("yes" if p.cost.fits else "no" for p in plans)])
    return table(("", *(p.letter for p in plans)), rows)


def _travels(plans: Sequence[Priced]) -> str:
    from hapdsl.cost.comparison import volumes

    listed = [{(v.collective, v.method): v for v in volumes(p.program, p.cost)} for p in plans]
    rows = []
    for key in dict.fromkeys(k for each in listed for k in each):
        cells = []
        for each in listed:
            v = each.get(key)
            cells.append("-" if v is None else f"{v.messages} x, {in_bytes(v.bytes)}, {in_seconds(v.seconds)}")
        rows.append([f"{key[0]} {key[1] or ''}".rstrip(), *cells])
    return table(("messages, bytes, seconds", *(p.letter for p in plans)), rows) if rows else "nothing"


def _stages(plans: Sequence[Priced]) -> str:
    columns = [sorted(enumerate(p.cost.stages), key=lambda s: -s[1].seconds)[:STAGES] for p in plans]
    rows = []
    for place in range(max(map(len, columns), default=0)):
        cells = []
        for column in columns:
            if place >= len(column):
                cells.append("")
                continue
            number, stage = column[place]
            what = (
                f"{stage.collective} {stage.tensors[0]}" + (" …" if len(stage.tensors) > 1 else "")
                if stage.collective
                else "compute"
            )
            cells.append(f"{number}: {what}, {in_seconds(stage.comm_s)} + {in_seconds(float(stage.compute_s.max()))}")
        rows.append(cells)
    return table([f"{p.letter}: collective + compute" for p in plans], rows)


def _devices(plans: Sequence[Priced]) -> str:
    """What each device computes, and its memory; equal neighbours share a row."""
    from hapdsl.cost.comparison import busy

    work = [busy(p.program, p.cost)[0] for p in plans]
    rows: list[list[str]] = []
    counts: list[int] = []
    for d in range(max(len(p.cluster) for p in plans)):
        cells = []
        for p, seconds in zip(plans, work, strict=True):
            inside = d < len(p.cluster)
            cells += [in_seconds(float(seconds[d])), in_bytes(float(p.cost.memory_bytes[d]))] if inside else ["", ""]
        if rows and rows[-1][1:] == cells:
            counts[-1] += 1
        else:
            name = next(p.cluster.devices[d].name for p in plans if d < len(p.cluster))
            rows.append([name, *cells])
            counts.append(1)
    shown = [
        [name if n == 1 else f"{name} and {n - 1} more", *rest] for (name, *rest), n in zip(rows, counts, strict=True)
    ]
    head = ["", *(f"{p.letter} {what}" for p in plans for what in ("computes", "memory"))]
    more = [f"and {len(shown) - DEVICES} more rows (--json has them all)"] if len(shown) > DEVICES else []
    return "\n".join([table(head, shown[:DEVICES], right=tuple(range(1, len(head)))), *more])


def _lines(first: Priced, other: Priced, found: list[Difference] | None) -> Iterator[str]:
    head = f"lines of {first.letter} (-) and {other.letter} (+), with what {other.letter} spends more on the slowest device"
    if found is None:
        yield f"{first.letter} and {other.letter} are for different models: their lines aren't compared"
        return
    if not found:
        yield f"{first.letter} and {other.letter} have the same lines at the same prices"
        return
    yield head
    for d in found[:LINES]:
        delta = ("+" if d.delta_s > 0 else "-" if d.delta_s < 0 else "±") + in_seconds(abs(d.delta_s))
        yield f"  {delta:>10}  {d.tensor}" + (f", {d.turns} turns" if d.turns > 1 else "")
        for sign, text in (("-", d.a), ("+", d.b)):
            for line in (text or "").split("; "):
                if line:
                    yield f"              {sign} {line if len(line) <= WIDEST else line[: WIDEST - 1] + '…'}"
    if len(found) > LINES:
        rest = sum(d.delta_s for d in found[LINES:])
        yield f"  and {len(found) - LINES} more of {'-' if rest < 0 else ''}{in_seconds(abs(rest))} together (--json has them all)"
