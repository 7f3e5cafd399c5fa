"""The other side of the explorer: a process that checks, prices, formats and plans, one JSON object a line.

`python -m hapdsl.explore.service` reads requests from stdin and writes answers to stdout. It ends when its input does, so nothing is left
behind however the screen ends. The functions can be called directly, too.

    {"id": 1, "do": "check", "path": …, "text": …, "cluster": null}     one answer: an analysis
    {"id": 2, "do": "format", "path": …, "text": …}                     one answer: {"text": …} or {"findings": […]}
    {"id": 3, "do": "plan", "path": …, "text": …, "model": …, …}        several answers; the last one has "done": true
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]
Say = Callable[[Object], None]


def answer(request: Object, say: Say) -> None:
    """Do what a request asks and say its answers; whatever goes wrong is an answer as well."""
    number = request.get("id")

    def reply(found: Object) -> None:
        say({"id": number, **found})

    try:
        match request.get("do"):
            case "check":
                from hapdsl.explore.analyse import analyse

                reply({"analysis": analyse(request["text"], request["path"], request.get("cluster")), "done": True})
            case "format":
                from hapdsl.explore.analyse import formatted

                reply({**formatted(request["text"], request["path"]), "done": True})
            case "plan":
                from hapdsl.explore.planning import plan

                plan(request, reply)
            case other:
                reply({"failed": f"unknown request {other!r}", "done": True})
    except RecursionError:
        reply({"failed": "nested too deeply", "done": True})
    except Exception as problem:
        traceback.print_exc(file=sys.stderr)
        reply({"failed": f"{type(problem).__name__}: {problem}"[:500], "done": True})


def main() -> int:
    """Answer requests in order until the input ends."""
    # Answers go to the real stdout; whatever else prints goes to stderr.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    requests: list[Object] = []
    waiting = threading.Condition()

    def listen() -> None:
        for line in sys.stdin:
            try:
                request = json.loads(line)
            except ValueError:
                continue
            with waiting:
                requests.append(request)
                waiting.notify()
        os._exit(0)  # whoever asked is gone

    def say(found: Object) -> None:
        try:
            out.write(json.dumps(found, allow_nan=False) + "\n")
            out.flush()
        except (BrokenPipeError, ValueError):
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    if "--later" in sys.argv:
        os.nice(5)  # a search makes way for typing
    while True:
        with waiting:
            waiting.wait_for(lambda: bool(requests))
            request = requests.pop(0)
        answer(request, say)


if __name__ == "__main__":
    sys.exit(main())
