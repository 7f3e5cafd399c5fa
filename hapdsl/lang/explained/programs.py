"""HAP5xx: programs. In the order of their numbers."""

from __future__ import annotations

from hapdsl.lang.explained.explanation import Explanation

PROGRAMS: dict[str, Explanation] = {
    "HAP501": Explanation(
        "how many devices?",
        "A program's devices are those of the cluster in its header (`on lab`), those of its mesh, or as many as its "
        "shares list.",
        "program p for mlp { … }",
        "program p for mlp on lab { … }",
    ),
    "HAP502": Explanation(
        "a mesh that can't be",
        "A program has one mesh; its axes have different names and at least one device each, and together as many devices "
        "as the cluster.",
        "mesh nodes = 2, nodes = 4",
        "mesh nodes = 2, devices = 4",
    ),
    "HAP503": Explanation(
        "an unknown dimension class",
        "Shares are given to a dimension class: dims that operators tie together, named after the symbol they are "
        "declared with. `hapdsl plan --json` lists a model's classes with their units.",
        "shares bach = [2, 2]",
        "shares batch = [2, 2]",
    ),
    "HAP504": Explanation(
        "another number of shares",
        "Shares are lists of numbers, one for each device in the cluster's order (on several axes, one for each position "
        "on the axis, or a row for each position on the first one). `5 * 26` stands for five of them.",
        "shares batch = [200, 56]",
        "shares batch = [100, 100, 28, 28]",
    ),
    "HAP505": Explanation(
        "shares that don't add up",
        "Shares are whole units of a class, and all of them are dealt out. The help rounds what was written by largest "
        "remainder; `ratio` does that by itself.",
        "shares heads = [6, 3, 2]",
        "shares heads = [6, 3, 3]",
    ),
    "HAP506": Explanation(
        "a share that can't be",
        "Shares and weights aren't negative, shares are whole, and some weight is positive. A share of 0 leaves a device "
        "out of this class.",
        "shares batch = [-8, 264]",
        "shares batch = [0, 256]",
    ),
    "HAP507": Explanation(
        "shares given twice",
        "A class has one list of shares for each axis of the mesh.",
        "shares batch = [2, 2]\nratio batch = [1, 1]",
        "shares batch = [2, 2]",
    ),
    "HAP508": Explanation(
        "shares over which axis?",
        "On a mesh of several axes shares name theirs, unless they are rows over two axes.",
        "shares batch = [4, 4]",
        "shares batch over nodes = [4, 4]",
    ),
    "HAP510": Explanation(
        "the model has no such tensor",
        "Lines of a program speak of the tensors of the model's training graph, by its names: `h`, `layer.3.block.q`, "
        "`w1.grad`, `w1.m`, `w1.new`.",
        "hh@R = relu(a@R)",
        "h@R = relu(a@R)",
    ),
    "HAP511": Explanation(
        "a relative name outside a repeat",
        "`.a` is the tensor `a` of this turn, so it stands inside `repeat layer in 0..12 { }`.",
        ".q@R = einsum(.n@R, .wq@R)",
        "layer.0.q@R = einsum(layer.0.n@R, layer.0.wq@R)",
    ),
    "HAP512": Explanation(
        "an unknown repeat",
        "A program repeats what the model repeats, under the same name (`layer`, or `encoder.layer` for one inside a "
        "def).",
        "repeat layers in 0..2 { … }",
        "repeat layer in 0..2 { … }",
    ),
    "HAP513": Explanation(
        "turns out of range",
        "Turns count from 0, the end is exclusive, and a repeat doesn't stand inside itself.",
        "repeat layer in 0..13 { … }",
        "repeat layer in 0..12 { … }",
    ),
    "HAP514": Explanation(
        "sections out of order",
        "A program has `forward`, then `backward`, then `update`, each at most once and none inside another block. Lines "
        "outside belong to the section before them.",
        "backward { … }\nforward { … }",
        "forward { … }\nbackward { … }",
    ),
    "HAP515": Explanation(
        "another version of the format",
        "The program was written by a version of hapdsl whose programs this one can't read.",
        'fingerprint "9:0123456789abcdef"',
        'fingerprint "1:0123456789abcdef"',
    ),
    "HAP516": Explanation(
        "made for another model",
        "The fingerprint in a program is that of the model it was made for: its tensors, calls and shapes. The model has "
        "changed since, or its parameters are set otherwise. The rest is checked against the model as it is.",
    ),
    "HAP517": Explanation(
        "it stands in a block",
        "`mesh`, `shares`, `ratio` and `fingerprint` hold for a whole program and stand at its top, outside sections and "
        "repeats.",
        "forward {\n    shares batch = [2, 2]\n}",
        "shares batch = [2, 2]\nforward {\n}",
    ),
    "HAP518": Explanation(
        "turns other than the model's",
        "Where a model takes its batch in turns, its programs have `forward` and `backward` in one `microbatch` block of as many turns, and "
        "`update` behind it. The lines of the block are those of one turn: what is computed in every turn stands there, what is computed once "
        "behind it.",
        "forward { … }\nbackward { … }\nupdate { … }",
        "microbatch 4 {\n    forward { … }\n    backward { … }\n}\nupdate { … }",
    ),
    "HAP519": Explanation(
        "too much to check",
        "Repeats unroll to more lines than fit into memory, or a program has so many errors that the rest was left out.",
    ),
    "HAP520": Explanation(
        "another number of placements",
        "A placement has one entry for each axis of the mesh.",
        "h@(S(0), R)",
        "h@S(0)",
    ),
    "HAP521": Explanation(
        "a dim that isn't there",
        "S(dim) names a dim of the tensor, counted from 0; a scalar has none.",
        "b1@S(1)",
        "b1@S(0)",
    ),
    "HAP522": Explanation(
        "a dim that can't be cut",
        "A dim of length 1 is never sharded, and neither is one that operators tie to a single indivisible unit.",
        "row@S(0)",
        "row@R",
    ),
    "HAP523": Explanation(
        "two axes cut one dim",
        "Where both axes of a mesh cut one dim, its class has a row of shares for each position on the outer axis.",
        "shares batch over nodes = [4, 4]",
        "shares batch = [[3, 1], [2, 2]]",
    ),
    "HAP524": Explanation(
        "`free` of a placement that isn't known",
        "`free` ends one value, so its placement is written out.",
        "free h@?",
        "free h@S(0)",
    ),
    "HAP525": Explanation(
        "turns without such a dim",
        "Shares of some layers only split a class off for the tensors of those turns; none of them has a dim of this class.",
        "shares vocab[layer in 0..6] = [8, 4]",
        "shares heads[layer in 0..6] = [8, 4]",
    ),
    "HAP530": Explanation(
        "another operator",
        "A tensor is made by the operator that the model calls for it (its gradients by the ones that the model's "
        "operators declare).",
        "h@R = gelu(a@R)",
        "h@R = relu(a@R)",
    ),
    "HAP531": Explanation(
        "other outputs",
        "A line binds all outputs of its call, in the order that the operator declares.",
        "w.new@R = adam(w@R, w.grad@R, w.m@R, w.v@R)",
        "w.new@R, w.m.new@R, w.v.new@R = adam(w@R, w.grad@R, w.m@R, w.v@R)",
    ),
    "HAP532": Explanation(
        "other operands",
        "A call reads the tensors that the model gives it, in the same order. Values under other names that happen to be "
        "equal aren't looked for.",
        "u@R = matmul(w1@R, x@R)",
        "u@R = matmul(x@R, w1@R)",
    ),
    "HAP533": Explanation(
        "no rule for these placements",
        "No rule of the operator takes operands as these. Rules follow from its index notation: shard an index that "
        "stands in the output (S), one that is summed (P), let partial sums pass through linear operands, or keep all "
        "whole (R). The help names the nearest rule and the lines that lead there.",
        "h@P = relu(a@P)",
        "a@R = all_reduce(a@P)\nh@R = relu(a@R)",
    ),
    "HAP534": Explanation(
        "a rule, but another result",
        "From these operands the operator gives its output in another placement than the line says: partial sums, for "
        "one, where a summed dim is sharded. Bind what it gives, and convert that.",
        "z@R = matmul(h@S(1), w2@S(0))",
        "z@P = matmul(h@S(1), w2@S(0))\nz@R = all_reduce(z@P)",
    ),
    "HAP535": Explanation(
        "an attribute that differs",
        "Attributes come from the model. A line may repeat one, with the same value.",
        "b1.grad@P = sum(a.grad@S(0), 1)",
        "b1.grad@P = sum(a.grad@S(0))",
    ),
    "HAP536": Explanation(
        "an operand by name",
        "In a program, operands stand in the operator's order, without names.",
        "u@R = matmul(x = x@R, w = w1@R)",
        "u@R = matmul(x@R, w1@R)",
    ),
    "HAP537": Explanation(
        "operands that are cut differently",
        "Where a class has shares of its own in some layers, tensors of those layers and others may be cut into different pieces; "
        "an operator can't read both along one index. Gather one of them first, or deal both alike.",
        "shares batch[layer in 0..1] = [6, 2]\nshares batch = [4, 4]",
        "shares batch = [4, 4]",
    ),
    "HAP540": Explanation(
        "operands that don't pair up",
        "A collective, `slice` and `partial` turn each operand into the same tensor in another placement, in the same "
        "order.",
        "z@R = all_reduce(h@P)",
        "z@R = all_reduce(z@P)",
    ),
    "HAP541": Explanation(
        "nothing changes, or two axes at once",
        "A conversion changes the placement of its operands on one axis of the mesh, the same for all of them.",
        "h@R = all_gather(h@R)",
        "h@R = all_gather(h@S(0))",
    ),
    "HAP542": Explanation(
        "another conversion",
        "P becomes R by all_reduce and S by reduce_scatter; S becomes R by all_gather and another S by all_to_all; R "
        "becomes S by slice and P by partial. Nothing else exists: S never becomes P at once.",
        "z@R = all_gather(z@P)",
        "z@R = all_reduce(z@P)",
    ),
    "HAP543": Explanation(
        "an unknown method",
        "all_reduce takes method = ring, hierarchical or tree, all_gather and reduce_scatter padded, grouped or hierarchical, all_to_all pairwise or "
        "hierarchical. Any collective takes a dtype.",
        "h@R = all_gather(h@S(0), method = ring)",
        "h@R = all_gather(h@S(0), method = grouped)",
    ),
    "HAP544": Explanation(
        "cut by an inner axis too",
        "Where two axes cut one dim, the inner axis is converted first: pieces of the outer axis aren't whole before.",
        "h@(R, S(0)) = all_gather(h@(S(0), S(0)))",
        "h@(S(0), R) = all_gather(h@(S(0), S(0)))",
    ),
    "HAP545": Explanation(
        "a dtype that can't be sent",
        "A collective may send floats as other floats (`dtype = bf16` halves what a sum of f32 gradients costs, and rounds it); whole numbers go as they are.",
        "w.grad@R = all_reduce(w.grad@P, dtype = i8)",
        "w.grad@R = all_reduce(w.grad@P, dtype = bf16)",
    ),
    "HAP550": Explanation(
        "loaded otherwise",
        "`input()`, `param()`, `state()` and `seed()` load inputs, parameters (frozen ones and buffers too), optimizer "
        "state and the gradient of the loss. Everything else is computed.",
        "x@R = param()",
        "x@R = input()",
    ),
    "HAP551": Explanation(
        "loaded as partial sums",
        "What is loaded as P would count once for each device. Load it as R or S(d); `partial` makes partial sums of what "
        "is whole.",
        "x@P = input()",
        "x@R = input()",
    ),
    "HAP552": Explanation(
        "held in two placements",
        "A parameter or piece of state is held in one placement from step to step, the one it is loaded in; other "
        "placements are made from it.",
        "w@R = param()\nw@S(0) = param()",
        "w@S(0) = param()\nw@R = all_gather(w@S(0))",
    ),
    "HAP560": Explanation(
        "freed already",
        "The value was freed above, so it is gone. Move the `free` down, or make the value again.",
        "free h@R\nz@R = matmul(h@R, w@R)",
        "z@R = matmul(h@R, w@R)\nfree h@R",
    ),
    "HAP561": Explanation(
        "not made before",
        "The line reads a tensor that no line above makes or loads. Lines run in the order of the text.",
        "h@R = relu(a@R)\na@R = add(u@R, b@R)",
        "a@R = add(u@R, b@R)\nh@R = relu(a@R)",
    ),
    "HAP562": Explanation(
        "in another placement",
        "The tensor was made, but not in the placement that this line reads. The help names the conversion, where one "
        "line does it.",
        "z@S(1) = matmul(h@R, w@S(1))\nloss@R = cross_entropy(z@R, label@R)",
        "z@S(1) = matmul(h@R, w@S(1))\nz@R = all_gather(z@S(1))\nloss@R = cross_entropy(z@R, label@R)",
    ),
    "HAP563": Explanation(
        "a pin that isn't kept",
        "A pin says that a tensor is made in this placement. In a complete program some line does that.",
        "pin w.grad @ S(1)",
    ),
    "HAP570": Explanation(
        "no loss",
        "A training program makes the loss, as R or P.",
    ),
    "HAP571": Explanation(
        "a parameter that isn't trained",
        "Every trainable parameter and each piece of its state is loaded and updated, or the program trains another "
        "model.",
    ),
    "HAP572": Explanation(
        "updated in another placement",
        "The new value of a parameter or piece of state is made in the placement it is held in, because the next step "
        "starts from there.",
        "w@S(0) = param()\nw.new@R, … = adam(w@R, …)",
        "w@S(0) = param()\nw.new@S(0), … = adam(w@S(0), …)",
    ),
    "HAP573": Explanation(
        "an output is missing",
        "A program for evaluation makes every output and metric of its model, in any placement.",
    ),
    "HAP580": Explanation(
        "no program", "The file declares no program, and this needs one: `hapdsl plan FILE -o OUT` writes one."
    ),
    "HAP581": Explanation("which program?", "The file has several programs: name one with `--program`."),
    "HAP582": Explanation("an unknown program", "`--program` names one of the file's programs."),
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
