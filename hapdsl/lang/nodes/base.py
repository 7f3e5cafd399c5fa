"""Where a node stands, and what statements and blocks have in common."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of source text; lines and columns count from 1, the end is exclusive. Without them it is the whole of a file."""

    file: str = ""
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0


NOWHERE = Span()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Anything of the tree, and where it stood in the text."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement(Node):
    """A node that stands on a line of its own, with the comments that belong to it.

    `leading` are the full-line comments above it and `trailing` the one behind it (of a
    block: behind its `{`), both without `#` and outer blanks; an entry BLANK of `leading` is a
    blank line between two comments, or between the last one and the statement. `gap` says that
    a blank line goes before; the first statement of a file or block never has one.

    `sign` remembers where the author put the `=`, `:` or `{` on which neighbouring lines align (columns behind
    the statement's start, 0 for nowhere). It is layout, like `span`, and takes no part in comparisons.
    """

    leading: tuple[str, ...] = ()
    trailing: str | None = None
    gap: bool = False
    sign: int = field(default=0, compare=False, repr=False)


BLANK = "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Statement):
    """A statement with a body in braces; `closing` are the comments before its `}`.

    `inline` says that the author wrote it on one line; the printer keeps that where it fits.
    """

    closing: tuple[str, ...] = ()
    inline: bool = field(default=False, compare=False, repr=False)
