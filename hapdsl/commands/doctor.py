"""`hapdsl doctor`: what is installed, what works here, and what to do about the rest."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata

import click

from hapdsl.commands.output import Output, json_option

# (distribution, what it is for, does planning need it)
PACKAGES = (
    ("lark", "reading the language", True),
    ("numpy", "everything that has a price", True),
    ("scipy", "the share programs (HiGHS)", True),
    ("rich", "tables and progress", True),
    ("torch", "run, import, check --numeric", False),
    ("safetensors", "checkpoints", False),
    ("textual", "explore", False),
    ("graphviz", "draw", False),
    ("scikit-learn", "make demo, run --data digits", False),
    ("pygls", "hapdsl lsp", False),
    ("textual-serve", "hapdsl explore --web", False),
    ("transformers", "the tests of import", False),
    ("timm", "the tests of import", False),
)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: `state` is "ok", "missing" (something can't be done) or "broken" (nothing can)."""

    what: str
    state: str
    found: str
    advice: str = ""


@click.command("doctor")
@json_option
@click.pass_obj
def command(out: Output) -> int:
    """Say what is installed, what works here, and what to do. Status 1 where hapdsl can't even plan."""
    found = list(findings())
    broken = any(f.state == "broken" for f in found)
    marks = {"ok": "+", "missing": "-", "broken": "!"}
    width = max(len(f.what) for f in found)
    lines = []
    for f in found:
        lines.append(f"{marks[f.state]} {f.what:<{width}}  {f.found}")
        lines += [f"  {'':<{width}}  {f.advice}"] if f.advice else []
    out.data({"ok": not broken, "findings": [asdict(f) for f in found]}, "\n".join(lines))
    return int(broken)


def findings() -> Iterator[Finding]:
    """All that is looked at, in the order it is shown."""
    from hapdsl import __version__

    python = platform.python_version()
    old = sys.version_info < (3, 11)
    yield Finding(
        "hapdsl",
        "broken" if old else "ok",
        f"{__version__}, Python {python}",
        "Python 3.11 or newer is needed" if old else "",
    )
    yield _data()
    for name, purpose, needed in PACKAGES:
        try:
            yield Finding(name, "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(name, "broken" if needed else "missing", f"not installed ({purpose})", f"pip install {name}")
    yield _torch()
    yield _dot()
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    note = "" if compiler else "only `run --compile` wants a C++ compiler"
    yield Finding("compiler", "ok" if compiler else "missing", compiler or "none on PATH", note)
    yield _machine()
    colours = os.environ.get("COLORTERM", "") in ("truecolor", "24bit") or "256" in os.environ.get("TERM", "")
    size = shutil.get_terminal_size()
    what = f"{os.environ.get('TERM') or 'no TERM'}, {size.columns}x{size.lines}"
    small = size.columns < 80 or size.lines < 24
    yield Finding(
        "terminal", "ok", what, "explore looks best from 80x24 and 256 colours up" if small or not colours else ""
    )


def _data() -> Finding:
    from hapdsl.lang.resources import grammar_file, programs_folder, theory_folder

    lost = [str(p) for p in (grammar_file(), programs_folder(), theory_folder()) if not p.exists()]
    if lost:
        return Finding("grammar and theory", "broken", f"not found: {', '.join(lost)}", "install hapdsl again")
    return Finding("grammar and theory", "ok", str(grammar_file().parent.parent))


def _torch() -> Finding:
    """What torch can do here. It is imported by another process: it takes seconds, and a broken one may end it."""
    code = (
        "import torch, torch.distributed as d\n"
        "cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0\n"
        "names = sorted({torch.cuda.get_device_name(i) for i in range(cuda)})\n"
        "print(('gloo ' if d.is_available() and d.is_gloo_available() else '') + ('nccl' if d.is_available() and d.is_nccl_available() else ''))\n"
        "print(cuda, *names, sep='; ')\n"
    )
    try:
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError) as problem:
        said = (getattr(problem, "stderr", None) or "").strip().splitlines() or [type(problem).__name__]
        return Finding("torch backends", "missing", f"torch can't be imported: {said[-1][:200]}", "pip install torch")
    backends, _, devices = ran.stdout.strip("\n").partition("\n")
    count, _, names = devices.partition("; ")
    gpus = f"{count} GPU{'s' * (count != '1')}{': ' + names if names else ''}"
    if not backends.strip():
        return Finding(
            "torch backends",
            "missing",
            f"no backend; {gpus}",
            "this torch was built without torch.distributed: install another build",
        )
    return Finding("torch backends", "ok", f"{', '.join(backends.split())}; {gpus}")


def _dot() -> Finding:
    path = shutil.which("dot")
    if path is None:
        return Finding(
            "dot",
            "missing",
            "not on PATH (pictures)",
            "apt install graphviz, or brew install graphviz; .dot files are written without it",
        )
    ran = subprocess.run([path, "-V"], capture_output=True, text=True, check=False)
    return Finding("dot", "ok", (ran.stderr or ran.stdout).strip().removeprefix("dot - "))


def _machine() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = ""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB memory"
    what = "s" if cores > 1 else ""
    return Finding("machine", "ok", f"{cores} core{what}{memory}, {platform.system()} {platform.machine()}")
