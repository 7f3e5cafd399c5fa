"""`python docs/walk.py PAGE…`: walk through a page's commands in an empty folder and write what they really print into the page.

In a page, an indented block that follows a line "`NAME`:" is a file, and an indented block whose first line begins with "$ " is a session at the
terminal: each "$ " line is run by bash, all other lines are replaced by what it prints. With --check nothing is written, and anything that
differs in more than numbers fails.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

INDENT = "    "


def blocks(lines: list[str]) -> Iterator[tuple[int, int]]:
    """(first, behind the last) of each indented block; blank lines inside belong to it."""
    start = None
    for n, line in enumerate([*lines, "end"]):
        if line.startswith(INDENT):
            start = n if start is None else start
        elif line.strip() and start is not None:
            stop = n
            while not lines[stop - 1].strip():
                stop -= 1
            yield start, stop
            start = None


def plain(block: list[str]) -> list[str]:
    return [line.removeprefix(INDENT) for line in block]


def run(command: str, folder: Path) -> list[str]:
    """What a command prints, on both streams. Raises RuntimeError with it where nothing of hapdsl answered."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(folder), "COLUMNS": "140", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"{command}: status {done.returncode}\n{done.stdout}")
    return [line.rstrip() for line in done.stdout.rstrip("\n").split("\n")]


def walked(page: str) -> str:
    """The page with all sessions run anew."""
    lines = page.split("\n")
    result: list[str] = []
    behind = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for start, stop in blocks(lines):
            result += lines[behind:start]
            behind = stop
            block = plain(lines[start:stop])
            titles = [line for line in lines[:start] if line.strip()][-1:]
            file = re.fullmatch(r".*`([\w.]+)`:", titles[0]) if titles else None
            if block[0].startswith("$ "):
                for command in (line for line in block if line.startswith("$ ")):
                    printed = run(command.removeprefix("$ "), folder)
                    result += [(INDENT + line).rstrip() for line in [command, *printed] if line or printed != [""]]
            else:
                if file:
                    (folder / file[1]).write_text("\n".join(block) + "\n", encoding="utf-8")
                result += lines[start:stop]
    return "\n".join([*result, *lines[behind:]])


def masked(page: str) -> list[str]:
    """A page's lines without what may differ from machine to machine: numbers with their units, and how wide columns are for them."""
    words = re.sub(r"[-+]?\d[\d.,e+-]*( ?(us|ms|s|KiB|MiB|GiB|%)\b)?", "0", page)
    return [re.sub(r"[ ━]+", " ", line).rstrip() for line in words.split("\n")]


def main() -> int:
    """Walk through pages; 1 if --check finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    differs = False
    for path in options.pages:
        page = path.read_text(encoding="utf-8")
        again = walked(page)
        if not options.check:
            path.write_text(again, encoding="utf-8")
        else:
            found = list(
                difflib.unified_diff(masked(page), masked(again), str(path), f"{path}, run now", n=0, lineterm="")
            )
            differs = differs or bool(found)
            print("\n".join(found))
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
