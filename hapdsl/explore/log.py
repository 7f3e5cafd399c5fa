"""What a search said, with its time: bound and best over time, as numbers and as a picture of characters."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hapdsl.explore.describe import Piece
from hapdsl.lang.amounts import in_seconds


@dataclass(frozen=True)
class Said:
    """At `at` seconds of the search's own time: what it does, the best plan's seconds and the bound as far as known."""

    at: float
    doing: str
    best_s: float | None
    bound_s: float | None


@dataclass
class Log:
    """One search. Time in which it is held doesn't count."""

    clock: Callable[[], float] = time.monotonic
    begun: float | None = None
    away: float = 0.0  # seconds held so far
    held_since: float | None = None
    ended: float | None = None
    said: list[Said] = field(default_factory=list)
    nodes: int | None = None
    gap: float | None = None
    scope: str = ""
    left_out: str = ""

    def __post_init__(self) -> None:
        self.begun = self.clock()

    @property
    def held(self) -> bool:
        return self.held_since is not None

    @property
    def seconds(self) -> float:
        """How long it has searched."""
        now = self.ended if self.ended is not None else self.held_since if self.held_since is not None else self.clock()
        return max(0.0, now - (self.begun or 0.0) - self.away)

    def note(self, doing: str, best_s: float | None, bound_s: float | None) -> None:
        """It said something; what it doesn't say stays as it was."""
        last = self.said[-1] if self.said else Said(0.0, "", None, None)
        bound = bound_s if bound_s is not None and bound_s > 0 else last.bound_s
        self.said.append(Said(self.seconds, doing, best_s if best_s is not None else last.best_s, bound))

    def proven(self, answer: dict[str, Any]) -> None:
        """It ended with a plan and its proof."""
        self.nodes, self.gap, self.scope = (
            answer.get("nodes"),
            answer.get("gap"),
            str(answer.get("scope", "")).partition(":")[0],
        )
        self.left_out = str(answer.get("left_out") or "")
        best = (
            None
            if answer.get("bound_s") is None or self.gap is None
            else answer["bound_s"] / (1 - self.gap)
            if self.gap < 1
            else None
        )
        self.note("proven", best, answer.get("bound_s"))

    def hold(self, on: bool) -> None:
        now = self.clock()
        if on:
            self.held_since = now
        elif self.held_since is not None:
            self.away += now - self.held_since
            self.held_since = None

    def end(self) -> None:
        if self.ended is None:
            self.ended = self.held_since if self.held_since is not None else self.clock()

    # -- on the screen -----------------------------------------------------------------

    def told(self, width: int, height: int, outcome: str, running: bool) -> list[Piece]:
        """The view of the search: a chart of best and bound, then what it did when."""
        if not self.said:
            return [("No search has said anything yet. p starts one.\n" if not running else "starting…\n", "dim")]
        last = self.said[-1]
        state = (
            "held; space lets it go on"
            if self.held
            else f"{last.doing}; space holds it, esc stops it and keeps the best"
            if running
            else f"ended: {outcome}"
            if outcome
            else "ended"
        )
        found: list[Piece] = [(f"{in_seconds(self.seconds)} of search, {state}\n", "strong")]
        if last.best_s is not None:
            found.append((f"best {in_seconds(last.best_s)}", ""))
        if last.bound_s is not None:
            gap = f", gap {(1 - last.bound_s / last.best_s) * 100:.2g} %" if last.best_s else ""
            scope = f" for {self.scope}" if self.scope else ""
            found.append((f", bound {in_seconds(last.bound_s)}{scope}{gap}", ""))
        if self.nodes is not None:
            found.append((f", {self.nodes:,} nodes expanded", ""))
        if self.left_out:
            found.append((f", without {self.left_out}", ""))
        found.append(("\n\n", ""))
        found += self.chart(width, height)
        found.append(("\n", ""))
        for s in self.said[-12:]:
            best = f"  best {in_seconds(s.best_s)}" if s.best_s is not None else ""
            bound = f"  bound {in_seconds(s.bound_s)}" if s.bound_s is not None else ""
            found.append((f"{in_seconds(s.at):>9}  ", "dim"))
            found.append((f"{s.doing}{best}{bound}\n", ""))
        if not running:
            found.append(("\np searches again, . goes on to a quarter of the gap\n", "dim"))
        return found

    def chart(self, width: int, height: int) -> list[Piece]:
        """Best (●) and bound (─) over time, both in rows of equal steps; nothing where there is neither."""
        values = [v for s in self.said for v in (s.best_s, s.bound_s) if v is not None]
        columns, rows = max(10, min(width - 12, 100)), max(4, min(height, 14))
        if not values:
            return []
        low, high = min(values), max(values)
        if high <= low:
            low, high = low * 0.9, high * 1.1 or 1.0
        total = self.seconds or 1.0
        grid = [[" "] * columns for _ in range(rows)]
        best = bound = None
        k = 0
        for c in range(columns):
            while k < len(self.said) and self.said[k].at <= (c + 1) * total / columns:
                best, bound = self.said[k].best_s, self.said[k].bound_s
                k += 1
            for value, mark in ((bound, "─"), (best, "●")):
                if value is not None:
                    grid[rows - 1 - round((value - low) / (high - low) * (rows - 1))][c] = mark
        found: list[Piece] = []
        for r, row in enumerate(grid):
            label = in_seconds(high) if r == 0 else in_seconds(low) if r == rows - 1 else ""
            found.append((f"{label:>9} │", "dim"))
            found.append((f"{''.join(row)}\n", "good"))
        found.append((f"{'':>9} └{'─' * columns}\n", "dim"))
        found.append((f"{'':>11}0 s{in_seconds(total):>{columns - 3}}\n", "dim"))
        found.append((f"{'':>11}● the best plan so far   ─ no plan is below\n", "dim"))
        return found
