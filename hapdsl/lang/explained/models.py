"""HAP2xx: names and models. In the order of their numbers."""

from __future__ import annotations

from hapdsl.lang.explained.explanation import Explanation

MODELS: dict[str, Explanation] = {
    "HAP201": Explanation(
        "an unknown name",
        "A model reads its parameters, and tensors that were declared or computed above; arithmetic reads parameters "
        "only. Within a `def` only its own parameters and tensors are known.",
        "h = relu(ah)",
        "h = relu(a)",
    ),
    "HAP202": Explanation(
        "not arithmetic",
        "Dims, attributes and counts are numbers, names of numbers, texts, lists, true and false, joined by + - * / // %, "
        "and sqrt(…).",
        "param w : f32[relu(d)]",
        "param w : f32[d]",
    ),
    "HAP203": Explanation(
        "division by zero",
        "A parameter that divides others is 0, perhaps one that was set on the command line.",
        "param w : f32[d / 0]",
        "param w : f32[d / heads]",
    ),
    "HAP204": Explanation(
        "a number where a tensor is needed, or a tensor where a number is",
        "Operands are tensors; dims and attributes are numbers. A number is added or multiplied as an attribute.",
        "y = add(x, 2)",
        "y = shift(x, by = 2)",
    ),
    "HAP205": Explanation(
        "a dim that is none",
        "Dims are whole numbers from 1 once the model's parameters have their values: 768 / 12 is 64, but 10 / 4 is no "
        "dim.",
        "param w : f32[d / 3]",
        "param w : f32[d, heads]",
    ),
    "HAP206": Explanation(
        "the model has no such parameter",
        "Only parameters in the model's header can be set, by a program's header or on the command line.",
        "program p for mlp(bach = 64) { … }",
        "program p for mlp(batch = 64) { … }",
    ),
    "HAP207": Explanation(
        "a value is missing",
        "A parameter or attribute without a default has to be given.",
        "model mlp(batch) { … }",
        "model mlp(batch = 256) { … }",
    ),
    "HAP208": Explanation(
        "a batch that can't be taken in turns",
        "A `microbatch` block is done in turns, each with an equal part of the batch (the first dim of the first input it reads), and the turns "
        "add up to what the whole batch gives. So samples must not mix within it, what it makes is read behind it only where the turns add up, "
        "and what needs the whole batch (a count of labels) is computed outside. A model has one such block.",
        "microbatch 4 {\n    count = count_labels(label)\n    loss = cross_entropy(matmul(x, w), label, count)\n}",
        "count = count_labels(label)\nmicrobatch 4 {\n    loss = cross_entropy(matmul(x, w), label, count)\n}",
    ),
    "HAP209": Explanation(
        "a statement that can't stand here",
        "The text parses, but this kind of statement means nothing at this place: a `def` returns at its end, not from within a `repeat`.",
        "repeat turn in 2 {\n    x = relu(x)\n    return x\n}",
        "repeat turn in 2 {\n    x = relu(x)\n}\nreturn x",
    ),
    "HAP210": Explanation(
        "an unknown dtype",
        "Tensors are of f64, f32, bf16, f16, i64, i32, i8 or bool.",
        "input x : float[batch, d]",
        "input x : f32[batch, d]",
    ),
    "HAP211": Explanation(
        "an input with an initial value",
        "Inputs are given anew in each step; only what a model keeps has an initial value.",
        "input x : f32[batch, d] init zeros",
        "input x : f32[batch, d]",
    ),
    "HAP212": Explanation(
        "an unknown initialiser",
        "Values start as zeros, ones, constant(value), normal(std, mean), uniform(bound) or xavier; `table` takes them from FILE.hap.npz, beside the text.",
        "param w : f32[d] init random",
        "param w : f32[d] init normal(std = 0.02)",
    ),
    "HAP213": Explanation(
        "a reserved name",
        "`x.grad` is the gradient of x and `w.new` is w after the step, so no tensor of a model ends in `.grad` or "
        "`.new` (but for `b.new` of a buffer b, its value after the step); `path` is what dropout's key is called.",
        "w.grad = relu(x)",
        "w.slope = relu(x)",
    ),
    "HAP214": Explanation(
        "bound twice",
        "Names are bound once; only a `repeat` binds a name again, one tensor for each turn. Two `repeat`s in one block "
        "have variables of their own, and two calls of a `def` names of their own.",
        "h = relu(a)\nh = gelu(h)",
        "h = relu(a)\nk = gelu(h)",
    ),
    "HAP215": Explanation(
        "two losses",
        "A model trains one loss; add several up.",
        "train a with adam()\ntrain b with adam()",
        "both = add(a, b)\ntrain both with adam()",
    ),
    "HAP216": Explanation(
        "a loss that is no scalar",
        "What is trained has no dims: a sum or a mean over all of them.",
        "loss = relu(z)\ntrain loss with adam()",
        "loss = mean(relu(z), dims = [0, 1])\ntrain loss with adam()",
    ),
    "HAP217": Explanation(
        "no update operator",
        "`train … with` names an operator that takes a parameter, its gradient and its state: sgd, momentum, adam, adamw, "
        "or one of the file's own.",
        "train loss with relu()",
        "train loss with adam(lr = 0.001)",
    ),
    "HAP218": Explanation(
        "an unknown or repeated argument",
        "Attributes of an operator and parameters of a `def` are given by their declared names, each once.",
        "train loss with adam(rate = 0.1)",
        "train loss with adam(lr = 0.1)",
    ),
    "HAP219": Explanation(
        "another number of values",
        "As many names stand on the left as the call returns, and one value where a call stands in another one.",
        "a, b = relu(x)",
        "a = relu(x)",
    ),
    "HAP220": Explanation(
        "a name for the call of an operator",
        "`as` names a call of a `def`, whose tensors are then called after it. An operator makes nothing but its outputs.",
        "h = relu(a) as act",
        "h = relu(a)",
    ),
    "HAP221": Explanation(
        "no such def or operator",
        "A call names a `def` of this file (or of one it imports), an operator of the standard theory, or one the file "
        "declares.",
        "h = rellu(a)",
        "h = relu(a)",
    ),
    "HAP222": Explanation(
        "an update operator called in a model",
        "Updates are no part of the forward pass: `train` calls them for every parameter.",
        "w2 = adam(w, g)",
        "train loss with adam(lr = 0.001)",
    ),
    "HAP223": Explanation(
        "the model is too large",
        "Expanded, with every `repeat` unrolled, it has more operator calls or turns than fit into memory with any "
        "comfort.",
        "repeat layer in 100000000 { … }",
        "repeat layer in 96 { … }",
    ),
    "HAP224": Explanation(
        "a second unnamed call of a def",
        "The tensors of a call are called after the def, so a second call in one place needs a name of its own.",
        "a = block(x)\nb = block(a)",
        "a = block(x)\nb = block(a) as second",
    ),
    "HAP225": Explanation(
        "a def that calls itself",
        "Defs are expanded where they are called; one that calls itself would never end. Use `repeat`.",
        "def f(x) { return f(x) }",
        "def f(x) { return relu(x) }",
    ),
    "HAP226": Explanation(
        "a def that returns nothing",
        "A def ends with `return` and the tensors its call stands for.",
        "def f(x) {\n    y = relu(x)\n}",
        "def f(x) {\n    y = relu(x)\n    return y\n}",
    ),
    "HAP227": Explanation(
        "other operands",
        "An operator is given the operands it declares: tensors in order or by name, and attributes behind them.",
        "u = matmul(x)",
        "u = matmul(x, w)",
    ),
    "HAP228": Explanation(
        "no gradient is declared",
        "The loss depends on a parameter through an operator that doesn't say how gradients pass to that operand.",
        "op double(x[*i]) -> [*i] { linear x }",
        "op double(x[*i]) -> [*i] { linear x; grad x = double(out.grad) }",
    ),
    "HAP229": Explanation(
        "the loss doesn't depend on it",
        "A `param` is trained, so the loss has to depend on it.",
        "param unused : f32[d]",
        "frozen unused : f32[d]",
    ),
    "HAP230": Explanation(
        "nothing to train and nothing to answer",
        "A model has a loss with parameters that it trains, or outputs.",
        "model m { input x : f32[4] }",
        "model m { input x : f32[4]; y = relu(x); output y }",
    ),
    "HAP231": Explanation(
        "a group of no parameters",
        "The names in a `group` are those of trained parameters, whole: `*` stands for any letters, dots too.",
        "group bias with adamw(weight_decay = 0)",
        "group *.bias with adamw(weight_decay = 0)",
    ),
    "HAP232": Explanation(
        "a group without `train`",
        "A `group` says how some parameters are updated otherwise than `train` says. A model that trains nothing has none.",
        "output z\ngroup *.bias with adamw(weight_decay = 0)",
        "train loss with adamw(lr = 0.001)\ngroup *.bias with adamw(weight_decay = 0)",
    ),
    "HAP233": Explanation(
        "a norm that can't be clipped to",
        "`clip` scales all gradients down where their norm, over all parameters and devices together, is above a number.",
        "train loss with adam() clip 0",
        "train loss with adam() clip 1.0",
    ),
    "HAP234": Explanation(
        "a buffer of another shape after the step",
        "`b.new = …` says what a buffer is after the step: of the same shape, in its own dtype.",
        "buffer mean : f32[d]\nmean.new = x",
        "buffer mean : f32[d]\nmean.new = sum(x, dims = 0)",
    ),
    "HAP235": Explanation(
        "a master copy that can't be",
        "A trained parameter may be updated in a copy of more bits than it is computed with. What isn't trained has none.",
        "frozen w : bf16[d] master f32",
        "param w : bf16[d] master f32",
    ),
    "HAP236": Explanation(
        "a tensor beyond all bounds",
        "Sizes are whole numbers of 64 bits all the way to the bytes of a message, so no tensor has more than 2^53 elements.",
        "model m(n = 1000000000000000000) { input x : f32[n] … }",
        "model m(n = 1000000) { input x : f32[n] … }",
    ),
    "HAP240": Explanation("no model", "The file and what it imports declare no model, and this needs one."),
    "HAP241": Explanation("which model?", "The file has several models: name one with `--model`."),
    "HAP242": Explanation(
        "an unknown model",
        "A program says which model it is for, and `--model` which one is planned. Models are declared in the file or imported by it.",
        "program mine for mpl { … }",
        "program mine for mlp { … }",
    ),
}
