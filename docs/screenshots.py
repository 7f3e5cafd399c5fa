"""Makes the pictures of docs/explorer.md and of the README: the application itself, drawn as SVG. `python docs/screenshots.py`"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from hapdsl.explore.app import ExploreApp, session_of

HERE = Path(__file__).parent
TEXT = 'import "std/mlp.hap"\nimport "std/digits.hap"\n'
SIZE = (150, 44)


async def until(pilot: Pilot[int], holds: Callable[[], bool]) -> None:
    """Wait until something holds. Raises TimeoutError after five minutes: no picture is made of what isn't done."""
    for _ in range(3000):
        await pilot.pause(0.1)
        if holds():
            break
    else:
        raise TimeoutError("the explorer isn't done")
    await pilot.pause(0.5)


async def shots(folder: Path) -> None:
    file = folder / "digits.hap"
    file.write_text(TEXT)
    app = ExploreApp(session_of(file))
    app.haste = 0.1
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: not app.work.searching and app.work.idle)
        app.clear_notifications()
        key = next(r.plan.key for r in app.session.rows() if r.plan.origin == "plan")
        await app.show_plan(key)
        await until(pilot, lambda: bool(app.facts) and app.work.idle)
        save(app, "summary")
        await pilot.press("2")
        lines = app.editor.text.split("\n")
        app.editor.go_to(
            next(n for n, line in enumerate(lines, 1) if "= all_gather(" in line or "= all_reduce(" in line)
        )
        await until(pilot, lambda: app.asked is not None and app.asked[1].done)
        save(app, "program")
        for name, keys in (("compare", "d"), ("whatif", "w"), ("shares", "h"), ("search", "v")):
            await pilot.press("escape", keys)
            await pilot.pause(0.3)
            await until(pilot, lambda: app.work.idle and not app._pending)
            save(app, name)
            await pilot.press("escape")


def save(app: ExploreApp, name: str) -> None:
    target = HERE / "pictures" / f"explore_{name}.svg"
    target.parent.mkdir(exist_ok=True)
    target.write_text(app.export_screenshot(title="hapdsl explore"))
    print(target)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(shots(Path(folder)))


if __name__ == "__main__":
    main()
