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
        raise error("HAP852", f"{path} can't be written: {reason}", Span(str(path))) from None


def check_writable(output: str, read: Iterable[Path] = ()) -> None:
    """Say before the work, not behind it, that its result can't be kept, or would take the place of what is `read` for it. Raises HapError HAP852."""
    path = Path(output)
    try:
        folder = path.absolute().parent
    except OSError:
        raise error("HAP852", f"{output} can't be written: this folder is gone", Span(output)) from None
    reason = ""
    if path.is_dir():
        reason = "it is a folder"
    elif path.resolve() in [source.resolve() for source in read]:
        reason = "the result is made from it"
    elif not folder.is_dir():
        reason = f"there is no folder {path.parent}"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        reason = "no permission"
    if reason:
        raise error("HAP852", f"{output} can't be written: {reason}", Span(output))


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
        with tempfile.NamedTemporaryFile(
            dir=real.parent, prefix=f".{real.name}.", suffix=".tmp", delete=False
        ) as stream:
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
