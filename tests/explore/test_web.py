"""The explorer in a browser: it answers on this machine, to its own page only, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner

from hapdsl.commands.explore import command
from hapdsl.commands.output import Output
from hapdsl.explore.workers import environment
from hapdsl.lang.diagnostics import HapError
from tests.processes import alive, free_port

from .conftest import below, run


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks at processes in /proc")
def test_a_page_has_an_explorer_and_ends_with_the_server(small: Path) -> None:
    async def work() -> None:
        port = free_port()
        at = f"http://127.0.0.1:{port}"
        words = [sys.executable, "-m", "hapdsl", "explore", str(small), "--web", "--port", str(port)]
        folders = {n: str(small.parent / n) for n in ("XDG_STATE_HOME", "XDG_CONFIG_HOME")}
        server = await asyncio.create_subprocess_exec(
            *words, stderr=asyncio.subprocess.PIPE, env={**environment(), **folders}
        )
        assert server.stderr is not None
        assert f"the explorer is at {at}" in (await server.stderr.readline()).decode()
        async with aiohttp.ClientSession() as browser:
            for headers, status in (
                ({}, 200),
                ({"Origin": at}, 200),
                ({"Origin": "http://elsewhere.example"}, 403),
                ({"Origin": "http://["}, 403),
                ({"Host": f"elsewhere.example:{port}"}, 403),
            ):
                for _ in range(100):
                    try:
                        async with browser.get(at, headers=headers) as page:
                            assert page.status == status
                            break
                    except aiohttp.ClientConnectionError:  # it has said where it will be
                        await asyncio.sleep(0.1)
                else:
                    raise AssertionError(f"no answer to {headers}")
            async with browser.ws_connect(f"{at}/ws?width=100&height=30", headers={"Origin": at}) as page:
                seen = b""
                # The server, a shell, the explorer, a checker.
                while b"small.hap" not in seen or len(list(below(server.pid))) < 4:
                    seen += (await page.receive_bytes(timeout=60)) if b"small.hap" not in seen else b""
                    await asyncio.sleep(0.05)
                started = list(below(server.pid))
                server.send_signal(signal.SIGINT)
                while (await page.receive(timeout=30)).type is aiohttp.WSMsgType.BINARY:
                    pass
                assert await asyncio.wait_for(server.wait(), 30) == 0
        for _ in range(100):
            if not any(map(alive, started)):
                return
            await asyncio.sleep(0.05)
        raise AssertionError([p for p in started if alive(p)])

    run(work())


def refused(*words: str) -> tuple[str, str]:
    done = CliRunner().invoke(command, words, obj=Output())
    assert isinstance(done.exception, HapError), done.output
    (found,) = done.exception.diagnostics
    return found.code, found.help


def test_what_is_missing_or_taken_is_said(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert refused(str(small), "--web", "--port", str(taken.getsockname()[1])) == (
            "HAP824",
            "another --port or --host",
        )
    assert refused(str(small.parent / "none.hap"), "--web")[0] == "HAP120"
    monkeypatch.setitem(sys.modules, "textual_serve", None)
    assert refused(str(small), "--web") == ("HAP823", "pip install 'hapdsl[web]'")
    done = CliRunner().invoke(command, [str(small), "--port", "8001"], obj=Output())
    assert done.exit_code == 2 and "needs --web" in done.output
    assert os.environ.get("TEXTUAL_DRIVER") is None
