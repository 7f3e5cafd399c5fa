"""Files are written whole or not at all."""

from __future__ import annotations

import os
import secrets
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
    try:
        reason = _hindrance(Path(output), read)
    except FileNotFoundError:
        reason = "this folder is gone"
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
    if reason:
        raise error("HAP852", f"{output} can't be written: {reason}", Span(output))


def _hindrance(path: Path, read: Iterable[Path]) -> str:
    """Why a file can't be written, as far as can be told beforehand; "" where nothing speaks against it."""
    folder = path.absolute().parent
    if path.is_dir():
        return "it is a folder"
    if os.path.realpath(path) in map(os.path.realpath, read):
        return "the result is made from it"
    if not folder.is_dir():
        return f"there is no folder {path.parent}"
    return "" if os.access(path if path.exists() else folder, os.W_OK) else "no permission"


def keep_tables(sources: Iterable[Path], output: Path) -> Path | None:
    """Numbers that a text can't say stand beside it (`init table`, FILE.hap.npz); what is written from such a text takes them along.
    Returns where they are now, None where there are none. Raises HapError HAP852."""
    for source in sources:
        beside = f"{source}.npz"
        if os.path.isfile(beside):
            try:
                raw = Path(beside).read_bytes()
            except OSError as problem:
                raise error("HAP852", f"{output}.npz can't be written: {beside} can't be read ({problem.strerror})", Span(f"{output}.npz")) from None  # fmt: skip
            write_file(Path(f"{output}.npz"), raw)
            return Path(f"{output}.npz")
    return None


def _write(real: Path, raw: bytes) -> None:
    if real.exists() and not real.is_file() and not real.is_dir():
        real.write_bytes(raw)
        return
    mode = real.stat().st_mode & 0o7777 if real.exists() else None
    # A long name leaves no room for what is put around it.
    temporary = real.with_name(f".{real.name[:40]}.{secrets.token_hex(4)}.tmp")

    def private(name: str, flags: int) -> int:
        """From the start nobody else may read what they may not in the end; a new file is as the process makes them."""
        return os.open(name, flags, 0o666 if mode is None else mode)

    try:
        with open(temporary, "xb", opener=private) as stream:
            stream.write(raw)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(real)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
