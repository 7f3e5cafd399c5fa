"""The standard theory: the operators that ship with hapdsl, declared in `theory/*.hap`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib import resources

from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import Report
from hapdsl.lang.parse import parse
from hapdsl.theory.ops import OpDecl, declare


@lru_cache(maxsize=1)
def blocks() -> dict[str, tuple[nodes.Op, ...]]:
    """The declarations of the standard theory as they stand in its files, by the name of the file without its ending."""
    folder = resources.files("hapdsl.theory")
    found: dict[str, tuple[nodes.Op, ...]] = {}
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".hap"):
            tree = parse(entry.read_text(encoding="utf-8"), file=f"theory/{entry.name}")
            found[entry.name.removesuffix(".hap")] = tuple(item for item in tree.items if isinstance(item, nodes.Op))
    return found


@lru_cache(maxsize=1)
def standard() -> dict[str, OpDecl]:
    """All operators of the standard theory by name, in the order of the files."""
    return declare_all(op for ops in blocks().values() for op in ops)


def declare_all(ops: Iterable[nodes.Op]) -> dict[str, OpDecl]:
    """Declarations by name. Raises HapError with all that is wrong with them (HAP308, HAP310 to HAP319)."""
    report = Report()
    found: dict[str, OpDecl] = {}
    for op in ops:
        if op.name in found:
            report.add("HAP316", f"operator '{op.name}' is declared twice", op.span, "rename one of them")
        found[op.name] = declare(op, report)
    report.raise_errors()
    return found
