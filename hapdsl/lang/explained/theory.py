"""HAP3xx: shapes, dtypes, operators, theory. A new code goes to the end."""

from __future__ import annotations

from hapdsl.lang.explained.explanation import Explanation

THEORY: dict[str, Explanation] = {
    "HAP317": Explanation(
        "a standard operator written down again",
        "A warning: the file declares an operator of the standard theory with the same operands, attributes and outputs. The "
        "standard one is used, so whatever this one says in its body has no effect.",
    ),
}
