"""A program in the text of its file replaced by another, with everything around it as it was."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hapdsl.lang import nodes
from hapdsl.lang.print import to_text


def replaced(text: str, old: nodes.Program, new: nodes.Program) -> str:
    """`text` with the block `old` printed as `new`; comments above it stay, the name too."""
    if not any(isinstance(s, nodes.Fingerprint) for s in old.body):
        new = replace(new, body=tuple(s for s in new.body if not isinstance(s, nodes.Fingerprint)))
    block = to_text(nodes.File((replace(new, name=old.name, leading=(), trailing=old.trailing, gap=False),))).rstrip(
        "\n"
    )
    return _lines(text, old.span, block)


def _lines(text: str, span: nodes.Span, block: str) -> str:
    rows = text.split("\n")
    first, last = span.line - 1, span.end_line - 1
    before, after = rows[first][: span.column - 1], rows[last][span.end_column - 1 :]
    return "\n".join([*rows[:first], *f"{before}{block}{after}".split("\n"), *rows[last + 1 :]])


def with_shares(old: nodes.Program, shares: Iterable[nodes.Shares]) -> nodes.Program:
    """A program with other shares, at the place where its own stand; its comments stay where they are."""
    body = list(old.body)
    at = next((k for k, s in enumerate(body) if isinstance(s, nodes.Shares | nodes.Ratio)), None)
    kept = [s for s in body if not isinstance(s, nodes.Shares | nodes.Ratio)]
    if at is None:
        at = sum(isinstance(s, nodes.Fingerprint | nodes.Mesh) for s in kept)
    known = {(s.cls, s.axis, s.layers): s for s in body if isinstance(s, nodes.Shares | nodes.Ratio)}
    fresh = []
    for s in shares:
        before = known.get((s.cls, s.axis, s.layers))
        fresh.append(
            replace(s, leading=before.leading, trailing=before.trailing, gap=before.gap) if before is not None else s
        )
    return replace(old, body=(*kept[:at], *fresh, *kept[at:]))
