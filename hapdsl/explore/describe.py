"""What the panel says about a line and its program, as words with a manner each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hapdsl.explore.session import Plan, gap_in_words
from hapdsl.explore.state import PROVEN, SKETCH, WRONG, Document, Finding, LineCost, Priced, worst
from hapdsl.lang.amounts import in_bytes, in_seconds

# (words, manner): manners are error, warning, good, strong, dim, or plain.
Piece = tuple[str, str]


def describe(
    document: Document, plan: Plan | None, line: int, facts: dict[str, Any] | None = None, last: int = 0
) -> list[Piece]:
    """The diagnostic of the line, else what it costs; what else is known of it (`facts`); its program; the first problem elsewhere.

    Of a fold that hides the lines up to `last`, what they cost together.
    """
    found: list[Piece] = []
    own = worst(document.findings, line)
    if own is not None:
        found += _finding(own)
    costs, old = document.costs()
    if line in costs:
        priced = document.program_at(line)
        found += _line(costs[line], priced, line in old)
    if last > line:
        found += _together(costs, line, last, document.program_at(line), any(n in old for n in range(line, last + 1)))
    if facts is not None:
        from hapdsl.explore.inspector import inspector

        found += inspector(facts)
    priced = document.program_at(line) or (document.program(plan.program) if plan is not None else None)
    if priced is not None:
        found += _program(document, priced, plan)
    errors = [f for f in document.findings if f.is_error and f is not own]
    if errors:
        first = errors[0]
        where = f"line {first.line}" if first.here else f"{first.file}:{first.line}"
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        found += [
            ("\n", ""),
            (f"{where}: {first.code} ", "error"),
            (f"{first.message}{more}\n", ""),
            ("f8 goes to the next problem\n", "dim"),
        ]
    if document.checking:
        found += [("checking…\n", "dim")]
    return found


def _finding(f: Finding) -> list[Piece]:
    found = [(f"{f.severity} {f.code}  ", f.severity), (f"{f.message}\n", "strong")]
    if f.help:
        found.append((f"help: {f.help}\n", ""))
    return found


def _line(cost: LineCost, priced: Priced | None, old: bool) -> list[Piece]:
    total = priced.sync_s if priced is not None and priced.sync_s else None
    share = f", {cost.seconds / total * 100:.1f} % of the step" if total and cost.seconds else ""
    times = f", {cost.count} times" if cost.count > 1 else ""
    moved = f", {in_bytes(cost.bytes)}" if cost.bytes else ""
    manner = "dim" if old else ""
    found = [
        (f"{cost.words}{times}: ", manner),
        (in_seconds(cost.seconds), "dim" if old else "strong"),
        (f"{share}{moved}\n", manner),
    ]
    if cost.seconds and len(set(cost.devices)) > 1 and priced is not None:
        found.append((f"{_per_device(cost.devices, priced.devices)}\n", manner))
    return found


def _together(costs: Mapping[int, LineCost], line: int, last: int, priced: Priced | None, old: bool) -> list[Piece]:
    """Lines of a fold: their sum, and what takes most of it."""
    inside = [(costs[n], n) for n in range(line, last + 1) if n in costs and costs[n].seconds > 0]
    manner = "dim" if old else ""
    found: list[Piece] = [(f"lines {line} to {last}", manner)]
    if not inside:
        return [*found, ("\n", "")]
    seconds = sum(c.seconds for c, _ in inside)
    total = priced.sync_s if priced is not None and priced.sync_s else None
    share = f", {seconds / total * 100:.1f} % of the step" if total else ""
    most, where = max(inside, key=lambda c: c[0].seconds)
    found += [(" together: ", manner), (in_seconds(seconds), "dim" if old else "strong"), (f"{share}\n", manner)]
    if len(inside) > 1:
        found.append((f"most of it line {where}, {most.words}: {in_seconds(most.seconds)}\n", manner))
    return found


def _per_device(seconds: tuple[float, ...], names: tuple[str, ...]) -> str:
    """Equal neighbours once: `host.0 … host.1 6.26 us, host.2 … host.5 10.6 us`."""
    parts: list[str] = []
    start = 0
    shown = [in_seconds(s) for s in seconds]
    labels = names if len(names) == len(seconds) else tuple(str(d) for d in range(len(seconds)))
    for d in range(1, len(shown) + 1):
        if d == len(shown) or shown[d] != shown[start]:
            label = labels[start] if d - start == 1 else f"{labels[start]} … {labels[d - 1]}"
            parts.append(f"{label} {shown[start]}")
            start = d
    return ", ".join(parts)


def _program(document: Document, priced: Priced, plan: Plan | None) -> list[Piece]:
    on = f" on {priced.cluster}{' (guessed)' if priced.guessed else ''}" if priced.cluster else ""
    found: list[Piece] = [(f"\n{priced.name}", "strong"), (f" for {priced.model}{on}: ", "")]
    now = None if document.checking or document.analysis is None else document.analysis.program(priced.name)
    state = document.state(priced.name)
    if state == PROVEN:
        found.append((f"✓ proven, {priced.instructions:,} instructions\n", "good"))
    elif state == SKETCH:
        found.append(("a sketch\n", "warning"))
    elif document.checking:
        found.append(("being checked\n", "dim"))
    elif state == WRONG:
        found.append(("✗ not proven\n", "error"))
    else:
        found.append(("not looked at: the text doesn't parse\n", "dim"))
    good = document.last_good(priced.name)
    if good is not None and good.sync_s is not None and good.overlap_s is not None:
        current = now is not None and now.sync_s is not None
        manner = "" if current else "dim"
        late = "" if current else "  (as it was)"
        found.append((f"{in_seconds(good.sync_s)} a step, {in_seconds(good.overlap_s)} overlapped{late}\n", manner))
        found += _memory(good)
    if plan is not None and plan.program == priced.name and plan.gap is not None and plan.bound_s is not None:
        found.append((f"{gap_in_words(plan.gap)}: bound {in_seconds(plan.bound_s)} for {plan.scope}\n", ""))
    if now is not None and now.note:
        found.append((f"{now.note}\n", "dim"))
    return found


def _memory(priced: Priced) -> list[Piece]:
    if not priced.memory_bytes:
        return []
    used = [m / c for m, c in zip(priced.memory_bytes, priced.capacity_bytes, strict=True)]
    d = max(range(len(used)), key=used.__getitem__)
    name = priced.devices[d] if d < len(priced.devices) else f"device {d}"
    words = f"memory: {name} holds {in_bytes(priced.memory_bytes[d])} of {in_bytes(priced.capacity_bytes[d])}"
    return [(f"{words}\n", "")] if priced.fits else [(f"{words}: doesn't fit\n", "error")]


def signed(seconds: float) -> str:
    """A difference: `+1.23 ms`."""
    return f"{'-' if seconds < 0 else '+'}{in_seconds(abs(seconds))}"
