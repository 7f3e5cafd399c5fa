"""The other side of the explorer: a process that checks, prices, formats and plans, one JSON object a line.

`python -m hapdsl.explore.service` reads requests from stdin and writes answers to stdout. It ends when its input does, so nothing is left
behind however the screen ends. The functions can be called directly, too.

    {"id": 1, "do": "check", "path": …, "text": …, "cluster": null}     one answer: an analysis
    {"id": 2, "do": "format", "path": …, "text": …}                     one answer: {"text": …} or {"findings": […]}
    {"id": 3, "do": "plan", "path": …, "text": …, "model": …, …}        several answers; the last one has "done": true
    {"id": 4, "do": "line", "path": …, "version": 7, "program": …, …}   a question about a text that was sent before (`asking`);
                                                                        {"lost": true} where it has to be sent again

A text is named by its path and version; where several stand at one path, `document` tells them apart.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hapdsl.explore.desk import Desk

Object = dict[str, Any]
Say = Callable[[Object], None]


def answer(request: Object, say: Say, desk: Desk | None = None, waiting: Callable[[], bool] = lambda: False) -> None:
    """Do what a request asks and say its answers; whatever goes wrong is an answer as well.

    `desk` keeps what was worked out; `waiting()` says whether somebody else wants something, for whom long answers are cut short.
    """
    from hapdsl.explore.desk import Desk, Lost
    from hapdsl.lang.diagnostics import HapError

    number = request.get("id")
    desk = desk or Desk()

    def reply(found: Object) -> None:
        say({"id": number, **found})

    try:
        match request.get("do"):
            case "check":
                from hapdsl.explore.analyse import analyse

                found = analyse(
                    request["text"],
                    request["path"],
                    request.get("cluster"),
                    desk,
                    int(request.get("version", 0)),
                    request.get("since"),
                    request.get("document"),
                )
                reply({"analysis": found, "done": True})
            case "format":
                from hapdsl.explore.analyse import formatted

                reply({**formatted(request["text"], request["path"]), "done": True})
            case "plan":
                from hapdsl.explore.planning import plan

                plan(request, reply)
            case other:
                from hapdsl.explore.asking import ask

                if not ask(str(other), desk, request, reply, waiting):
                    reply({"failed": f"unknown request {other!r}", "done": True})
    except Lost:
        reply({"lost": True, "done": True})
    except HapError as stop:
        from hapdsl.explore.analyse import finding

        reply({"findings": [finding(d, str(request.get("path", ""))) for d in stop.diagnostics], "done": True})
    except RecursionError:
        reply({"failed": "nested too deeply", "done": True})
    except Exception as problem:
        traceback.print_exc(file=sys.stderr)
        reply({"failed": f"{type(problem).__name__}: {problem}"[:500], "done": True})


def main() -> int:
    """Answer requests in order until the input ends."""
    # ctrl+c is meant for whoever has the terminal; the application ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
        line = json.dumps(found, allow_nan=False)  # what raises is told by `answer`
        try:
            out.write(f"{line}\n")
            out.flush()
        except (BrokenPipeError, ValueError):  # nobody reads any more
            os._exit(0)

    from hapdsl.explore.desk import Desk

    desk = Desk()
    met: set[object] = set()  # files that were checked before
    threading.Thread(target=listen, daemon=True).start()
    if "--later" in sys.argv:
        os.nice(5)  # a search makes way for typing
    while True:
        with waiting:
            waiting.wait_for(lambda: bool(requests))
            request = requests.pop(0)
        topic = request.get("topic")
        if topic is not None and any(later.get("topic") == topic for later in requests):
            say({"id": request.get("id"), "dropped": True, "done": True})  # nobody waits for this one
            continue
        if request.get("do") != "check":
            answer(request, say, desk, lambda: bool(requests))
            continue
        gc.disable()  # somebody types: looking for garbage among graphs would take longer than the answer
        answer(request, say, desk, lambda: bool(requests))
        if request.get("path") not in met:
            met.add(request.get("path"))
            gc.collect()
            gc.freeze()  # what was built of a file stays for as long as that is open
        gc.enable()


if __name__ == "__main__":
    sys.exit(main())
