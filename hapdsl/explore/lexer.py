"""The language for Pygments: documents, `pygmentize -l hap`, Sphinx. Found through the entry point `pygments.lexers`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from pygments.lexer import Lexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text

from hapdsl.explore.highlight import spans

_TOKENS: dict[str, Any] = {
    "comment": Comment.Single, "text": String.Double, "number": Number, "keyword": Keyword, "type": Keyword.Type, "call": Name.Function,
    "collective": Name.Function.Magic, "hole": Operator.Word, "R": Keyword.Constant, "P": Keyword.Constant,
    **{f"S{d}": Keyword.Constant for d in range(5)},
}  # fmt: skip
_ROW = re.compile(r"[^\n]*\n|[^\n]+")  # lines end with nothing else


class HapLexer(Lexer):
    """Colours of the explorer as Pygments' tokens."""

    name = "hap"
    url = "https://arxiv.org/abs/2401.05965"
    aliases: ClassVar[list[str]] = ["hap", "hapdsl"]
    filenames: ClassVar[list[str]] = ["*.hap"]
    mimetypes: ClassVar[list[str]] = ["text/x-hap"]

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        for row in _ROW.finditer(text):
            line, at, done = row[0], row.start(), 0
            for start, end, kind in spans(line.rstrip("\n")):
                if start > done:
                    yield at + done, Text, line[done:start]
                yield at + start, _TOKENS[kind], line[start:end]
                done = end
            if done < len(line):
                yield at + done, Text, line[done:]
