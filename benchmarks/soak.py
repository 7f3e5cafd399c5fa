"""`python -m benchmarks.soak`: kill a run at random, again and again, and see that nothing is lost.

A run of four ranks writes checkpoints all the time. Each round it is started from the newest one, and at a random moment something happens to it:
one rank is killed, or two are, or the process that started them, or a rank is stopped, or the disk is full. Each time

  - all of its processes have ended within 30 seconds,
  - it ended with a status that isn't 0 and one message with a code (unless it was killed itself),
  - the newest checkpoint is whole, by its checksums, and not older than the newest before,
  - and what it holds is, bit by bit, what a run that nobody disturbs has at that step (in every tenth round, and at the end).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # ranks whose parent is killed would say so at length

import torch

from benchmarks.process import alive
from hapdsl.graph.program import Program
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.resources import programs_folder
from hapdsl.run import checkpoint_read
from hapdsl.run.checkpoint import Checkpoint, find, steps
from hapdsl.run.checkpoint_write import Saving
from hapdsl.run.train import train
from hapdsl.workbench import Workbench

ENDS_S = 30.0
MANY = 10_000_000  # steps: no round comes to their end
EVERY, KEEP, REPLAY = 3, 2, 10
LATER = 0.8  # in so many rounds nothing happens before a checkpoint has been written
# What happens, and how often. A rank that is stopped takes a quarter of a minute to be missed.
EVENTS = {"kill a rank": 60, "kill two ranks": 10, "kill the parent": 15, "stop a rank": 5, "fill the disk": 10}
CODES: dict[str, set[str | None]] = {
    "kill a rank": {"HAP720"}, "kill two ranks": {"HAP720"}, "kill the parent": {None}, "stop a rank": {"HAP760"}, "fill the disk": {"HAP754"},
}  # fmt: skip


@dataclass
class Round:
    """One start of the run and its end: after `seconds` from the event, with the `status` of the process that started the ranks (None where it
    had to be ended), at the newest checkpoint's step. `parent` says whether that process itself was killed."""

    event: str
    seconds: float
    parent: bool
    status: int | None
    code: str | None
    message: str
    step: int = 0


@dataclass
class Soak:
    """All rounds, and what went wrong: nothing, if all is well."""

    rounds: list[Round] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    replayed: int = 0

    def summary(self) -> dict[str, Any]:
        seconds = [r.seconds for r in self.rounds]
        return {
            "rounds": len(self.rounds),
            "events": dict(Counter(r.event for r in self.rounds)),
            "codes": dict(Counter(str(r.code) for r in self.rounds)),
            "ends_s": {"median": round(statistics.median(seconds), 2), "largest": round(max(seconds), 2)},
            "steps": self.rounds[-1].step,
            "rounds_replayed": self.replayed,
            "wrong": self.wrong,
        }


def program() -> Program:
    """Four ranks, parameters and state in shards of different size."""
    bench = Workbench(programs_folder() / "plans" / "mlp_zero.hap")
    return bench.proven(bench.program()).program


def soak(folder: Path, rounds: int, round_s: float, seed: int, events: dict[str, int] = EVENTS) -> Soak:
    """`rounds` rounds of up to `round_s` seconds each, in a folder of their own."""
    draw, found, what = random.Random(seed), Soak(), program()
    base = folder / "checkpoints"
    for number in range(rounds):
        before = _newest(base)
        kept = None
        if before is not None:
            kept = Path(shutil.copytree(before.folder, folder / "before", dirs_exist_ok=True))
        event = draw.choices(list(events), list(events.values()))[0]
        done = _round(what, base, event, draw.uniform(0, round_s), draw, folder / "said", found.wrong)
        found.rounds.append(done)
        after = _check(base, before, done, f"round {number} ({event})", found.wrong)
        last = number == rounds - 1
        if after is not None and (last or draw.randrange(REPLAY) == 0):
            found.replayed += 1
            if not _same(what, kept, after, folder / "replay"):
                found.wrong.append(
                    f"round {number} ({event}): step {after.manifest.step} isn't what an undisturbed run has"
                )
        if kept is not None:
            shutil.rmtree(kept)
    return found


def _newest(base: Path) -> Checkpoint | None:
    return find(base) if steps(base) else None


def _round(
    what: Program, base: Path, event: str, wait_s: float, draw: random.Random, said: Path, wrong: list[str]
) -> Round:
    said.write_text("")
    ranks: list[int] = []
    parent = os.fork()
    if parent == 0:
        _run(what, base, event == "fill the disk", draw, said)
    had, later = steps(base), draw.random() < LATER
    until = time.monotonic() + ENDS_S
    while time.monotonic() < until and alive(parent):
        ranks = _children(parent)
        if len(ranks) >= what.layout.devices and not (later and steps(base) == had):
            break
        time.sleep(0.02)
    time.sleep(wait_s)  # the ranks meet, load, train, and write
    killed = _happen(event, parent, ranks, draw)
    began = time.monotonic()
    status, code, message = None, None, ""
    while time.monotonic() - began < ENDS_S:
        if status is None:
            ended, found = os.waitpid(parent, os.WNOHANG)
            status = os.waitstatus_to_exitcode(found) if ended else None
        if status is not None and not any(map(alive, ranks)):
            break
        time.sleep(0.05)
    seconds = time.monotonic() - began
    left = [pid for pid in [*ranks, *([parent] if status is None else [])] if alive(pid)]
    if left:
        wrong.append(f"{event}: {len(left)} processes were there after {ENDS_S:.0f} s")
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if said.read_text():
        code, message = json.loads(said.read_text())
    return Round(event, seconds, killed, status, code, message)


def _train(what: Program, steps: int, resume: Path | Checkpoint | None, saving: Saving) -> None:
    train(what, what.layout.devices, steps, "digits", dtype=torch.float64, collect=False, resume=resume, saving=saving)


def _run(what: Program, base: Path, full: bool, draw: random.Random, said: Path) -> None:
    """The run, in a process of its own; what it says goes to a file."""
    status = 70
    try:
        os.setpgid(0, 0)
        torch.set_num_threads(1)
        start = _newest(base)
        if full:  # a file of a checkpoint may not be that large, which the system says as it does on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (draw.randrange(1000, 40_000), resource.RLIM_INFINITY))
        _train(what, MANY, start, Saving(base, EVERY, KEEP))
    except HapError as stop:
        status = stop.status
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        said.write_text(json.dumps([stop.diagnostics[0].code, stop.diagnostics[0].message]))
    except BaseException as problem:
        said.write_text(json.dumps([type(problem).__name__, str(problem)]))
    finally:
        os._exit(status)


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return sorted(int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return []


def _happen(event: str, parent: int, ranks: list[int], draw: random.Random) -> bool:
    """Do it, and say whether the process that started the ranks was killed: it is where there are no ranks yet, too."""
    if event == "kill the parent" or (not ranks and event != "fill the disk"):
        victims, number = [parent], signal.SIGKILL
    elif event == "fill the disk":
        return False
    else:
        victims = draw.sample(ranks, min(len(ranks), 2 if event == "kill two ranks" else 1))
        number = signal.SIGSTOP if event == "stop a rank" else signal.SIGKILL
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    return victims == [parent]


def _check(base: Path, before: Checkpoint | None, done: Round, name: str, wrong: list[str]) -> Checkpoint | None:
    """The newest checkpoint, whole and no older than before; the run's last words."""
    if done.code not in (CODES["kill the parent"] if done.parent else CODES[done.event]):
        wrong.append(f"{name}: {done.code} {done.message}")
    if done.status == 0:
        wrong.append(f"{name}: it ended with status 0")
    try:
        after = _newest(base)
        if after is not None:
            after.verify()
            done.step = after.manifest.step
    except HapError as stop:
        wrong.append(f"{name}: {stop}")
        return None
    if before is not None and (after is None or after.manifest.step < before.manifest.step):
        wrong.append(f"{name}: the checkpoint of step {before.manifest.step} is lost")
    return after


def _same(what: Program, before: Path | None, after: Checkpoint, folder: Path) -> bool:
    """Does a run that nobody disturbs, from the checkpoint before, come to the same numbers?"""
    if before is not None and find(before).manifest.step == after.manifest.step:
        return True
    shutil.rmtree(folder, ignore_errors=True)
    last = after.manifest.step
    _train(what, last, before, Saving(folder, last, 1))
    mine, theirs = checkpoint_read.tensors(find(folder)), checkpoint_read.tensors(after)
    return set(mine) == set(theirs) and all(torch.equal(mine[name], theirs[name]) for name in mine)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100, help="how often something happens (default: 100)")
    parser.add_argument("--minutes", type=float, default=20.0, help="about how long all of it takes (default: 20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", help="write the summary here, as JSON")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hapdsl-soak-") as folder:
        # a round waits half its time on average, and spends some seconds on starting and ending
        found = soak(Path(folder), asked.rounds, 2 * max(0.5, asked.minutes * 60 / asked.rounds - 4), asked.seed)
    summary = {"minutes": round((time.monotonic() - began) / 60, 1), "seed": asked.seed, **found.summary()}
    text = json.dumps(summary, indent=2)
    print(text)
    if asked.output:
        Path(asked.output).write_text(text + "\n")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
