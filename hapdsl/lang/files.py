"""Files are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hapdsl.lang.diagnostics import error
from hapdsl.lang.nodes import Span


def write_file(path: Path, content: str | bytes) -> None:
    """Write beside the file, then rename: an interrupted write leaves the old file.

    Keeps the file's mode; a link keeps pointing where it did; pipes and devices are written to. Raises HapError HAP852.
    """
    raw = content.encode("utf-8") if isinstance(content, str) else content
    try:
        _write(Path(os.path.realpath(path)), raw)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise error("HAP852", f"{path} can't be written: {reason}", Span(str(path), 0, 0, 0, 0)) from None


def keep_tables(sources: Iterable[Path], output: Path) -> None:
    """Numbers that a text can't say stand beside it (`init table`, FILE.hap.npz); what is written from such a text takes them along.
    Raises HapError HAP852."""
    for source in sources:
        beside = source.with_name(f"{source.name}.npz")
        if beside.is_file():
            write_file(output.with_name(f"{output.name}.npz"), beside.read_bytes())
            return


def _write(real: Path, raw: bytes) -> None:
    if real.exists() and not real.is_file() and not real.is_dir():
        real.write_bytes(raw)
        return
    mode = real.stat().st_mode & 0o7777 if real.exists() else 0o666 & ~_umask()
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=real.parent, prefix=f".{real.name}.", suffix=".tmp", delete=False) as stream:
            temporary = Path(stream.name)
            stream.write(raw)
        temporary.chmod(mode)
        temporary.replace(real)
    except BaseException:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
