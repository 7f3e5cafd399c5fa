"""HAP7xx: running. A new code goes to the end."""

from __future__ import annotations

from hapdsl.lang.explained.explanation import Explanation

RUNNING: dict[str, Explanation] = {
    "HAP740": Explanation(
        "a program that differs from one device",
        "`check --numeric` ran the program at a reduced size in float64 beside its model on one device, and they differ. "
        "The program is proven from the rules of its operators, so an operator's declaration says something that its kernel doesn't do.",
    ),
    "HAP741": Explanation(
        "too large to try in numbers", "A warning: even shrunk, the program's tensors are too large for this machine."
    ),
}
