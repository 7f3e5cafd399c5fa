"""HAP6xx: plans, search, shares. In the order of their numbers."""

from __future__ import annotations

from hapdsl.lang.explained.explanation import Explanation

PLANS: dict[str, Explanation] = {
    "HAP601": Explanation(
        "no program fits into memory",
        "Of all programs that the search looked at, each needs more memory on some device than it has; the message names the "
        "one that comes closest. A smaller batch, more devices, or a model with smaller parameters would fit.",
    ),
    "HAP602": Explanation(
        "no program exists",
        "What is asked for leaves nothing to choose: a tensor may have no placement that its operators can make and read, or "
        "a class no shares. Take a pin, a given line or fixed shares away.",
    ),
    "HAP603": Explanation(
        "lines of a sketch that contradict each other",
        "A sketch is completed so that every written line stands. These lines can't: whatever the search writes between them, "
        "one of them would read or make a value that the others rule out. Each is fine without the others.",
    ),
    "HAP604": Explanation(
        "a sketch or plan on several axes",
        "The search chooses on one mesh axis. Programs on two axes can be written by hand, checked and run, but neither completed "
        "nor compared with other choices (`why`).",
    ),
    "HAP605": Explanation(
        "a line that the search can't keep",
        "The line is a legal one, but no program that the search looks at has it: it reads as partial sums what is only loaded, "
        "or converts an input, which may be loaded in any placement instead. A program that was written by hand may be full of such "
        "lines; then `why` can't compare it with others either.",
    ),
    "HAP611": Explanation(
        "no tensor, or several, of a name",
        "`why` explains one tensor. Its name is that of the training graph, as the lines of the plan have it (`layer.3.block.w1`); a "
        "beginning, an end or a pattern (`layer.3.*1`) will do where it fits one tensor only.",
    ),
    "HAP612": Explanation(
        "a tensor that no program needs",
        "No call reads this tensor and none makes it, so it is never loaded, and there is nothing to choose.",
    ),
    "HAP690": Explanation(
        "a bound that doesn't hold",
        "The search found a program cheaper than its own proven lower bound, so the proof has a fault. This is an error of "
        "hapdsl, not of your text: please report it with the file.",
    ),
}
