"""HAP5xx: programs. A new code goes to the end."""

from __future__ import annotations

from hapdsl.lang.explained.explanation import Explanation

PROGRAMS: dict[str, Explanation] = {
    "HAP580": Explanation(
        "no program", "The file declares no program, and this needs one: `hapdsl plan FILE -o OUT` writes one."
    ),
    "HAP581": Explanation("which program?", "The file has several programs: name one with --program."),
    "HAP582": Explanation("an unknown program", "--program names one of the file's programs."),
    "HAP583": Explanation(
        "a program's parameters",
        "A program sets parameters of its model by name, each once.",
        "program p for mlp(512) { … }",
        "program p for mlp(batch = 512) { … }",
    ),
    "HAP584": Explanation(
        "a sketch can't do this",
        "A sketch leaves lines (`...`) or placements (`?`) open, so it has no cost and can't be run. Its complete form can.",
    ),
}
