"""Text to tree."""

from __future__ import annotations

import functools
import sys
import threading
from pathlib import Path
from typing import Any, cast

from lark import Lark, Token, UnexpectedInput, lexer

from hapdsl.lang import comments
from hapdsl.lang.build import Builder
from hapdsl.lang.diagnostics import Diagnostic, HapError, error
from hapdsl.lang.near import near
from hapdsl.lang.nodes import File, Span
from hapdsl.lang.resources import grammar_file
from hapdsl.lang.syntax import Recovery
from hapdsl.lang.tokens import Newlines, TooDeep

LARGEST_FILE = 2 * 2**20
STDIN = "-"  # a file of this name is what is piped in; `./-` is the file
MOST_ERRORS = 20

# The builder belongs to the parser, which is built once a process: one text at a time.
_lock = threading.Lock()


@functools.cache
def parser(strict: bool = False) -> tuple[Lark, Builder]:
    """The LALR parser of the language and the builder that its rules call; `strict` refuses any conflict."""
    builder = Builder()
    # Where interegular is installed lark asks whether terminals collide, each time and at length: our tests ask that, `strict`.
    asks, lexer.has_interegular = lexer.has_interegular, lexer.has_interegular and strict
    try:
        lark = Lark(
            grammar_file().read_text(encoding="utf-8"),
            parser="lalr",
            start="file",
            transformer=cast(Any, builder),
            postlex=cast(Any, Newlines()),
            keep_all_tokens=True,
            maybe_placeholders=False,
            strict=strict,
        )
    finally:
        lexer.has_interegular = asks
    return lark, builder


def parse(text: str, file: str = "<text>") -> File:
    """The tree of a text; `file` is the name that spans carry.

    Raises HapError with up to MOST_ERRORS diagnostics (HAP100 to HAP119), in the order of the text.
    """
    return parse_with_braces(cleaned(text, file), file)[0]


def parse_with_braces(text: str, file: str) -> tuple[File, dict[comments.Place, comments.Place]]:
    """The tree of a `cleaned` text, and where the `{` of each block stands by where the block starts. Raises as `parse`."""
    with _lock:
        lark, builder = parser()
        builder.begin(file)
        tree, problems = _run(lark, text, file)
        found = sorted([*problems, *builder.problems], key=lambda d: (d.span.line, d.span.column))
        if found or tree is None:
            raise HapError(*found[:MOST_ERRORS])
        return comments.attach(tree, text, builder.braces), builder.braces


def read_text(path: str | Path) -> str:
    """What a file holds, or stdin where it is called `-`. Raises HapError: HAP120 missing, HAP121 no file, HAP122 not UTF-8, HAP123 too large."""
    where = Span(str(path), 1, 1, 1, 1)
    file = Path(path)
    try:
        if str(path) == STDIN:
            raw = _stdin()
        elif file.is_dir():
            raise error("HAP121", f"{path} is a folder", where, "name a .hap file")
        elif (size := file.stat().st_size) > LARGEST_FILE:
            raise error("HAP123", f"{path} is {size / 2**20:.1f} MiB; the largest file read is {LARGEST_FILE // 2**20} MiB", where, "print programs with their layers rolled")  # fmt: skip
        else:
            with file.open("rb") as stream:
                # Not every stat tells the truth (devices, pipes), so the limit holds for what is read, too.
                raw = stream.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        if file.is_symlink():
            raise error("HAP120", f"{path} is a link to {file.readlink()}, which isn't there", where) from None
        raise error("HAP120", f"there is no file {path}", where, _nearby(file)) from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise error("HAP121", f"{path} can't be read: {reason}", where) from None
    if len(raw) > LARGEST_FILE:
        raise error("HAP123", f"{path} is larger than {LARGEST_FILE // 2**20} MiB", where)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        # Counted in what was decoded, which lacks the byte order mark.
        read = problem.object
        before = read[: problem.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        place = Span(str(path), line, column, line, column + 1)
        raise error("HAP122", f"{path} isn't UTF-8: byte 0x{read[problem.start]:02x}", place, "save the file as UTF-8") from None  # fmt: skip


@functools.cache
def _stdin() -> bytes:
    """What was piped in. It can be read once only, and is asked for again where a diagnostic shows its line."""
    stream = getattr(sys.stdin, "buffer", None)
    return b"" if stream is None else bytes(stream.read(LARGEST_FILE + 1))


def _nearby(file: Path) -> str:
    try:
        names = [p.name for p in file.parent.iterdir()]
    except OSError:
        return ""
    return near(file.name, names)


def cleaned(text: str, file: str) -> str:
    """The text with one kind of line end. Raises HAP125 for a NUL."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    at = text.find("\0")
    if at >= 0:
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        raise error("HAP125", "a NUL byte: this is no text", Span(file, line, column, line, column + 1))
    return text


def _run(lark: Lark, text: str, file: str) -> tuple[File | None, list[Diagnostic]]:
    """Parse, skipping what can't be read so that one run finds several errors."""
    interactive = lark.parse_interactive(text)
    state, lexer = interactive.parser_state, interactive.lexer_thread
    recovery = Recovery(text, file, lark, interactive)
    end = Token("$END", "", len(text), *_end(text))
    while True:
        try:
            for token in lexer.lex(state):
                state.feed_token(token)
            return state.feed_token(end, True), recovery.problems
        except TooDeep as problem:
            return None, [*recovery.problems, recovery.too_deep(problem.token)]
        except UnexpectedInput as problem:
            if not recovery.skip(problem) or len(recovery.problems) >= MOST_ERRORS:
                return None, recovery.problems


def _end(text: str) -> tuple[int, int]:
    """Line and column just behind the last character that isn't blank."""
    text = text.rstrip()
    return text.count("\n") + 1, len(text) - text.rfind("\n")
