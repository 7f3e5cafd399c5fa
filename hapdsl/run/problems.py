"""Exceptions that others raise: what they say in one line, and whether they only say that another rank is gone."""

from __future__ import annotations

# What gloo, nccl and the store say when the other end of a connection is gone, or nothing comes.
_GONE = (
    "connection closed",
    "connection reset",
    "broken pipe",
    "gloo",
    "socket",
    "timed out",
    "store",
    "ncclremoteerror",
)


def reason(problem: BaseException) -> str:
    """The first line of its message; its kind where it has none."""
    said = str(problem).strip()
    return said.splitlines()[0] if said else type(problem).__name__


def named(problem: BaseException) -> str:
    """Its kind and the first line of its message: `ValueError: the disk is full`."""
    kind, said = type(problem).__name__, reason(problem)
    return kind if said == kind else f"{kind}: {said}"


def is_lost_peer(problem: BaseException) -> bool:
    """Does this failure only say that another rank is gone?"""
    text = str(problem).lower()
    return isinstance(problem, RuntimeError) and any(word in text for word in _GONE)
