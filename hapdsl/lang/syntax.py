"""Reading on after a syntax error, so that one run finds several.

On an error the parser's stack is cut back to the start of the statement (or of the block, where its header is at
fault), and reading goes on behind that statement. Where it ends is guessed from brackets and, because brackets
are what is often missing, from indentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lark import Lark, Token, UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.lexer import PatternStr

from hapdsl.lang.diagnostics import Diagnostic
from hapdsl.lang.expected import BLOCKS, Fault, Finding, describe, explain_fault
from hapdsl.lang.nodes import Span

# A terminal that tells each place where a statement may begin from all others.
_STARTERS = {"MODEL": "", "INPUT": "model", "TORCH": "op", "DEVICE": "cluster", "PIN": "program"}
_SIGNS = re.compile(r'"(?:[^"\\\n]|\\.)*"?|#[^\n]*|[()\[\]{}\n;]')
_BRACES = re.compile(r'"(?:[^"\\\n]|\\.)*"?|#[^\n]*|[{}]')
_WORD = re.compile(r'"(?:[^"\\\n]|\\.)*"?|#[^\n]*|\.*\w[\w.]*|\S')
_BETWEEN = re.compile(r"(?:[ \t\f\n;]|#[^\n]*)*")
_BLOCK_LINE = re.compile(rf"^(?:{'|'.join(BLOCKS)})[ \t]+[\"\w{{]", re.MULTILINE)
# No statement is longer than this; without a limit a large file full of errors would take minutes.
_FURTHEST = 50_000
_PAIRS = {")": "(", "]": "[", "}": "{"}


class Recovery:
    """Collects the syntax errors of one text in `problems` and sets the parser back on its feet after each."""

    def __init__(self, text: str, file: str, lark: Lark, interactive: Any) -> None:
        self.problems: list[Diagnostic] = []
        self._text = text
        self._file = file
        self._interactive = interactive
        self._state = interactive.parser_state
        self._table = self._state.parse_conf.parse_table.states
        self._resumed = 0
        # Keywords and signs by their terminal's name.
        self._literals = {t.name: t.pattern.value for t in lark.terminals if isinstance(t.pattern, PatternStr)}

    # -- places ----------------------------------------------------------------

    def _span(self, start: int, length: int = 1) -> Span:
        line, column = self._text.count("\n", 0, start) + 1, start - self._text.rfind("\n", 0, start)
        return Span(self._file, line, column, line, column + length)

    def _line_start(self, at: int) -> int:
        return self._text.rfind("\n", 0, at) + 1

    def _indent(self, at: int) -> int:
        start = self._line_start(at)
        line = self._text[start:].split("\n", 1)[0]
        return len(line) - len(line.lstrip())

    # -- the parser's stack ----------------------------------------------------

    def _cut(self) -> tuple[int, str]:
        """How many states of the stack to keep so that a statement may begin, and where that is."""
        states = self._state.state_stack
        for keep in range(len(states), 0, -1):
            for starter, place in _STARTERS.items():
                if starter in self._table[states[keep - 1]]:
                    return keep, place
        return 1, ""

    def _open_braces(self, keep: int) -> list[int]:
        """Where the blocks open around the statement have their `{`."""
        values = self._state.value_stack[: keep - 1]
        return [v.start_pos or 0 for v in values if isinstance(v, Token) and v.type == "LBRACE"]

    def _resume(self, keep: int, at: int) -> bool:
        """Cut the stack and read on at `at`; False where nothing is left to read."""
        del self._state.state_stack[keep:]
        del self._state.value_stack[keep - 1 :]
        if at <= self._resumed and self._resumed:
            newline = self._text.find("\n", self._resumed)
            at = len(self._text) if newline < 0 else newline
        between = _BETWEEN.match(self._text, at)
        at = between.end() if between else at
        self._resumed = at
        counter = self._interactive.lexer_thread.state.line_ctr
        counter.char_pos = at
        counter.line = self._text.count("\n", 0, at) + 1
        counter.line_start_pos = self._line_start(at)
        counter.column = at - counter.line_start_pos + 1
        return at < len(self._text)

    # -- errors ----------------------------------------------------------------

    def too_deep(self, token: Token) -> Diagnostic:
        help = "give inner parts names of their own, each on its line"
        return Diagnostic("HAP104", "this nests too deeply", self._span(token.start_pos or 0, len(token)), help)

    def skip(self, problem: UnexpectedInput) -> bool:
        """Note an error and set the parser behind it; False where the text ends."""
        at, kind, found = self._where(problem)
        keep, place = self._cut()
        open_braces = self._open_braces(keep)
        values = self._state.value_stack[: keep - 1]
        before = values[-1].end_pos if values and isinstance(values[-1], Token) else None
        start = min(at, max(self._resumed, before or 0))
        block = _BLOCK_LINE.search(self._text, self._line_start(start), at + 1)
        if open_braces and block and block.start() >= start - 1:
            return self._missing_brace(block.start(), open_braces)
        end, unclosed = self._end_of_statement(start, at)
        # A character that begins no token is the fault itself, whatever is still open.
        opened = self._opened(start, at, unclosed, kind) if kind else None
        if opened is not None and self._text[opened] != "{":
            self._note(Finding("HAP105", f"this `{self._text[opened]}` isn't closed", f"found {describe(kind, found)} where it is still open"), opened)  # fmt: skip
            end, _ = self._end_of_statement(start, opened, braces_only=True)
        elif opened is not None:
            self._note(Finding("HAP103", f"expected `}}`, found {describe(kind, found)}", f"the `{{` at {self._shown(opened)} isn't closed"), at, max(1, len(found)))  # fmt: skip
            end = self._text.rfind("\n", 0, at) if kind != "$END" else at
        elif kind == "$END" and open_braces and "}" in self._accepted():
            suspect = self._suspect(open_braces[-1])
            self._note(Finding("HAP103", "the file ends inside a block: expected `}`", f"the `{{` at {self._shown(suspect)} isn't closed"), at)  # fmt: skip
            return False
        else:
            self._unexpected(Fault(kind, found, self._accepted(), self._words(start, at), self._place(place, open_braces)), at)  # fmt: skip
            if unclosed:
                end, unclosed = self._end_of_statement(start, at, braces_only=True)
        if not open_braces:
            following = _BLOCK_LINE.search(self._text, at + 1 if unclosed or opened is not None else max(end, at + 1))
            end = following.start() if following else len(self._text)
        return self._resume(keep, end)

    def _unexpected(self, fault: Fault, at: int) -> None:
        finding = explain_fault(fault, frozenset(self._literals.values()))
        if fault.found == "}" and not fault.place and not fault.words:
            finding = Finding("HAP103", "this `}` closes no block", "remove it, or look for a `}` too many above")
        self._note(finding, at, len(fault.found) if fault.kind not in ("_SEP", "$END") else 1)

    def _accepted(self) -> frozenset[str]:
        """What would do: keywords and signs as themselves, other terminals by name."""
        return frozenset(self._literals.get(t, t) for t in self._interactive.accepts())

    def _opened(self, start: int, at: int, unclosed: list[int], kind: str) -> int | None:
        """The bracket that was probably forgotten to close, of those open at `at`: one that is never closed, or whose
        statement is followed by a line that isn't indented further."""
        stack: list[int] = []
        for place, sign in self._signs(start, False):
            if place >= at:
                break
            if sign in "([{":
                stack.append(place)
            elif sign in _PAIRS and stack and self._text[stack[-1]] == _PAIRS[sign]:
                stack.pop()
        if not stack:
            return None
        first = kind == "$END" or not self._text[self._line_start(at) : at].strip()
        outside = first and self._text[at : at + 1] not in _PAIRS and self._indent(at) <= self._indent(start)
        if outside:
            return stack[0]
        never = [place for place in stack if place in unclosed]
        return never[0] if never and (self._text[never[0]] != "{" or first) else None

    def _where(self, problem: UnexpectedInput) -> tuple[int, str, str]:
        """Offset, terminal and text of what was found."""
        if isinstance(problem, UnexpectedToken):
            token = problem.token
            if token.type == "$END":
                return len(self._text.rstrip()), "$END", ""
            # Outside its place any word may be taken for a unit.
            return token.start_pos or 0, "NAME" if token.type == "UNIT" else token.type, str(token)
        assert isinstance(problem, UnexpectedCharacters)
        at = problem.pos_in_stream or 0
        return at, "", self._text[at : at + 1]

    def _note(self, finding: Finding, at: int, length: int = 1) -> None:
        """Keep a finding, unless something was already found on its line."""
        span = self._span(at, length)
        if not any(d.span.line == span.line for d in self.problems):
            self.problems.append(Diagnostic(finding.code, finding.message, span, finding.help))

    def _shown(self, at: int) -> str:
        span = self._span(at)
        return f"{span.line}:{span.column}"

    def _missing_brace(self, at: int, open_braces: list[int]) -> bool:
        """A block begins inside another one."""
        word = self._text[at:].split(None, 1)[0]
        suspect = self._suspect(open_braces[-1], at)
        self._note(Finding("HAP103", f"expected `}}` before this {word}", f"the `{{` at {self._shown(suspect)} isn't closed"), at, len(word))  # fmt: skip
        # Everything down to the last place where the file itself may go on is dropped.
        states = self._state.state_stack
        keep = max(k for k in range(1, len(states) + 1) if "MODEL" in self._table[states[k - 1]])
        return self._resume(keep, at)

    def _suspect(self, innermost: int, before: int | None = None) -> int:
        """The `{` whose `}` is probably the missing one: the first that a `}` of another indentation closes."""
        stack: list[int] = []
        for match in _BRACES.finditer(self._text, 0, len(self._text) if before is None else before):
            if match[0] == "{":
                stack.append(match.start())
            elif match[0] == "}" and stack:
                opening = stack.pop()
                at = match.start()
                first = not self._text[self._line_start(at) : at].strip()
                if first and self._indent(at) != self._indent(opening):
                    return opening
        return stack[-1] if stack else innermost

    def _words(self, start: int, at: int) -> tuple[str, ...]:
        return tuple(m[0] for m in _WORD.finditer(self._text, start, at) if m[0][0] not in "#;")

    def _place(self, place: str, open_braces: list[int]) -> str:
        """`def` and `model` share their statements; the header tells which it is."""
        if place == "model" and open_braces:
            return self._text[self._line_start(open_braces[0]) :].split(None, 1)[0]
        return place

    # -- the end of a statement ------------------------------------------------

    def _end_of_statement(self, start: int, at: int, braces_only: bool = False) -> tuple[int, list[int]]:
        """Where a statement that starts at `start` and holds `at` ends, and its brackets that are not closed."""
        margin = self._indent(start) if start < len(self._text) else 0
        stack: list[int] = []
        candidate: int | None = None
        for place, sign in self._signs(start, braces_only):
            if sign in "([{":
                stack.append(place)
            elif sign in ")]" and stack and self._text[stack[-1]] == _PAIRS[sign]:
                stack.pop()
            elif sign == "}":
                alone = not self._text[self._line_start(place) : place].strip()
                braces = [i for i, opening in enumerate(stack) if self._text[opening] == "{"]
                if not braces or (alone and self._indent(place) < margin):
                    return (place if candidate is None else candidate), stack
                if braces[-1] < len(stack) - 1 and braces[-1] == 0:
                    # Brackets open inside the braces of a header: not closed either.
                    return (place if candidate is None else candidate), stack[1:]
                del stack[braces[-1] :]
            elif sign in "\n;" and place >= at:
                if not stack:
                    return place, []
                if sign == "\n" and candidate is None:
                    candidate = place
        return (len(self._text) if candidate is None else candidate), stack

    def _signs(self, start: int, braces_only: bool) -> Iterator[tuple[int, str]]:
        for match in _SIGNS.finditer(self._text, start, min(len(self._text), start + _FURTHEST)):
            sign = match[0]
            if sign[0] not in '"#' and not (braces_only and sign in "()[]"):
                yield match.start(), sign
