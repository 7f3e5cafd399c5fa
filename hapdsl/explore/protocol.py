"""Answers of the service as the explorer's own values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hapdsl.explore.state import Analysis, Finding, LineCost, Priced

Object = dict[str, Any]


def findings_from(found: Iterable[Object]) -> tuple[Finding, ...]:
    """Diagnostics, those of the text itself first, in its order."""
    kept = Finding.__dataclass_fields__.keys()
    read = [Finding(**{k: v for k, v in f.items() if k in kept}) for f in found]
    return tuple(sorted(read, key=lambda f: (not f.here, f.line, f.column)))


def analysis_from(found: Object, version: int) -> Analysis:
    """An analysis of one version of a text."""
    return Analysis(version, findings_from(found["findings"]), tuple(_priced(p) for p in found["programs"]))


def _priced(found: Object) -> Priced:
    lines = {
        int(line): LineCost(c["seconds"], tuple(c["devices"]), c["count"], c["bytes"], c["words"])
        for line, c in found.get("lines", {}).items()
    }
    fields: Object = {k: v for k, v in found.items() if k in _PLAIN}
    fields |= {k: tuple(found.get(k, ())) for k in _LISTED}
    return Priced(**fields, lines=lines)


_LISTED = ("memory_bytes", "capacity_bytes", "devices")
_PLAIN = Priced.__dataclass_fields__.keys() - {"lines", *_LISTED}
