"""HAP6xx: plans, search, shares. A new code goes to the end."""

from __future__ import annotations

from hapdsl.lang.explained.explanation import Explanation

PLANS: dict[str, Explanation] = {}
