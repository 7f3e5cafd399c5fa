"""A checkpoint: a folder with a file of tensors per rank and a manifest that says what is where.

    DIR/step-00000040/manifest.json
    DIR/step-00000040/rank-0.safetensors   what rank 0 wrote: its pieces, by value (`w1@S(1)`)

The manifest is JSON of our own. Nothing in a checkpoint is ever executed, and nothing is allocated by what it says before sizes
of files, tensors and pieces have been compared with one another.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hapdsl.lang.diagnostics import HapError, error
from hapdsl.lang.nodes import Span
from hapdsl.theory.dtypes import DTYPE_BYTES

FORMAT = "hapdsl checkpoint"
VERSION = 1
MANIFEST = "manifest.json"
LARGEST_MANIFEST = 256 * 2**20
LARGEST_HEADER = 100 * 2**20  # of a file of tensors, as safetensors itself has it

_STEP = re.compile(r"step-(\d{8,12})")
_FILE = re.compile(r"rank-\d{1,6}\.safetensors")
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Piece:
    """A block of a tensor, in elements, and the rank that wrote it."""

    rank: int
    offsets: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def volume(self) -> int:
        return math.prod(self.lengths)


@dataclass(frozen=True)
class Copy:
    """A tensor as one value of the program held it: nothing is loaded as partial sums (HAP551), so pieces lie side by side."""

    value: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Saved:
    """A tensor with all copies that the program held, mostly one. `dtype` is that of the numbers in the files."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    copies: tuple[Copy, ...]


@dataclass(frozen=True)
class File:
    """A file of tensors: its size in bytes and its SHA-256."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds. `step` is the last one done; `seed` and `data` are those of the run.

    `model` and `program` are names with fingerprints; `shares[cls]` lists (axes, units per device) as the program's layout has them.
    `extra` are numbers that belong to the state of a run without being tensors of its model.
    """

    step: int
    seed: int
    data: str
    model: str
    model_fingerprint: str
    program: str
    program_fingerprint: str
    hapdsl: str
    mesh: tuple[tuple[str, int], ...]
    shares: Mapping[str, tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]]
    tensors: Mapping[str, Saved]
    files: tuple[File, ...]
    extra: Mapping[str, float] = field(default_factory=dict)

    @property
    def devices(self) -> int:
        return math.prod(size for _, size in self.mesh)

    def to_json(self) -> str:
        """The text of the file, with a checksum of itself."""
        found = {"format": FORMAT, "version": VERSION, **asdict(self)}
        found["tensors"] = {n: {k: v for k, v in t.items() if k != "name"} for n, t in found["tensors"].items()}
        return _lines({**found, "checksum": _checksum(found)}) + "\n"


def _lines(found: Mapping[str, Any]) -> str:
    """JSON with a line per entry, and one per tensor and file."""
    parts = []
    for key, value in found.items():
        text = json.dumps(value, allow_nan=False)
        if key == "tensors" and value:
            text = "{\n" + ",\n".join(f"  {json.dumps(n)}: {json.dumps(t)}" for n, t in value.items()) + "\n }"
        elif key == "files" and value:
            text = "[\n" + ",\n".join(f"  {json.dumps(f)}" for f in value) + "\n ]"
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}"


def _checksum(found: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk, its manifest read and compared with the sizes of its files."""

    folder: Path
    manifest: Manifest

    def verify(self, files: tuple[File, ...] | None = None) -> None:
        """Compare contents of `files` (all) with their checksums. Raises HapError HAP751."""
        for file in self.manifest.files if files is None else files:
            path = self.folder / file.name
            try:
                with path.open("rb") as stream:
                    found = hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError as problem:
                raise torn(path, problem.strerror or str(problem)) from None
            if found != file.sha256:
                raise torn(path, "its contents have changed since it was written (SHA-256 differs)")


def torn(path: Path, reason: str) -> HapError:
    """A file of a checkpoint that isn't what was written."""
    return error("HAP751", f"{path} is damaged: {reason}", Span(str(path)), _older(path.parent))


def _older(folder: Path) -> str:
    """Which checkpoint to take instead."""
    number = step_of(folder)
    others = [s for s in steps(folder.parent) if number is None or s < number]
    if others:
        return f"resume from the one before: --resume {folder_of(folder.parent, others[-1])}"
    return "there is no older checkpoint beside it: take a copy, or start anew"


def folder_of(base: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return base / f"step-{step:08d}"


def step_of(folder: Path) -> int | None:
    """The step that a folder's name gives, None for another name."""
    match = _STEP.fullmatch(folder.name)
    return int(match[1]) if match else None


def steps(base: Path) -> list[int]:
    """The steps of which there are whole checkpoints in a folder, in order. Unfinished ones have other names."""
    if not base.is_dir():
        return []
    try:
        found = [step for p in base.iterdir() if (step := step_of(p)) is not None and (p / MANIFEST).is_file()]
    except OSError:
        return []
    return sorted(found)


def find(path: str | Path) -> Checkpoint:
    """The checkpoint that a path names: itself, or the newest one in it.

    Raises HapError: HAP750 there is none, HAP751 torn, HAP752 not one of ours.
    """
    base = Path(path)
    if (base / MANIFEST).is_file():
        return read(base)
    there = steps(base)
    if there:
        return read(folder_of(base, there[-1]))
    where = Span(str(base))
    if base.is_dir() and step_of(base) is not None:
        raise error("HAP751", f"{base} is damaged: {MANIFEST} is missing", where, _older(base))
    reason = (
        "there is no such folder" if not base.exists() else "it is no folder" if not base.is_dir() else "it holds none"
    )
    raise error(
        "HAP750", f"no checkpoint in {base}: {reason}", where, "a run writes them with --checkpoint DIR --every N"
    )


def read(folder: Path) -> Checkpoint:
    """A checkpoint's manifest, checked in itself and against the sizes of the files. Raises HapError HAP751, HAP752."""
    path = folder / MANIFEST
    try:
        size = path.stat().st_size
        if size > LARGEST_MANIFEST:
            raise torn(path, f"{size} bytes are too many for a manifest")
        raw = path.read_bytes()
    except OSError as problem:
        raise torn(path, problem.strerror or str(problem)) from None
    manifest = parse(raw, path)
    for file in manifest.files:
        part = folder / file.name
        try:
            found = part.stat().st_size
        except FileNotFoundError:
            raise torn(part, "it is missing") from None
        except OSError as problem:
            raise torn(part, problem.strerror or str(problem)) from None
        if found != file.bytes:
            raise torn(part, f"it has {found} bytes, {file.bytes} were written")
    return Checkpoint(folder, manifest)


def parse(raw: bytes, path: Path) -> Manifest:
    """A manifest from its bytes. Raises HapError: HAP752 nothing that hapdsl wrote, or a later version; HAP751 damaged."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as problem:
        raise torn(path, f"it is no JSON ({str(problem).splitlines()[0]})") from None
    where = Span(str(path))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise error(
            "HAP752",
            f"{path} is no manifest of a checkpoint of hapdsl",
            where,
            "name the folder that `--checkpoint` wrote to",
        )
    if found.get("version") != VERSION:
        raise error("HAP752", f"{path} has version {found.get('version')!r}, this hapdsl reads {VERSION}", where, "resume with the hapdsl that wrote it")  # fmt: skip
    checksum = found.pop("checksum", None)
    try:
        if checksum != _checksum(found):
            raise torn(path, "it has changed since it was written (its checksum differs)")
        manifest = _manifest(found)
        _consistent(manifest)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as problem:
        raise torn(path, f"it says nothing sensible: {type(problem).__name__} {problem}") from None
    return manifest


def _manifest(d: dict[str, Any]) -> Manifest:
    shares = {
        str(cls): tuple((tuple(map(_count, axes)), tuple(map(_count, units))) for axes, units in cuts)
        for cls, cuts in d["shares"].items()
    }
    return Manifest(
        step=_count(d["step"]),
        seed=_count(d["seed"]),
        data=str(d["data"]),
        model=str(d["model"]),
        model_fingerprint=str(d["model_fingerprint"]),
        program=str(d["program"]),
        program_fingerprint=str(d["program_fingerprint"]),
        hapdsl=str(d["hapdsl"]),
        mesh=tuple((str(name), _count(size)) for name, size in d["mesh"]),
        shares=shares,
        tensors={str(n): _saved(str(n), t) for n, t in d["tensors"].items()},
        files=tuple(File(str(f["name"]), _count(f["bytes"]), str(f["sha256"])) for f in d["files"]),
        extra={str(k): _number(v) for k, v in d["extra"].items()},
    )


def _saved(name: str, d: dict[str, Any]) -> Saved:
    copies = tuple(
        Copy(
            str(c["value"]),
            tuple(
                Piece(_count(p["rank"]), tuple(map(_count, p["offsets"])), tuple(map(_count, p["lengths"])))
                for p in c["pieces"]
            ),
        )
        for c in d["copies"]
    )
    return Saved(name, str(d["kind"]), str(d["dtype"]), tuple(map(_count, d["shape"])), copies)


def _count(x: Any) -> int:
    if isinstance(x, bool) or not isinstance(x, int) or not 0 <= x < 2**63:
        raise ValueError(f"{x!r} is no count")
    return x


def _number(x: Any) -> float:
    if isinstance(x, bool) or not isinstance(x, int | float) or not -1e300 < x < 1e300:
        raise ValueError(f"{x!r} is no number")
    return float(x)


def _consistent(manifest: Manifest) -> None:
    """Raises ValueError where sizes contradict one another: then nothing of it may be read."""
    content = [0] * len(manifest.files)
    for k, file in enumerate(manifest.files):
        if not _FILE.fullmatch(file.name) or file.name != file_name(k) or not _HASH.fullmatch(file.sha256):
            raise ValueError(f"file {file.name!r}")
    for tensor in manifest.tensors.values():
        if tensor.dtype not in DTYPE_BYTES or not tensor.copies:
            raise ValueError(f"tensor {tensor.name!r}")
        for copy in tensor.copies:
            for p in copy.pieces:
                inside = len(p.offsets) == len(p.lengths) == len(tensor.shape) and all(
                    o + n <= whole for o, n, whole in zip(p.offsets, p.lengths, tensor.shape, strict=True)
                )
                if not inside or p.rank >= len(content):
                    raise ValueError(f"a piece of {tensor.name!r}")
                content[p.rank] += p.volume * DTYPE_BYTES[tensor.dtype]
    for file, size in zip(manifest.files, content, strict=True):
        if not size <= file.bytes <= size + 8 + LARGEST_HEADER:
            raise ValueError(f"{file.name} of {file.bytes} bytes for {size} bytes of tensors")


def file_name(rank: int) -> str:
    """The file that a rank writes."""
    return f"rank-{rank}.safetensors"
