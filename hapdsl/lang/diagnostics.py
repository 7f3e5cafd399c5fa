"""What hapdsl says when something is wrong: a code, a position, a cause, a way out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from hapdsl.lang.nodes import NOWHERE, Span

_Error = TypeVar("_Error", bound="HapError")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `code` is stable (`hapdsl explain CODE`), `severity` "error" or "warning"."""

    code: str
    message: str
    span: Span = NOWHERE
    help: str = ""
    severity: str = "error"

    def as_json(self) -> dict[str, object]:
        """The object of the `--json` output."""
        return {
            "code": self.code,
            "severity": self.severity,
            "file": self.span.file,
            "line": self.span.line,
            "column": self.span.column,
            "message": self.message,
            "help": self.help,
        }


class HapError(Exception):
    """One or more diagnostics that stop the work at hand.

    `status` is the exit status of the command line: 2 bad input, 1 the answer is no.
    """

    def __init__(self, *diagnostics: Diagnostic, status: int = 2) -> None:
        super().__init__("; ".join(f"{d.code}: {d.message}" for d in diagnostics))
        self.diagnostics = diagnostics
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        # By itself an exception is made again from its message, which this one isn't made of: a pool of processes couldn't hand it on.
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[_Error], args: tuple[Any, ...], said: dict[str, Any]) -> _Error:
    """An error as it was pickled."""
    made = kind.__new__(kind, *args)
    made.__dict__.update(said)
    return made


def error(code: str, message: str, span: Span = NOWHERE, help: str = "", status: int = 2) -> HapError:
    """A HapError of one diagnostic, to be raised."""
    return HapError(Diagnostic(code, message, span, help), status=status)


class Report:
    """Collects diagnostics so that one run can say several things."""

    def __init__(self) -> None:
        self._found: list[Diagnostic] = []

    def add(self, code: str, message: str, span: Span = NOWHERE, help: str = "", severity: str = "error") -> None:
        self._found.append(Diagnostic(code, message, span, help, severity))

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        self._found.extend(diagnostics)

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return tuple(d for d in self._found if d.severity == "error")

    def raise_errors(self, status: int = 2) -> None:
        """Raise everything found if any of it is an error."""
        if self.errors:
            raise HapError(*self._found, status=status)
