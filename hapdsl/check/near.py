"""What a person may have meant by a name that isn't there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

# Comparing a name with every tensor of a deep model takes seconds; a misspelt name is about as long as the right one.
MOST_COMPARED = 2_000


def near(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?`, or "" where nothing is close."""
    same_length = (k for k in known if abs(len(k) - len(name)) <= 2)
    found = difflib.get_close_matches(name, list(islice(same_length, MOST_COMPARED)), n=1, cutoff=0.7)
    return f"did you mean '{found[0]}'?" if found else ""
