"""The explorer: the screen with all its actions, and how it is started."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from hapdsl.explore import disk, journal
from hapdsl.explore.beside import Beside
from hapdsl.explore.bringing import Bring, Bringing
from hapdsl.explore.bringing import session_of as waiting_session
from hapdsl.explore.clocking import Clocking
from hapdsl.explore.dealing import Dealing
from hapdsl.explore.going import Going
from hapdsl.explore.session import Session
from hapdsl.explore.settings import FILE, folder, read
from hapdsl.explore.state import Document


class ExploreApp(Going, Dealing, Clocking, Beside, Bringing):
    """Every action of the registry is a method of one of these."""

    def end(self, status: int) -> None:
        """End though nobody has asked for that at the screen: what is unsaved is kept for the next session."""
        self.keep_journal()
        self.exit(status, return_code=status)


def session_of(path: str | Path) -> Session:
    """A session with one file open. Raises HapError (HAP120 to HAP123) where it can't be read."""
    text = disk.read(Path(path))
    session = Session()
    session.open(Document("file", text, path=Path(path), saved=text))
    return session


def run(
    path: str,
    model: str | None = None,
    cluster: str | None = None,
    settings: dict[str, Any] | None = None,
    trace: str | None = None,
    theme: str | None = None,
    bring: Bring | None = None,
) -> int:
    """Open `path` in the explorer, or what `bring` imports, with a measured `trace` if one is given; returns the exit status.

    Raises HapError: HAP120 to HAP123 for a file that can't be read, HAP820 where there is no terminal.
    """
    session = session_of(path) if bring is None else waiting_session(bring)
    if not _has_a_screen():
        from hapdsl.lang.diagnostics import error

        raise error("HAP820", "the explorer needs a terminal", help="hapdsl check, cost and plan answer without one")
    options = read(folder() / FILE)
    if theme is not None:
        options.theme = theme
    app = ExploreApp(
        session, model, cluster, settings, search=bring is None, trace=trace, options=options, journals=journal.folder()
    )
    app.bring = bring
    app.at_rest = lambda: _at_rest(app)
    app.run()
    return app.return_code or 0


def _at_rest(app: ExploreApp) -> None:
    # Modules and their classes stay: looking through them for garbage would hold a key up by some 80 ms.
    gc.freeze()
    # Else the terminal would be left as it is, and what was started would go on. Event loops of Windows, which has no SIGTERM, take no handlers.
    with suppress(NotImplementedError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, app.end, 128 + signal.SIGTERM)


def _has_a_screen() -> bool:
    """Is there a terminal, or whoever Textual was told to draw for (a browser, with --web)?"""
    if os.environ.get("TEXTUAL_DRIVER"):
        return True
    return all(stream is not None and stream.isatty() for stream in (sys.__stdin__, sys.__stderr__))
