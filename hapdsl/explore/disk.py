"""Files as they are on disk; `hapdsl.lang.files` writes them."""

from __future__ import annotations

from pathlib import Path

LARGEST = 2 * 2**20  # bytes that the language reads (`hapdsl.lang.parse`)


def read(path: Path) -> str:
    """What a file holds, with line ends as `\\n`. Raises HapError (HAP120 to HAP123) as the language does."""
    text = on_disk(path)
    if text is None:
        # The parser's own reader says why; it isn't imported before that, so that the screen is there at once.
        from hapdsl.lang.parse import read_text

        text = unix(read_text(path))
    return text


def on_disk(path: Path) -> str | None:
    """The text of a file as it is now; None where there is none that can be read.

    A pipe or a device is none: what was read of it is gone, and reading it again may wait for ever.
    """
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            return None
        return unix(path.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError):
        return None


def unix(text: str) -> str:
    """A text with `\\n` at the ends of its lines."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
