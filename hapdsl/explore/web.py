"""The explorer in a browser: `hapdsl explore --web`, through textual-serve, an optional part.

Each page that is opened gets an explorer in a process of its own, which ends with the page. A page can read and write whatever its user can,
so it is served on this machine only unless somebody says otherwise, and only to pages that came from here: a browser sends the
requests of any site that it shows, which is why hosts and origins are looked at.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from aiohttp import web
from textual_serve.server import Server

from hapdsl.explore.workers import environment
from hapdsl.lang.diagnostics import error

HOST, PORT = "127.0.0.1", 8000
LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class OwnPages(Server):
    """A server whose pages are asked for by itself only. `tell` says what a person should know."""

    def __init__(self, arguments: Sequence[str], host: str, port: int, tell: Callable[[str], None]) -> None:
        name = socket.gethostname() if host in EVERYWHERE else f"[{host}]" if ":" in host else host
        command = shlex.join([sys.executable, "-m", "hapdsl", "explore", *arguments])
        super().__init__(command, host, port, title="hapdsl explore", public_url=f"http://{name}:{port}")
        self.tell = tell
        self.pages: set[asyncio.Task[object]] = set()

    async def _make_app(self) -> web.Application:
        made = await super()._make_app()
        made.middlewares.append(self.guard)
        return made

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what another site has a browser ask for: under a name of its own, or as its page."""
        host = _name(f"//{request.host}")
        origin = request.headers.get("Origin")
        strange = self.host in LOOPBACK and host not in LOOPBACK
        if strange or (origin is not None and _site(origin) != request.host):
            raise web.HTTPForbidden(text="this page belongs to another site\n")
        return await handler(request)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        task = asyncio.current_task()
        assert task is not None
        self.pages.add(task)
        try:
            return await super().handle_websocket(request)
        finally:
            self.pages.discard(task)

    async def on_shutdown(self, app: web.Application) -> None:
        """Whoever has a page open isn't waited for."""
        pages = list(self.pages)
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)

    def initialize_logging(self) -> None:
        logging.basicConfig(level="WARNING", format="%(message)s", stream=sys.stderr)

    async def on_startup(self, app: web.Application) -> None:
        self.tell(f"the explorer is at {self.public_url} (ctrl+c ends it)")
        if self.host not in LOOPBACK:
            self.tell(
                f"whoever reaches {self.host}:{self.port} can read and write your files and run programs as you: no password is asked"
            )


def serve(arguments: Sequence[str], host: str, port: int, tell: Callable[[str], None]) -> int:
    """Serve `hapdsl explore ARGUMENTS` until it is interrupted. Raises HapError HAP824 where nothing can be served there."""
    try:
        # whoever has the port says so here; the server would find out once half of it is up
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
        os.environ["PYTHONPATH"] = environment()["PYTHONPATH"]
        OwnPages(arguments, host, port, tell).serve()
    except OSError as problem:
        why = problem.strerror or str(problem)
        raise error(
            "HAP824", f"nothing can be served at {host}:{port}: {why}", help="another --port or --host"
        ) from None
    return 0


def _name(url: str) -> str:
    """The host of an address; nothing where there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _site(origin: str) -> str:
    """Host and port of an origin; nothing where it says none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
