"""HAP3xx: shapes, dtypes, operators, theory. In the order of their numbers."""

from __future__ import annotations

from hapdsl.lang.explained.explanation import Explanation

THEORY: dict[str, Explanation] = {
    "HAP301": Explanation(
        "another number of dims",
        "The operand has more or fewer dims than the operator's index notation (or the notation of einsum, rearrange) has "
        "indices.",
        "z = matmul(x, b1)",
        "z = matmul(x, w1)",
    ),
    "HAP302": Explanation(
        "lengths that differ",
        "Dims that share an index of the operator have the same length. (Elementwise operators stretch dims of 1.)",
        "z = matmul(w, x)",
        "z = matmul(x, w)",
    ),
    "HAP303": Explanation(
        "a length that nothing fixes",
        "A dim is split into several, and at most one of them may be worked out; give the others.",
        'y = rearrange(x, "b (h e) -> b h e")',
        'y = rearrange(x, "b (h e) -> b h e", h = 12)',
    ),
    "HAP304": Explanation(
        "a dim that doesn't split, or a reshape that doesn't fit",
        "The product of the parts has to be the length of the whole, and a reshape keeps the number of elements.",
        "y = reshape(x, shape = [7, 5])",
        "y = reshape(x, shape = [8, -1])",
    ),
    "HAP305": Explanation(
        "dtypes that don't go together",
        "Operands of one operator have one dtype, a floating one unless the operator keeps whole numbers (its declaration says `dtype y = number`, or "
        "`any`); `cast` makes another. A mean of whole numbers is no whole number.",
        "y = add(half, full)\nm = mean(ids, dims = 0)",
        "y = add(cast(half, to = f32), full)\nm = mean(cast(ids, to = f32), dims = 0)",
    ),
    "HAP306": Explanation(
        "a size that can't be",
        "The size that an operator computes for an output's dim is a whole number from 1, and what it slices lies inside "
        "the tensor.",
        "y = slice(x, 0, 3, 3)",
        "y = slice(x, 0, 3, 4)",
    ),
    "HAP307": Explanation(
        "dims that aren't there",
        "Attributes such as `dims`, `dim` and `perm` list dims of the operand, each once, counted from 0 or backwards "
        "from -1.",
        "m = mean(x, dims = 5)",
        "m = mean(x, dims = 1)",
    ),
    "HAP308": Explanation(
        "a notation that doesn't fit",
        'einsum and rearrange read a text such as "bsd,dhe->bhse": one term for each operand, an index for each dim, each '
        "index of the output once and in an operand; an index in one operand alone has to stand in the output. An operator that says "
        "`notation` has one operand (`x[]`, or `*x[]` for several) and one output.",
        'y = einsum("ij,jk", a, b)',
        'y = einsum("ij,jk->ik", a, b)',
    ),
    "HAP310": Explanation(
        "one name for two things",
        "Operands, attributes and outputs of an operator have names of their own, and so have stars and single indices.",
        "op f(x[*i], x[*i]) -> y[*i] { }",
        "op f(a[*i], b[*i]) -> y[*i] { }",
    ),
    "HAP311": Explanation(
        "a name for an operand and an index",
        "Names of operands and of indices are disjoint, because sizes and flops read both.",
        "op f(b[*b, k]) -> y[*b] { sum k }",
        "op f(x[*b, k]) -> y[*b] { sum k }",
    ),
    "HAP312": Explanation(
        "two stars in one operand",
        "With two stars, nothing tells how many dims each takes, unless an `at` statement seats what stands between.",
        "op f(x[*i, *j]) -> y[*i] { sum j }",
        "op f(x[*i, *j], attr dims) -> y[*i] { at j = dims; sum j }",
    ),
    "HAP313": Explanation(
        "an index of an output that nothing sizes",
        "An index of an output stands in an operand too, or a `size` statement says how long it is.",
        "op f(x[n]) -> y[n, m] { }",
        "op f(x[n], attr count) -> y[n, m] { size m = count }",
    ),
    "HAP314": Explanation(
        "a name that the operator doesn't have",
        "Statements of an operator speak of its own indices, operands, attributes and outputs.",
        "op f(x[n]) -> y[n] { linear z }",
        "op f(x[n]) -> y[n] { linear x }",
    ),
    "HAP315": Explanation(
        "a sum over an index that stays",
        "An index under `sum` is summed away: some output lacks it.",
        "op f(x[n]) -> y[n] { sum n }",
        "op f(x[n]) -> y[] { sum n }",
    ),
    "HAP316": Explanation(
        "an operator declared twice",
        "Operators have names of their own; those of the standard theory can't be declared anew with other operands.",
        "op relu(a[*i], b[*i]) -> y[*i] { }",
        "op relu2(a[*i], b[*i]) -> y[*i] { }",
    ),
    "HAP317": Explanation(
        "a standard operator written down again",
        "A warning: the file declares an operator of the standard theory with the same operands, attributes and outputs. The "
        "standard one is used, so whatever this one says in its body has no effect.",
    ),
    "HAP318": Explanation(
        "an operator called like a word of programs",
        "Lines of programs call collectives (all_reduce, all_gather, reduce_scatter, all_to_all), `partial`, and loads (input, "
        "param, state, seed); `free` ends values. An operator of such a name couldn't be told from them.",
        "op all_reduce(x[*i]) -> y[*i] { }",
        "op reduce_all(x[*i]) -> y[*i] { }",
    ),
    "HAP319": Explanation(
        "nothing fits in the place of an operator",
        "`training y = …` and `evaluation y = …` say what stands for an output of an operator in graphs of that kind, `without p : y = …` where its "
        "attribute p is 0: an operand, or a call, of the output's shape. "
        "An operator with one of them says so for each of its outputs.",
        "evaluation y = scale",
        "evaluation y = x",
    ),
}
