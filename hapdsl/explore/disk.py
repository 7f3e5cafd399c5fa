"""Files as they are on disk; `hapdsl.lang.files` writes them."""

from __future__ import annotations

from pathlib import Path

LARGEST = 2 * 2**20  # what the language reads (`hapdsl.lang.parse`)


def read(path: Path) -> str:
    """What a file holds, with line ends as `\\n`. Raises HapError (HAP120 to HAP123) as the language does."""
    try:
        raw = path.read_bytes() if path.is_file() and path.stat().st_size <= LARGEST else None
        text = None if raw is None else raw.decode("utf-8-sig")
    except (OSError, ValueError):
        text = None
    if text is None:
        # The parser's own reader says why; it isn't imported before that, so that the screen is there at once.
        from hapdsl.lang.parse import read_text

        text = read_text(path)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def on_disk(path: Path) -> str | None:
    """The text of a file as it is now; None where there is none that can be read."""
    try:
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, ValueError):
        return None
