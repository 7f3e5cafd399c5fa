"""What a person sets once: `explore.json` in the platform's folder for settings.

{"theme": "textual-light", "open_with": "program", "editor": "vim", "timeline": true}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = "explore.json"


@dataclass
class Settings:
    """`open_with` is "summary" or "program"; `timeline` None leaves it to the size of the screen. `file` is where they are kept."""

    theme: str | None = None
    open_with: str = "summary"
    editor: str | None = None
    timeline: bool | None = None
    file: Path | None = None
    trouble: str = ""  # why the file was not read

    def save(self, **changed: Any) -> str:
        """Remember something; returns why that failed, if it did. Other keys of the file stay."""
        for name, value in changed.items():
            setattr(self, name, value)
        if self.file is None:
            return ""
        from hapdsl.lang.diagnostics import HapError
        from hapdsl.lang.files import write_file

        held = _read(self.file)
        if isinstance(held, str):
            return held  # somebody's file, even if it is broken, isn't overwritten
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_file(self.file, json.dumps({**held, **changed}, indent=4) + "\n")
        except (OSError, HapError) as problem:
            return f"settings aren't kept: {problem}"
        return ""


def folder() -> Path:
    """The platform's folder for settings."""
    import platformdirs

    return platformdirs.user_config_path("hapdsl", appauthor=False)


def read(path: Path) -> Settings:
    """The settings of a file; what it doesn't say, or says wrongly, is as it is without."""
    found = _read(path)
    if isinstance(found, str):
        return Settings(file=path, trouble=found)
    settings = Settings(file=path)
    for name, kinds in (("theme", str), ("editor", str), ("timeline", bool)):
        value = found.get(name)
        if isinstance(value, kinds):
            setattr(settings, name, value)
        elif value is not None:
            settings.trouble = f"{path}: '{name}' can't be {value!r}"
    if found.get("open_with", "summary") in ("summary", "program"):
        settings.open_with = found.get("open_with", "summary")
    else:
        settings.trouble = f'{path}: \'open_with\' is "summary" or "program"'
    return settings


def _read(path: Path) -> dict[str, Any] | str:
    """What the file holds; words for one that is broken."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as problem:
        return f"{path} can't be read: {problem}"
    return found if isinstance(found, dict) else f"{path} holds no object"
