"""Between lexer and parser: newlines inside brackets and behind commas are dropped, and nesting has a limit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lark import Token

# The tree is walked by recursion in many places; this keeps all of them far from Python's limit.
DEEPEST_EXPRESSION = 100
DEEPEST_BLOCK = 40

_COMMENT = re.compile(r"#[^\n]*")
# What a token does to the depth, by its text.
_DOES = {
    ",": "comma", "(": "open", "[": "open", ")": "close", "]": "close", "{": "block", "}": "end",
    **dict.fromkeys(("+", "-", "*", "/", "//", "%"), "chain"),
}  # fmt: skip


class TooDeep(Exception):
    """Brackets, blocks or operators nest deeper than any file needs; `token` is where the limit was passed."""

    def __init__(self, token: Token) -> None:
        super().__init__(str(token))
        self.token = token


class Newlines:
    """Lark's `postlex`. It keeps no state between two texts, so one instance serves all."""

    # NAME, so that a keyword is one only as a whole word: `sumk` is never `sum k`, wherever a name can't stand.
    always_accept = ("_SEP", "NAME")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Yield the tokens that the parser sees. Raises TooDeep.

        An expression's depth is at most the brackets open around it plus the operators chained in each of them
        since the last comma; that sum is what the limit is on.
        """
        chained = [0]
        blocks = depth = 0
        comma = False
        for token in stream:
            # Not by the token itself: lark compares those in Python, half a dozen times each.
            does = _DOES.get(token.value)
            after_comma, comma = comma, does == "comma"
            if does is None:
                if token.type == "_SEP":
                    if (len(chained) > 1 or after_comma) and ";" not in _COMMENT.sub("", token):
                        continue
                    chained, depth = [0], 0
            elif does == "comma":
                depth -= chained[-1]
                chained[-1] = 0
            elif does == "open":
                chained.append(0)
                depth += 1
            elif does == "close":
                if len(chained) > 1:
                    depth -= chained.pop() + 1
            elif does == "chain":
                chained[-1] += 1
                depth += 1
            elif does == "block":
                blocks += 1
            else:
                blocks -= 1
            if depth > DEEPEST_EXPRESSION or blocks > DEEPEST_BLOCK:
                raise TooDeep(token)
            yield token
