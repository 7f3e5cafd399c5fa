"""HAP1xx: text and files. In the order of their numbers."""

from __future__ import annotations

from hapdsl.lang.explained.explanation import Explanation

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
        "A file holds import, def, op, model, device, cluster and program blocks, and each kind of block its own statements; "
        "the help lists them or names the one that looks alike.",
        "modle mlp { … }",
        "model mlp { … }",
    ),
    "HAP120": Explanation(
        "a file is missing", "There is no file of that name. Paths are relative to the current folder."
    ),
    "HAP121": Explanation(
        "a file can't be read", "It is a folder, or reading it isn't allowed, or the system says why not."
    ),
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
    "HAP124": Explanation(
        "a file without any block", "A file holds at least one import, def, op, model, device, cluster or program."
    ),
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
        "model mlp { … }\nmodel mlp { … }",
        "model mlp { … }\nmodel mlp2 { … }",
    ),
    "HAP133": Explanation(
        "too long a chain of imports",
        "Files may import files that import others, a hundred in a row at most. Import what is needed from one place.",
    ),
}
