"""A diagnostic as plain text: where, what, the source line with a caret, a way out."""

from __future__ import annotations

from hapdsl.lang.diagnostics import Diagnostic

WIDEST_LINE = 120
_BEFORE = 60


def render(diagnostic: Diagnostic, source_text: str | None = None) -> str:
    """`file:line:column: error CODE: message`, then the source line and a caret below it, then the help.

    Without the text, or where the diagnostic has no position in it, there is no source line. A line longer than
    WIDEST_LINE is clipped around the caret. Control characters of a file don't reach the terminal, wherever they are quoted.
    """
    span = diagnostic.span
    place = (
        f"{span.file or '<text>'}:{span.line}:{span.column}: " if span.line else f"{span.file}: " if span.file else ""
    )
    parts = [f"{place}{diagnostic.severity} {diagnostic.code}: {diagnostic.message}"]
    source = _line(source_text, span.line) if source_text is not None and span.line else None
    if source is not None:
        # A span over several lines is underlined to the end of its first.
        end = span.end_column if span.end_line == span.line else len(source) + 1
        shown, caret = _clip(source, max(1, span.column), end)
        number = str(span.line)
        parts += [f"{number} | {shown}", f"{' ' * len(number)} | {caret}"]
    if diagnostic.help:
        parts.append(f"  help: {diagnostic.help}")
    return "\n".join(map(_visible, parts))


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\t\n" else "\ufffd" for c in text)


def _line(text: str, line: int) -> str | None:
    """Line `line` of a text as the parser counts them; one past the last is empty."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[line - 1] if line <= len(lines) else None


def _clip(source: str, column: int, end: int) -> tuple[str, str]:
    """The part of the line to show, and the line with the caret below it."""
    start = max(0, column - 1 - _BEFORE) if len(source) > WIDEST_LINE else 0
    stop = min(len(source), start + WIDEST_LINE)
    left, right = "…" if start else "", "…" if stop < len(source) else ""
    # Tabs stay in the line below, so that both indent alike.
    before = "".join("\t" if c == "\t" else " " for c in source[start : column - 1].ljust(column - 1 - start))
    length = max(1, min(end, stop + 1) - column)
    return f"{left}{source[start:stop]}{right}", f"{' ' * len(left)}{before}^{'~' * (length - 1)}"
