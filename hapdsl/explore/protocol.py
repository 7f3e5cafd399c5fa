"""Answers of the service as the explorer's own values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hapdsl.explore.moving import Move
from hapdsl.explore.state import Analysis, Finding, LineCost, Priced

Object = dict[str, Any]


def findings_from(found: Iterable[Object]) -> tuple[Finding, ...]:
    """Diagnostics, those of the text itself first, in its order."""
    kept = Finding.__dataclass_fields__.keys()
    read = [Finding(**{k: v for k, v in f.items() if k in kept}) for f in found]
    return tuple(sorted(read, key=lambda f: (not f.here, f.line, f.column)))


def trouble(answer: Object) -> str:
    """Why there is no answer, in words."""
    if findings := answer.get("findings"):
        return f"{findings[0]['code']} {findings[0]['message']}"
    return str(answer.get("failed", "there is no answer"))


def analysis_from(found: Object, version: int, before: Analysis | None = None, move: Move | None = None) -> Analysis:
    """An analysis of one version of a text. `before` is the one that the asker named with its question, `move` says where its lines are now."""
    return Analysis(
        version, findings_from(found["findings"]), tuple(_priced(p, before, move) for p in found["programs"])
    )


def _priced(found: Object, before: Analysis | None, move: Move | None) -> Priced:
    told = {
        int(line): LineCost(seconds, tuple(devices), count, size, words)
        for line, (seconds, devices, count, size, words) in found.get("lines", {}).items()
    }
    if "gone" in found and before is not None and move is not None:
        old = before.program(found["name"])
        lines = move.carried(old.lines) if old is not None else {}
        for line in found["gone"]:
            lines.pop(line, None)
        told = {**lines, **told}
    fields: Object = {k: v for k, v in found.items() if k in _PLAIN}
    fields |= {k: tuple(found.get(k, ())) for k in _LISTED}
    return Priced(**fields, lines=told)


_LISTED = ("memory_bytes", "capacity_bytes", "devices")
_PLAIN = Priced.__dataclass_fields__.keys() - {"lines", *_LISTED}
