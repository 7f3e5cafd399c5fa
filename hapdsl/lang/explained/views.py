"""HAP8xx: drawing, exploring, the rest. In the order of their numbers."""

from __future__ import annotations

from hapdsl.lang.explained.explanation import Explanation

VIEWS: dict[str, Explanation] = {
    "HAP810": Explanation(
        "no Graphviz",
        "Pictures (.svg, .png) are laid out by Graphviz's `dot`, which isn't on PATH. The drawing was written as .dot text instead; "
        "install Graphviz (apt install graphviz, brew install graphviz) and draw again, or open the .dot elsewhere.",
    ),
    "HAP811": Explanation(
        "an unknown kind of drawing",
        "Drawings are .dot, .svg or .png; .json is a program's timeline as a Chrome trace.",
    ),
    "HAP812": Explanation(
        "no timeline",
        "A timeline shows when each instruction runs on each device, so it needs a program and a cluster that prices it.",
    ),
    "HAP813": Explanation(
        "Graphviz failed", "`dot` is there but could not draw this. The drawing was written as .dot text instead."
    ),
    "HAP814": Explanation(
        "what a timeline can't be",
        "A timeline is drawn as a Gantt chart (.svg) or written as a trace (.json) for Perfetto and chrome://tracing.",
        "hapdsl draw plan.hap --timeline overlap -o plan.png",
        "hapdsl draw plan.hap --timeline overlap -o plan.svg",
    ),
    "HAP820": Explanation(
        "no terminal",
        "`hapdsl explore` draws on a terminal and reads its keys; in a pipe or a job use `check`, `cost` and `plan`.",
    ),
    "HAP821": Explanation(
        "no trace of this program",
        "The explorer lays a measured trace beside the prediction, instruction by instruction, so that it must come from a run of this very program.",
        "hapdsl explore other.trace.json plan.hap",
        "hapdsl run plan.hap --trace plan.trace.json && hapdsl explore plan.trace.json plan.hap",
    ),
    "HAP822": Explanation(
        "no language server",
        "`hapdsl lsp` speaks with editors through pygls, an optional part.",
        "hapdsl lsp",
        "pip install 'hapdsl[lsp]'",
    ),
    "HAP823": Explanation(
        "no web server",
        "`hapdsl explore --web` shows the explorer in a browser through textual-serve, an optional part.",
        "hapdsl explore model.hap --web",
        "pip install 'hapdsl[web]'",
    ),
    "HAP824": Explanation(
        "nothing can be served there",
        "`hapdsl explore --web` listens at `--host` and `--port`. Another process has that port, the address isn't this machine's, or the port may not be "
        "opened (those below 1024 belong to the system).",
        "hapdsl explore model.hap --web --port 80",
        "hapdsl explore model.hap --web --port 8123",
    ),
    "HAP850": Explanation("a command line that can't be read", "`hapdsl COMMAND --help` shows what a command takes."),
    "HAP851": Explanation(
        "a setting that can't be read",
        "`--set` gives a parameter of the model a number, true or false, of the kind of its default.",
        "--set layers:24",
        "--set layers=24",
    ),
    "HAP852": Explanation(
        "a file can't be written", "The folder is missing, or writing there isn't allowed, or the disk is full."
    ),
    "HAP853": Explanation(
        "a package isn't installed",
        "This command needs a Python package that isn't there. Planning, checking, pricing and drawing do without torch; running, importing and "
        "numeric checks don't. `hapdsl doctor` lists what is installed and what each is for.",
    ),
    "HAP890": Explanation(
        "an unknown code or operator",
        "`hapdsl explain` knows the codes that stand in diagnostics, such as HAP101, and the operators of the standard theory, such as matmul.",
    ),
    "HAP899": Explanation(
        "an error inside hapdsl", "This is a fault of hapdsl, not of your input. The message says how to report it."
    ),
}
