"""A file with everything it imports: `load`."""

from __future__ import annotations

import os.path
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, Report, error
from hapdsl.lang.near import closest, meant, near
from hapdsl.lang.nodes import NOWHERE, Span
from hapdsl.lang.parse import parse, read_text
from hapdsl.lang.resources import programs_folder

_Block = TypeVar("_Block", bound=nodes.Statement)

STANDARD = "std/"
DEEPEST_IMPORTS = 100
# `std/gpus.hap` may lie in any of these folders of the package.
_STANDARD_FOLDERS = ("", "clusters", "models", "plans")


@dataclass(frozen=True, slots=True)
class Source:
    """One file that was read: its name as shown, its text (for carets), its tree."""

    name: str
    path: Path
    text: str
    tree: nodes.File


@dataclass(slots=True)
class Bundle:
    """All blocks of a file and of what it imports, by kind and name; `main` is the file that was asked for."""

    main: Source
    sources: list[Source] = field(default_factory=list)
    defs: dict[str, nodes.Def] = field(default_factory=dict)
    ops: dict[str, nodes.Op] = field(default_factory=dict)
    models: dict[str, nodes.Model] = field(default_factory=dict)
    devices: dict[str, nodes.Device] = field(default_factory=dict)
    clusters: dict[str, nodes.Cluster] = field(default_factory=dict)
    programs: dict[str, nodes.Program] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, str]:
        """The text of each file by the name that spans carry."""
        return {source.name: source.text for source in self.sources}

    def of_main(self, kind: type[_Block]) -> list[_Block]:
        """The main file's own blocks of a kind, in the order of the text."""
        return [item for item in self.main.tree.items if isinstance(item, kind)]

    def with_main(self, text: str, tree: nodes.File) -> Bundle:
        """The same files with another text of the main one, which imports what it did. Raises HapError HAP132."""
        main = Source(self.main.name, self.main.path, text, tree)
        return _bundle(main, [main if source is self.main else source for source in self.sources])


def load(path: str | Path) -> Bundle:
    """Read a file and what it imports, each file once, imports before what follows them.

    An import is looked up beside the importing file, and `std/...` in the package. Raises HapError with all that was
    found: HAP100 to HAP129 for the files' own faults, HAP130 a missing import, HAP131 a cycle, HAP132 two
    blocks of one kind and name, HAP133 imports in a chain without end.
    """
    loader = _Loader()
    main = loader.read(Path(path), str(path), NOWHERE, ())
    loader.report.raise_errors()
    assert main is not None  # else there would be errors
    if not main.tree.items:
        raise empty(main.name)
    return _bundle(main, loader.sources)


def empty(file: str) -> HapError:
    """What is raised for a file without a block (HAP124)."""
    return error(
        "HAP124",
        f"{file} holds no block",
        Span(file, 1, 1, 1, 1),
        "a file holds def, op, model, device, cluster and program blocks",
    )


def load_text(text: str, file: str = "<text>", folder: str | Path = ".", tree: nodes.File | None = None) -> Bundle:
    """The same for a text that isn't saved (an editor's); imports are looked up from `folder`. `tree` is what `parse` made of the text, if it is at hand."""
    loader = _Loader()
    main = loader.add(text, Path(folder) / Path(file).name, file, (), tree)
    loader.report.raise_errors()
    assert main is not None
    return _bundle(main, loader.sources)


class _Loader:
    def __init__(self) -> None:
        self.report = Report()
        self.sources: list[Source] = []
        self._done: dict[Path, Source | None] = {}

    def read(self, path: Path, name: str, span: Span, chain: tuple[Path, ...]) -> Source | None:
        """Read a file unless that was done; `chain` are the files whose imports led here."""
        real = _real(path)
        if real in self._done:
            return self._done[real]
        try:
            text = read_text(path if span == NOWHERE else real)
        except HapError as problem:
            self._done[real] = None
            for found in problem.diagnostics:
                # A fault of the file as such is shown where it is imported.
                where = found.span if span == NOWHERE or found.code == "HAP122" else span
                self.report.add(found.code, found.message, where, found.help)
            return None
        return self.add(text, path, name, chain)

    def add(
        self, text: str, path: Path, name: str, chain: tuple[Path, ...], tree: nodes.File | None = None
    ) -> Source | None:
        real = _real(path)
        self._done[real] = None
        try:
            tree = tree or parse(text, name)
        except HapError as problem:
            self.report.extend(problem.diagnostics)
            return None
        source = Source(name, path, text, tree)
        self._done[real] = source
        for item in tree.items:
            if isinstance(item, nodes.Import):
                self._import(item, path, (*chain, real))
        self.sources.append(source)
        return source

    def _import(self, item: nodes.Import, importer: Path, chain: tuple[Path, ...]) -> None:
        target = _resolve(item.path, importer)
        if target is None:
            self.report.add(
                "HAP130", f"there is no file {item.path} to import", item.span, _advice(item.path, importer)
            )
        elif len(chain) >= DEEPEST_IMPORTS:
            self.report.add(
                "HAP133",
                f"over {DEEPEST_IMPORTS} files import each other in a row",
                item.span,
                "import what is needed from one place",
            )
        elif (real := _real(target)) in chain:
            names = [p.name for p in chain[chain.index(real) :]] + [real.name]
            self.report.add("HAP131", f"these files import each other: {' -> '.join(names)}", item.span, "move what both need into a third file")  # fmt: skip
        else:
            self.read(target, _shown(target), item.span, chain)


def _real(path: Path) -> Path:
    for whole in (path.resolve, path.absolute):
        with suppress(OSError, ValueError, RuntimeError):
            return whole()
    return path  # the folder that we are in is gone


def _shown(path: Path) -> str:
    """The path without `a/../`."""
    return os.path.normpath(path)


def _resolve(name: str, importer: Path) -> Path | None:
    try:
        if name.startswith(STANDARD):
            places = standard_places(name)
        else:
            places = [importer.parent / name]
        return next((p for p in places if p.exists()), None)
    except (OSError, ValueError):
        return None


def standard_places(name: str) -> list[Path]:
    """Where `std/NAME` may lie in the package."""
    return [programs_folder() / folder / name.removeprefix(STANDARD) for folder in _STANDARD_FOLDERS]


def _advice(name: str, importer: Path) -> str:
    try:
        if name.startswith(STANDARD):
            known = sorted(p.name for p in programs_folder().glob("**/*.hap"))
            close = closest(name.removeprefix(STANDARD), known)
            return meant(STANDARD + close[0]) if close else "std/ holds the example files that come with hapdsl"
        folder = (importer.parent / name).parent
        known = [p.name for p in folder.glob("*.hap")]
    except (OSError, ValueError):
        return ""
    return near(Path(name).name, known, "paths are relative to the importing file; std/... is inside hapdsl")


def _bundle(main: Source, sources: list[Source]) -> Bundle:
    bundle = Bundle(main, sources)
    tables: dict[type[nodes.Statement], dict[str, Any]] = {
        nodes.Def: bundle.defs, nodes.Op: bundle.ops, nodes.Model: bundle.models,
        nodes.Device: bundle.devices, nodes.Cluster: bundle.clusters, nodes.Program: bundle.programs,
    }  # fmt: skip
    report = Report()
    for source in sources:
        for item in source.tree.items:
            if isinstance(item, nodes.Import):
                continue
            table = tables[type(item)]
            first = table.setdefault(item.name, item)
            if first is not item:
                kind = type(item).__name__.lower()
                where = f"{first.span.file}:{first.span.line}"
                report.add("HAP132", f"there are two {kind} blocks named {item.name}", item.span, f"the other is at {where}; rename one of them")  # fmt: skip
    report.raise_errors()
    return bundle
