"""Files: read whole, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
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


def write(path: Path, text: str) -> None:
    """Write a file as a whole or not at all, keeping its mode; a link keeps pointing where it did. Raises OSError."""
    real = Path(os.path.realpath(path))
    if real.is_dir():
        raise IsADirectoryError(f"{path} is a folder")
    mode = real.stat().st_mode & 0o7777 if real.exists() else 0o666 & ~_umask()
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=real.parent, prefix=f".{real.name}.", suffix=".tmp", delete=False) as stream:
            temporary = Path(stream.name)
            stream.write(text.encode("utf-8"))
        temporary.chmod(mode)
        temporary.replace(real)
    except OSError:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
