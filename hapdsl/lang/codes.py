"""Every diagnostic code, explained: `hapdsl explain CODE`.

One dict per hundred. A code never changes its meaning; a new one goes to the end of its hundred's dict.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from hapdsl.lang.diagnostics import error


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a code means: one line, a paragraph, and the smallest text that is wrong and right."""

    title: str
    text: str
    example_bad: str = ""
    example_good: str = ""


# -- HAP1xx: text and files ----------------------------------------------------

TEXT: dict[str, Explanation] = {
    "HAP101": Explanation(
        "unexpected text",
        "At this place the grammar allows something else. The message says what would do and what was found. Reading "
        "goes on behind the statement, so one run shows several errors; fix the first one first.",
        "u = matmul(x w1)",
        "u = matmul(x, w1)",
    ),
    "HAP102": Explanation(
        "a character that has no place in the language",
        "Names are of ASCII letters, digits, _ and dots; numbers have digits on both sides of their point; texts stand "
        "in double quotes; expressions know + - * / // % and calls.",
        "lr = .5",
        "lr = 0.5",
    ),
    "HAP103": Explanation(
        "a brace is missing or one too many",
        "Each block ends with a `}` of its own. Where a block begins inside another one, or the file ends inside a "
        "block, a `}` is missing above; the help names the `{` that most probably lacks it, judged by indentation.",
        "forward {\n    u@R = relu(x@R)\nbackward {\n}",
        "forward {\n    u@R = relu(x@R)\n}\nbackward {\n}",
    ),
    "HAP104": Explanation(
        "nested too deeply",
        "Brackets and operators may nest 100 deep in one statement, blocks 40 deep. Give inner parts names of their own.",
    ),
    "HAP105": Explanation(
        "a bracket isn't closed",
        "Inside ( ) and [ ] a line continues on the next one, so a missing bracket is noticed only further down. The "
        "position is that of the opening bracket.",
        "h = relu(a",
        "h = relu(a)",
    ),
    "HAP106": Explanation(
        "a text isn't closed",
        'A text starts and ends with `"` on one line. A quote inside it is written \\", a backslash \\\\.',
        'torch "torch.add',
        'torch "torch.add"',
    ),
    "HAP107": Explanation(
        "`=` and `:` mixed up",
        "A declaration gives a type with `:`; everything else is given with `=`.",
        "param w = f32[d, 4]",
        "param w : f32[d, 4]",
    ),
    "HAP108": Explanation(
        "a value without a placement",
        "In a program every value says how it lies on the devices: R replicated, S(dim) sharded on a dim, P partial "
        "sums, ? any that fits.",
        "h = relu(a@S(0))",
        "h@S(0) = relu(a@S(0))",
    ),
    "HAP109": Explanation(
        "a word of the language used as a name",
        "Words such as input, param, free or repeat begin statements. A tensor may bear such a name everywhere but at "
        "the start of a statement.",
        "input = relu(x)",
        "inputs = relu(x)",
    ),
    "HAP110": Explanation(
        "a whole number is needed",
        "Counts of devices, dims, turns of a repeat and lengths of mesh axes are whole numbers.",
        "network 2.5 * a100",
        "network 2 * a100",
    ),
    "HAP111": Explanation(
        "a number is too large",
        "Whole numbers go up to 2^63 - 1, others to about 1.8e308.",
        "f32[99999999999999999999]",
        "f32[4096]",
    ),
    "HAP112": Explanation(
        "an unknown escape in a text",
        'A backslash in a text begins an escape; known are \\" \\\\ \\n \\t and \\r. Paths are written with /.',
        'import "models\\mlp.hap"',
        'import "models/mlp.hap"',
    ),
    "HAP113": Explanation(
        "an unknown placement",
        "A placement is R, S(dim), P or ?, or several of them in parentheses, one per mesh axis: (S(0), R).",
        "h@Q = relu(a@R)",
        "h@R = relu(a@R)",
    ),
    "HAP114": Explanation(
        "an unknown statement",
        "A file holds import, def, op, model, cluster and program blocks, and each kind of block its own statements; "
        "the help lists them or names the one that looks alike.",
        "modle mlp { }",
        "model mlp { }",
    ),
    "HAP120": Explanation("a file is missing", "There is no file of that name. Paths are relative to the current folder."),
    "HAP121": Explanation("a file can't be read", "It is a folder, or reading it isn't allowed, or the system says why not."),
    "HAP122": Explanation(
        "a file isn't UTF-8",
        "Source files are UTF-8 text (with or without a byte order mark). The position is that of the first byte "
        "that isn't; most editors can save a file in another encoding.",
    ),
    "HAP123": Explanation(
        "a file is too large",
        "Files up to 2 MiB are read; a program of a model with a hundred layers takes a hundredth of that when its layers are "
        "rolled into `repeat`.",
    ),
    "HAP124": Explanation("a file without any block", "A file holds at least one import, def, op, model, cluster or program."),
    "HAP125": Explanation("a NUL byte", "The file is binary, or UTF-16: save it as UTF-8 text."),
    "HAP130": Explanation(
        "an import is missing",
        "An import is looked up beside the importing file; `std/...` is looked up in the files that come with hapdsl.",
        'import "std/gpu.hap"',
        'import "std/gpus.hap"',
    ),
    "HAP131": Explanation(
        "files import each other",
        "Imports form no cycle. Move what both files need into a third.",
    ),
    "HAP132": Explanation(
        "two blocks of one kind and name",
        "Within a file and all that it imports, names of models are unique, and so are those of clusters, programs, defs "
        "and ops.",
        "model mlp { }\nmodel mlp { }",
        "model mlp { }\nmodel mlp2 { }",
    ),
}

# -- HAP2xx: names and models --------------------------------------------------

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

# -- HAP3xx: shapes, dtypes, operators, theory ---------------------------------

THEORY: dict[str, Explanation] = {
    "HAP317": Explanation(
        "a standard operator written down again",
        "A warning: the file declares an operator of the standard theory with the same operands, attributes and outputs. The "
        "standard one is used, so whatever this one says in its body has no effect.",
    ),
}

# -- HAP4xx: clusters and units ------------------------------------------------

CLUSTERS: dict[str, Explanation] = {
    "HAP401": Explanation(
        "a cluster without devices",
        "A cluster needs at least one `device` and one `node` that has some of it.",
        "cluster lab { }",
        "cluster lab {\n    device d { compute = 14 TFLOP/s, memory = 16 GiB, bandwidth = 900 GB/s }\n    node host = 1 * d\n}",
    ),
    "HAP402": Explanation(
        "an unknown device or node",
        "A node is made of devices, a network of nodes, and both only of those that this cluster declares.",
        "network 4 * v100 over { … }",
        "network 1 * host over { … }",
    ),
    "HAP403": Explanation(
        "declared twice",
        "Devices and nodes of a cluster share their names; a cluster has one network and one table per collective.",
    ),
    "HAP404": Explanation(
        "a missing setting",
        "A device says its compute, memory and bandwidth (a table of speeds has f32), a link its bandwidth; a device's "
        "launch and a link's latency are 0 if they aren't given.",
        "device d { compute = 14 TFLOP/s }",
        "device d { compute = 14 TFLOP/s, memory = 16 GiB, bandwidth = 900 GB/s }",
    ),
    "HAP405": Explanation(
        "an unknown setting",
        "Devices have compute, memory, bandwidth and launch; links have bandwidth and latency; a table of speeds has dtypes.",
    ),
    "HAP406": Explanation("a setting given twice", "Of two values one would be ignored, so keep the one you mean."),
    "HAP407": Explanation(
        "not a quantity",
        "Sizes, speeds and times of hardware carry their unit, because GB, GiB and Gbit differ.",
        "compute = 14",
        "compute = 14 TFLOP/s",
    ),
    "HAP408": Explanation(
        "hardware that can't be",
        "Speeds, memory and bandwidth are positive, times aren't negative, and nothing is absurdly large: the cost model "
        "divides by these numbers. A device that shouldn't work is left out of its node.",
        "compute = 0 TFLOP/s",
        "compute = 14 TFLOP/s",
    ),
    "HAP409": Explanation(
        "several nodes and no network",
        "Without a `network` a cluster has exactly one node.",
        "",
        "network 1 * big, 2 * small over { bandwidth = 10 Gbit/s, latency = 50 us }",
    ),
    "HAP410": Explanation("a node that the network doesn't reach", "Every declared node stands in the `network`, once or more."),
    "HAP411": Explanation(
        "nothing between devices",
        "Two or more devices in a node, or nodes in a network, are joined by a link that says its bandwidth.",
        "node host = 4 * d",
        "node host = 4 * d over { bandwidth = 12 GB/s, latency = 10 us }",
    ),
    "HAP412": Explanation("a wrong count", "Devices and nodes are counted in whole numbers from 1, up to 100,000 devices together."),
    "HAP413": Explanation(
        "`virtual` isn't there yet",
        "A node as one virtual device can be parsed but not planned. A program's mesh may have nodes as its outer axis instead.",
        "network 2 * host virtual over { … }",
        "mesh nodes = 2, devices = 4",
    ),
    "HAP414": Explanation(
        "a table that is no curve",
        "A measured table has two points or more; sizes grow from one to the next, and times don't shrink.",
        "measured all_reduce { 1 MiB = 3 ms }",
        "measured all_reduce { 1 MiB = 3 ms, 64 MiB = 140 ms }",
    ),
    "HAP415": Explanation(
        "an unknown collective",
        "Measured are all_reduce, all_gather, reduce_scatter, all_to_all, or one method of them: all_gather_padded, "
        "all_gather_grouped, reduce_scatter_padded, reduce_scatter_grouped.",
    ),
    "HAP416": Explanation("a device that no node has", "A warning: the device is declared, but the cluster doesn't contain it."),
    "HAP420": Explanation(
        "another number of devices",
        "A program's shares are lists with one entry per device, so its mesh and the cluster it is priced on have equally many.",
    ),
    "HAP490": Explanation(
        "an unknown unit",
        "Units of memory are B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024) and kbit, Mbit, Gbit; "
        "bandwidths are the same per second; times are s, ms, us, ns, min, h; speeds are FLOP/s, GFLOP/s, TFLOP/s.",
        "bandwidth = 10 Gbps",
        "bandwidth = 10 Gbit/s",
    ),
    "HAP491": Explanation(
        "a unit of another dimension",
        "Each setting measures one thing: memory is an amount, bandwidth is an amount per second, latency is a time, "
        "compute is FLOP/s. 8 Gbit/s are 1 GB/s, and 1 GiB is 1.074 GB.",
        "bandwidth = 12 GB",
        "bandwidth = 12 GB/s",
    ),
    "HAP492": Explanation("a quantity is out of range", "The amount in SI units isn't a finite number."),
    "HAP421": Explanation("which cluster?", "The file has several clusters: name one, as NAME, FILE or FILE:NAME."),
    "HAP422": Explanation("an unknown cluster", "A cluster is named as NAME (declared or imported here), FILE or FILE:NAME; std/NAME.hap comes with hapdsl."),
    "HAP423": Explanation("no cluster", "The file that should describe the hardware declares no cluster."),
    "HAP424": Explanation(
        "a program on an unknown cluster",
        "Behind `on` stands a cluster that the file declares or imports; it tells how many devices the program has.",
        "program mine for mlp on lba { … }",
        "program mine for mlp on lab { … }",
    ),
}

# -- HAP5xx: programs ----------------------------------------------------------

PROGRAMS: dict[str, Explanation] = {
    "HAP580": Explanation("no program", "The file declares no program, and this needs one: `hapdsl plan FILE -o OUT` writes one."),
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

# -- HAP6xx: plans, search, shares ---------------------------------------------

PLANS: dict[str, Explanation] = {}

# -- HAP7xx: running -----------------------------------------------------------

RUNNING: dict[str, Explanation] = {
    "HAP740": Explanation(
        "a program that differs from one device",
        "`check --numeric` ran the program at a reduced size in float64 beside its model on one device, and they differ. "
        "The program is proven from the rules of its operators, so an operator's declaration says something that its kernel doesn't do.",
    ),
    "HAP741": Explanation("too large to try in numbers", "A warning: even shrunk, the program's tensors are too large for this machine."),
}

# -- HAP8xx: drawing, exploring, the rest --------------------------------------

VIEWS: dict[str, Explanation] = {
    "HAP890": Explanation("an unknown code", "`hapdsl explain` knows the codes that stand in diagnostics, such as HAP101."),
    "HAP850": Explanation("a command line that can't be read", "`hapdsl COMMAND --help` shows what a command takes."),
    "HAP851": Explanation(
        "a setting that can't be read",
        "--set gives a parameter of the model a number, true or false, of the kind of its default.",
        "--set layers:24",
        "--set layers=24",
    ),
    "HAP852": Explanation("a file can't be written", "The folder is missing, or writing there isn't allowed, or the disk is full."),
    "HAP899": Explanation("an error inside hapdsl", "This is a fault of hapdsl, not of your input. The message says how to report it."),
}

CODES: dict[str, Explanation] = {
    **TEXT, **MODELS, **THEORY, **CLUSTERS, **PROGRAMS, **PLANS, **RUNNING, **VIEWS,
}  # fmt: skip


def explain(code: str) -> str:
    """The explanation of a code as plain text. Raises HapError HAP890 for an unknown one."""
    key = code.strip().upper()
    if key not in CODES:
        close = difflib.get_close_matches(key, CODES, 3)
        raise error("HAP890", f"there is no code {code.strip()[:20]}", help=f"close to it: {', '.join(close)}" if close else "codes read like HAP101")  # fmt: skip
    found = CODES[key]
    parts = [f"{key}: {found.title}", "", found.text]
    for label, example in (("Wrong:", found.example_bad), ("Right:", found.example_good)):
        if example:
            parts += ["", label, *("    " + line for line in example.split("\n"))]
    return "\n".join(parts) + "\n"
