"""HAP2xx: names and models. A new code goes to the end."""

from __future__ import annotations

from hapdsl.lang.explained.explanation import Explanation

MODELS: dict[str, Explanation] = {
    "HAP240": Explanation("no model", "The file and what it imports declare no model, and this needs one."),
    "HAP241": Explanation("which model?", "The file has several models: name one with --model."),
    "HAP242": Explanation(
        "an unknown model",
        "A program says which model it is for, and --model which one is planned. Models are declared in the file or imported by it.",
        "program mine for mpl { … }",
        "program mine for mlp { … }",
    ),
}
