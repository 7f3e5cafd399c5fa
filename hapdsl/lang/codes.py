"""Every diagnostic code, explained: `hapdsl explain CODE`.

The explanations stand in `hapdsl/lang/explained/`, one module per hundred. A code never changes its meaning; a new one
goes to the end of its hundred.
"""

from __future__ import annotations

from collections.abc import Iterable

from hapdsl.lang.diagnostics import error
from hapdsl.lang.explained.clusters import CLUSTERS
from hapdsl.lang.explained.explanation import Explanation
from hapdsl.lang.explained.importing import IMPORTING
from hapdsl.lang.explained.models import MODELS
from hapdsl.lang.explained.plans import PLANS
from hapdsl.lang.explained.programs import PROGRAMS
from hapdsl.lang.explained.running import RUNNING
from hapdsl.lang.explained.text import TEXT
from hapdsl.lang.explained.theory import THEORY
from hapdsl.lang.explained.views import VIEWS
from hapdsl.lang.near import closest

__all__ = ["CODES", "Explanation", "explain"]

CODES: dict[str, Explanation] = {
    **TEXT, **MODELS, **THEORY, **CLUSTERS, **PROGRAMS, **PLANS, **RUNNING, **VIEWS, **IMPORTING,
}  # fmt: skip


def explain(code: str, operators: Iterable[str] = ()) -> str:
    """The explanation of a code as plain text. Raises HapError HAP890 for an unknown one; names of `operators` may be meant, too."""
    key = code.strip().upper()
    if key not in CODES:
        close = closest(key, CODES, 3) or closest(code.strip(), operators, 3)
        known = "codes read like HAP101, operators are listed in docs/theory.md"
        help = f"close to it: {', '.join(close)}" if close else known
        raise error("HAP890", f"there is no code or operator {code.strip()[:20]}", help=help)
    found = CODES[key]
    parts = [f"{key}: {found.title}", "", found.text]
    for label, example in (("Wrong:", found.example_bad), ("Right:", found.example_good)):
        if example:
            parts += ["", label, *("    " + line for line in example.split("\n"))]
    return "\n".join(parts) + "\n"
