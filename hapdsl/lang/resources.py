"""Where the grammar and the example files lie: in a checkout, or inside the installed package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def _find(name: str) -> Path:
    """A folder that the wheel carries as `hapdsl/_data/<name>`, and a checkout has beside the package."""
    shipped = _PACKAGE / "_data" / name
    return shipped if shipped.is_dir() else _PACKAGE.parent / name


def grammar_file() -> Path:
    """`hap.lark`, the grammar of the language."""
    return _find("grammar") / "hap.lark"


def programs_folder() -> Path:
    """The folder with `models/`, `clusters/` and `plans/`, which `import "std/..."` looks in."""
    return _find("programs")


def theory_folder() -> Path:
    """The folder of the standard theory's `.hap` files."""
    return _PACKAGE / "theory"
