"""A file on the bench: what the command line, the explorer and the drawings all ask of it, worked out once.

A Workbench answers by name (which model, which cluster, which program) and remembers what it built. It prints nothing and
never writes; everything it can't do is a HapError.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from hapdsl.check.facts import Known
from hapdsl.check.verify import Checked, verify
from hapdsl.cluster import Cluster, guess, with_devices
from hapdsl.cluster import build as build_cluster
from hapdsl.cost.evaluate import Cost, evaluate
from hapdsl.graph.build import build, operators
from hapdsl.graph.training import TrainingGraph
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import Diagnostic, HapError, Report, error
from hapdsl.lang.load import STANDARD, Bundle, load, load_text, standard_places
from hapdsl.lang.near import near
from hapdsl.lang.nodes import NOWHERE, Span
from hapdsl.lang.parse import parse
from hapdsl.theory.dtypes import DTYPE_BYTES
from hapdsl.theory.expressions import evaluate as value_of
from hapdsl.theory.library import standard
from hapdsl.theory.ops import OpDecl, attributes_of
from hapdsl.virtual import positions, spread

_Block = TypeVar("_Block", nodes.Model, nodes.Cluster, nodes.Program)

GUESSED = "guessed"


class Workbench:
    """One file with all that it imports.

    `text` stands for the file's content where it isn't saved (an editor's), `tree` is what it parses to, if that is at hand. Raises HapError as
    `lang.load` does.
    `notes` collects warnings that concern the file as a whole.
    """

    def __init__(self, path: str | Path, text: str | None = None, tree: nodes.File | None = None) -> None:
        self.path = Path(path)
        self.bundle: Bundle = load(path) if text is None else load_text(text, str(path), self.path.parent, tree)
        self.notes = Report()
        self._graphs: dict[tuple[object, ...], TrainingGraph] = {}
        self._clusters: dict[int, Cluster] = {}
        self._whole: dict[int, nodes.Cluster] = {}  # with the devices that they use
        self._elsewhere: dict[str, Bundle] = {}  # clusters' files
        self._guess: nodes.Cluster | None = None

    @property
    def files(self) -> dict[str, str]:
        """The text of each file that was read, by the name that positions carry."""
        found = dict(self.bundle.files)
        for other in self._elsewhere.values():
            found.update(other.files)
        return found

    def renewed(self, text: str, tree: nodes.File) -> Workbench:
        """This bench with another text of its own file, in which only programs differ: what was built of all else is shared. Raises HapError HAP132."""
        found = copy.copy(self)
        found.bundle = self.bundle.with_main(text, tree)
        return found

    @property
    def others(self) -> list[Path]:
        """The other files that were read so far."""
        bundles = (self.bundle, *self._elsewhere.values())
        return [s.path for b in bundles for s in b.sources if s is not self.bundle.main]

    @property
    def where(self) -> Span:
        """The file as a place."""
        return Span(self.bundle.main.name, 1, 1, 1, 1)

    @cached_property
    def ops(self) -> dict[str, OpDecl]:
        """The operators that the file's models may call: the standard theory and the file's own.

        A file may write a standard operator down again with the same operands, attributes and outputs; the standard one is
        used, and a warning says so (HAP317). Another signature under a standard name is HAP316.
        """
        own: dict[str, nodes.Op] = {}
        known = standard()
        for name, op in self.bundle.ops.items():
            if name in known and _signature(known[name]) == _signature(op):
                self.notes.add(
                    "HAP317",
                    f"operator '{name}' is part of the standard theory, which is used",
                    op.span,
                    "take this one away, or give it another name",
                    "warning",
                )
            else:
                own[name] = op
        return operators(own)

    # -- models --------------------------------------------------------------------

    def model(self, name: str | None = None) -> nodes.Model:
        """The model of a name, or the file's only one. Raises HAP240 none, HAP241 which one, HAP242 unknown."""
        own = self.bundle.of_main(nodes.Model)
        return self._pick("model", name, own, self.bundle.models, ("HAP240", "HAP241", "HAP242"), "--model")

    def graph(
        self, model: str | None = None, settings: Mapping[str, Any] | None = None, train: bool = True
    ) -> TrainingGraph:
        """The training graph of a model with parameters overridden, built once per setting."""
        node = self.model(model)
        settings = settings or {}
        key = (node.name, train, tuple(sorted((k, repr(v)) for k, v in settings.items())))
        if key not in self._graphs:
            self._graphs[key] = build(node, self.bundle.defs, self.ops, settings, train)
        return self._graphs[key]

    # -- clusters ------------------------------------------------------------------

    def cluster(self, spec: str | None = None) -> Cluster:
        """The cluster that `spec` names (see `cluster_block`), as numbers."""
        block = self.cluster_block(spec)
        if id(block) not in self._clusters:
            # The block is kept alive by `_whole`, so its id stays its own.
            self._clusters[id(block)] = guess() if block is self._guess else build_cluster(block)
        return self._clusters[id(block)]

    def cluster_block(self, spec: str | None = None) -> nodes.Cluster:
        """`NAME` of this file, `FILE`, or `FILE:NAME` (FILE may be `std/…`).

        Without `spec`: the file's only cluster, else the one of `cluster.hap` in the settings folder, else a guess at this machine.
        The block holds all that it uses: devices of the file or of its imports are declared inside it.
        Raises HAP421 which one, HAP422 unknown, HAP423 a file without one, what `with_devices` raises, or the file's own faults.
        """
        block, devices = self._block(spec)
        if id(block) not in self._whole:
            self._whole[id(block)] = with_devices(block, devices)
        return self._whole[id(block)]

    def _block(self, spec: str | None) -> tuple[nodes.Cluster, Mapping[str, nodes.Device]]:
        """The block as it stands in its file, and the devices that its file knows."""
        here = self.bundle.devices
        if spec is None:
            own = self.bundle.of_main(nodes.Cluster)
            if own or self.bundle.clusters:
                return self._pick(
                    "cluster", None, own, self.bundle.clusters, ("HAP423", "HAP421", "HAP422"), "--cluster FILE:NAME"
                ), here
            saved = settings_folder() / "cluster.hap"
            return self._from_file(str(saved), None) if saved.is_file() else (self._guessed(), here)
        if spec in self.bundle.clusters:
            return self.bundle.clusters[spec], here
        file, name = file_and_name(spec)
        if name is None and not _looks_like_file(file):
            known = ", ".join(self.bundle.clusters)
            raise error("HAP422", f"there is no cluster '{spec}' in {self.bundle.main.name}", self.where, f"it has: {known}" if known else "name a file: FILE or FILE:NAME")  # fmt: skip
        return self._from_file(file, name)

    def _from_file(self, file: str, name: str | None) -> tuple[nodes.Cluster, Mapping[str, nodes.Device]]:
        path = _resolve(file)
        if file not in self._elsewhere:
            self._elsewhere[file] = load(path)
        bundle = self._elsewhere[file]
        own = bundle.of_main(nodes.Cluster)
        where = Span(bundle.main.name, 1, 1, 1, 1)
        found = self._pick(
            "cluster", name, own, bundle.clusters, ("HAP423", "HAP421", "HAP422"), f"--cluster {file}:NAME", where
        )
        return found, bundle.devices

    def _guessed(self) -> nodes.Cluster:
        if self._guess is None:
            self._guess = guessed_block(guess())
        return self._guess

    def cluster_of(self, program: nodes.Program, on: str | None = None) -> Cluster | None:
        """The cluster a program is for: `on` if given, else the one its header names, else None.

        Raises HAP424 for a header that names a cluster nobody declares.
        """
        if on is not None:
            return self.cluster(on)
        if program.cluster is None:
            return None
        if program.cluster not in self.bundle.clusters:
            known = ", ".join(self.bundle.clusters) or "none"
            raise error("HAP424", f"program '{program.name}' is on cluster '{program.cluster}', which isn't declared", program.span, f"declared or imported: {known}")  # fmt: skip
        return self.cluster(program.cluster)

    # -- programs ------------------------------------------------------------------

    def programs(self) -> list[nodes.Program]:
        """The file's own programs, in the order of the text."""
        return self.bundle.of_main(nodes.Program)

    def program(self, name: str | None = None) -> nodes.Program:
        """The program of a name, or the file's only one. Raises HAP580 none, HAP581 which one, HAP582 unknown."""
        codes = ("HAP580", "HAP581", "HAP582")
        return self._pick("program", name, self.programs(), self.bundle.programs, codes, "--program")

    def settings(self, program: nodes.Program) -> dict[str, Any]:
        """The model's parameters that a program's header sets: `for mlp(batch = 512)`."""
        found: dict[str, Any] = {}
        for arg in program.args:
            if arg.name is None or arg.name in found:
                raise error("HAP583", "a program sets its model's parameters by name, each once", arg.span, "for mlp(batch = 512)")  # fmt: skip
            found[arg.name] = value_of(arg.value, {d: d for d in DTYPE_BYTES})
        return found

    def graph_of(self, program: nodes.Program) -> TrainingGraph:
        """The graph a program is for, with its header's settings; of a program with a forward part only, the evaluation graph.

        Raises HAP242 where its model isn't declared, and what `graph` raises.
        """
        if program.model not in self.bundle.models:
            known = f"declared or imported: {', '.join(self.bundle.models) or 'none'}"
            hint = near(program.model, self.bundle.models, known)
            raise error("HAP242", f"there is no model '{program.model}'", program.span, hint)
        declared = [p.name for p in self.bundle.models[program.model].parameters]
        for arg in program.args:
            if arg.name is not None and arg.name not in declared:
                hint = near(arg.name, declared, f"it has: {', '.join(declared) or 'none'}")
                raise error("HAP206", f"model '{program.model}' has no parameter '{arg.name}'", arg.span, hint)
        return self.graph(program.model, self.settings(program), train=not evaluates(program))

    def checked(self, program: nodes.Program, on: str | None = None, known: Known | None = None) -> Checked:
        """The verifier's answer for one program; what is wrong is in its diagnostics. Raises HapError where there is no graph or cluster.

        Of a good program over virtual devices `program` is its expansion over all devices. `known` is what earlier checks of it found out.
        """
        cluster = self.cluster_of(program, on)
        graph = self.graph_of(program)
        checked = verify(program, graph, positions(program, cluster), known)
        checked.program.model_args = self.settings(program)
        if checked.ok and not checked.sketch:
            checked.program = spread(checked.program, cluster)
        return checked

    def proven(self, program: nodes.Program, on: str | None = None) -> Checked:
        """Like `checked`, but raises what is wrong (status as `status_of` says), and HAP584 for a sketch."""
        checked = self.checked(program, on)
        if not checked.ok:
            raise HapError(*checked.diagnostics, status=status_of(checked.diagnostics.errors))
        if checked.sketch:
            raise error("HAP584", f"program '{program.name}' is a sketch", program.span, "complete it first")
        return checked

    def cost(self, program: nodes.Program, on: str | None = None) -> tuple[Checked, Cluster, Cost]:
        """A proven program, the cluster it is priced on (`on`, its own, the default one), and its cost."""
        cluster = self.cluster_of(program, on) or self.cluster()
        checked = self.proven(program, on)
        checked.program = spread(checked.program, cluster)  # where neither the program nor `on` has named it
        return checked, cluster, evaluate(checked.program, cluster)

    # -- names -----------------------------------------------------------------------

    def _pick(
        self,
        kind: str,
        name: str | None,
        own: Sequence[_Block],
        table: Mapping[str, _Block],
        codes: tuple[str, str, str],
        option: str,
        where: Span = NOWHERE,
    ) -> _Block:
        """The block of a name, or the only one: of the file, else of what it imports. `codes`: none, which, unknown."""
        where = where if where != NOWHERE else self.where
        if name is not None:
            if name in table:
                return table[name]
            hint = near(name, table, f"there are: {', '.join(table) or 'none'}")
            raise error(codes[2], f"there is no {kind} '{name}' in {where.file}", where, hint)
        options = list(own) or list(table.values())
        if len(options) == 1:
            return options[0]
        if not options:
            first = f"let one be made: `hapdsl plan {where.file} -o plan.hap`; or " if kind == "program" else ""
            help = f"{first}write one, or import it: {kind} NAME … {{ … }}"
            raise error(codes[0], f"{where.file} has no {kind}", where, help)
        names = ", ".join(b.name for b in options)
        raise error(
            codes[1], f"{where.file} has {len(options)} {kind}s: which one?", where, f"{option}: one of {names}"
        )


# -- what others ask as well ---------------------------------------------------------


# What a well-formed program may be refused for: it isn't equivalent to its model (or nothing proves it), or fits nowhere. All other
# errors say that the input itself is wrong: unknown names, shares that don't add up, hardware that can't be.
_THE_ANSWER_IS_NO = frozenset(
    [
        516,
        522,
        *range(530, 535),
        537,
        540,
        541,
        542,
        544,
        *range(550, 553),
        *range(560, 574),
        *range(590, 600),
        *range(601, 610),
        730,
        732,
        740,
    ]
)


def status_of(errors: Iterable[Diagnostic]) -> int:
    """The exit status that errors call for: 0 for none, 1 where all of them are the answer "no", else 2."""
    numbers = [int(d.code[3:]) for d in errors]
    if not numbers:
        return 0
    return 1 if all(n in _THE_ANSWER_IS_NO for n in numbers) else 2


def evaluates(program: nodes.Program) -> bool:
    """Is this a program for evaluation: sections, all of them `forward`, and nothing left to the search?"""
    sections = [s for s in program.body if isinstance(s, nodes.Section)]
    loose = (nodes.Line, nodes.Turns, nodes.Rest)
    return bool(sections) and all(s.kind == "forward" for s in sections) and not any(isinstance(s, loose) for s in program.body)  # fmt: skip


def settings_folder() -> Path:
    """Where a person's own `cluster.hap` lies."""
    import platformdirs

    return platformdirs.user_config_path("hapdsl", appauthor=False)


def guessed_block(cluster: Cluster) -> nodes.Cluster:
    """A guess at this machine as text would say it, so that a plan can carry it."""
    device, host = cluster.devices[0], cluster.nodes[0]
    link = host.link
    over = f" over {{ bandwidth = {link.bandwidth / 1e9} GB/s, latency = {link.latency * 1e6} us }}" if link else ""
    text = (
        f"# {GUESSED} from this machine's cores and memory; nothing was measured\n"
        f"cluster {cluster.name} {{\n"
        f"    device {device.kind} {{ compute = {device.flops['f32'] / 1e9} GFLOP/s, memory = {device.memory / 2**20:.0f} MiB, "
        f"bandwidth = {device.bandwidth / 1e9} GB/s, launch = {device.launch * 1e6} us }}\n"
        f"    node {host.name} = {len(cluster)} * {device.kind}{over}\n"
        "}\n"
    )
    block = parse(text, f"<{GUESSED}>").items[0]
    assert isinstance(block, nodes.Cluster)
    return block


def _signature(op: OpDecl | nodes.Op) -> tuple[object, ...]:
    """Operands, attributes and outputs; nodes compare without their positions."""
    if isinstance(op, nodes.Op):
        attributes = attributes_of(op)
    else:
        attributes = op.attributes
    return op.operands, attributes, tuple((r.dims, r.name) for r in op.results)


def file_and_name(spec: str) -> tuple[str, str | None]:
    """FILE[:NAME] as people write it; a file whose own name has a colon wins."""
    file, colon, name = spec.rpartition(":")
    if not colon or Path(spec).exists() or not file:
        return spec, None
    return file, name


def _looks_like_file(file: str) -> bool:
    return "/" in file or file.endswith(".hap") or Path(file).exists()


def _resolve(file: str) -> Path:
    """The path of a cluster's file; `std/…` is one that comes with hapdsl."""
    if not file.startswith(STANDARD):
        return Path(file)
    places = standard_places(file)
    return next((p for p in places if p.is_file()), places[1])
