"""Every text that is shipped or kept for its layout, and a text with one change in it."""

from __future__ import annotations

import random

from hapdsl.lang.resources import programs_folder, theory_folder
from tests.texts import REPOSITORY

IDENTITY = REPOSITORY / "tests" / "identity"
EXAMPLES = [
    *sorted(IDENTITY.glob("*.hap")), *sorted(theory_folder().glob("*.hap")), *sorted(programs_folder().rglob("*.hap")),
]  # fmt: skip


def changed(text: str, draw: random.Random) -> str:
    """One change somewhere: whole lines, blanks, comments, single characters, or a line put together with the next one."""
    lines = text.split("\n")
    k = draw.randrange(len(lines))
    match draw.randrange(12):
        case 0:
            del lines[k : k + draw.choice([1, 1, 2, 5])]
        case 1:
            lines[k:k] = lines[k : k + draw.choice([1, 2, 6])]
        case 2:
            lines[k], lines[k - 1] = lines[k - 1], lines[k]
        case 3:
            lines.insert(
                k,
                draw.choice(
                    [
                        "",
                        "",
                        "# said",
                        "        # indented",
                        "    h@S(0) = relu(a@S(0))  # new",
                        "free h@R; ...",
                        "repeat layer in 0..2 {",
                        "}",
                    ]
                ),
            )
        case 4:
            lines[k] += draw.choice(["  # behind", " ", ";", " ; free h@R", ",", "{", "}", ")", '"'])
        case 5:
            lines[k] = "  " + lines[k]
        case 6:
            lines[k : k + 2] = ["; ".join(lines[k : k + 2])]
        case 7:
            at = draw.randrange(len(lines[k]) + 1)
            lines[k] = lines[k][:at] + "\n" + lines[k][at:]
        case _:
            at = draw.randrange(len(lines[k]) + 1)
            lines[k] = (
                lines[k][:at]
                + draw.choice(["", "", "@", "S(1)", "R", "x", ".", "(", ")", "{", "}", "=", "1", '"', "#", "?"])
                + lines[k][at + draw.choice([0, 1]) :]
            )
    return "\n".join(lines)
