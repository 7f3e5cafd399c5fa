"""`python -m tests.fuzz [--seconds S] [--seed N]`: broken texts for the parser, the model builder and the verifier, for as long as asked.

Every file under programs/ and tests/ is a start; a few random edits (characters, words, lines, pieces of other files) break it. Whatever comes out, the
answer must be diagnostics with codes, in time. A text that gives anything else is written to build/fuzz/, with the seed that made it, and
the exit status is 1. This is for nights; tests/lang and tests/check have the same ideas in small.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable

from hapdsl.lang.codes import CODES
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.parse import parse
from hapdsl.lang.print import to_text
from hapdsl.workbench import Workbench
from tests.texts import PROGRAMS, REPOSITORY

FOUND = REPOSITORY / "build" / "fuzz"
SECONDS_EACH = 20  # for one text, on a busy machine
LARGEST = 20_000  # characters of a start
SIGNS = [
    *"(){}[]@=,:;.*+-/#\"'?<>|\\ \n\t0123456789",
    "é",
    "\u202e",
    "\x00",
    "1e400",
    "-1",
    "99999999999999999999",
    "P",
    "R",
    "S(0)",
    "S(-1)",
    "?",
    "...",
]


class TooLong(Exception):
    """A text that wasn't answered in time."""


def starts() -> list[str]:
    """All texts of the language in the repository that aren't long."""
    files = sorted(
        [
            *PROGRAMS.rglob("*.hap"),
            *(REPOSITORY / "tests").rglob("*.hap"),
            *(REPOSITORY / "hapdsl").rglob("*.hap"),
        ]
    )
    found = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [text] if len(text) <= LARGEST else []
    return found


def edited(text: str, texts: list[str], rng: random.Random) -> str:
    """A text with one edit."""
    lines, words, place = text.split("\n"), text.split(), rng.randrange(len(text) + 1)
    n, end = rng.randrange(len(lines)), min(len(text), place + rng.randint(1, 12))
    edits: list[Callable[[], str]] = [
        lambda: text[:place] + rng.choice(SIGNS) + text[place:],
        lambda: text[:place] + text[end:],
        lambda: text[:place] + text[place:end] * rng.randint(2, 5) + text[end:],
        lambda: "\n".join(lines[:n] + lines[n + 1 :]),
        lambda: "\n".join([*lines[: n + 1], lines[rng.randrange(len(lines))], *lines[n + 1 :]]),
        lambda: text.replace(rng.choice(words), rng.choice(words), rng.randint(1, 3)) if words else text,
        lambda: text[:place] + rng.choice(rng.choice(texts).split("\n")) + "\n" + text[place:],
    ]
    return rng.choice(edits)()


def broken(text: str, texts: list[str], rng: random.Random) -> str:
    """A text with one to six edits."""
    for _ in range(rng.randint(1, 6)):
        text = edited(text, texts, rng)
    return text


def answer(text: str) -> set[str]:
    """The codes of all that is wrong with a text; raises what shouldn't be."""
    codes: set[str] = set()

    def asked(question: Callable[[], object]) -> None:
        try:
            question()
        except HapError as stop:
            codes.update(d.code for d in stop.diagnostics)

    def printed() -> None:
        tree = parse(text, "fuzz.hap")
        assert parse(to_text(tree), "again.hap") == tree, "what is printed isn't what was read"

    asked(printed)

    def checked() -> None:
        bench = Workbench("fuzz.hap", text)
        for name in bench.bundle.models:
            asked(lambda name=name: bench.graph(name))
        for name in bench.bundle.clusters:
            asked(lambda name=name: bench.cluster(name))
        for tree in bench.programs():
            asked(lambda tree=tree: codes.update(d.code for d in bench.checked(tree).diagnostics))

    asked(checked)
    assert codes <= CODES.keys(), f"no such codes: {codes - CODES.keys()}"
    return codes


def alarm(*_: object) -> None:
    raise TooLong(f"no answer within {SECONDS_EACH} s")


def main() -> int:
    """Break texts until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    options = parser.parse_args()
    texts = starts()
    until, number, seen, faults = time.monotonic() + options.seconds, 0, set[str](), 0
    signal.signal(signal.SIGALRM, alarm)
    while time.monotonic() < until:
        seed = options.seed + number
        number += 1
        rng = random.Random(seed)
        text = broken(rng.choice(texts), texts, rng)
        signal.alarm(SECONDS_EACH)
        try:
            seen |= answer(text)
        except Exception as problem:
            faults += 1
            FOUND.mkdir(parents=True, exist_ok=True)
            file = FOUND / f"{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}.hap"
            file.write_text(text, encoding="utf-8", errors="replace")
            print(f"{file} (seed {seed}): {type(problem).__name__}: {problem}", file=sys.stderr)
            traceback.print_exc(limit=-3)
        finally:
            signal.alarm(0)
    print(f"{number:,} texts from seed {options.seed}, {len(seen)} of {len(CODES)} codes met, {faults} faults")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
