"""HAP87x: importing an nn.Module. In the order of their numbers."""

from __future__ import annotations

from hapdsl.lang.explained.explanation import Explanation

IMPORTING: dict[str, Explanation] = {
    "HAP870": Explanation(
        "no such factory, or it fails",
        "`hapdsl import PACKAGE.MODULE:FACTORY` imports the module and calls the factory without arguments; that code runs, as in any "
        "`import`. The line shown is the last one outside torch.",
        "hapdsl import mymodels --example …",
        "hapdsl import mymodels:gpt2 --example …",
    ),
    "HAP871": Explanation(
        "the factory returns no nn.Module",
        "A factory takes no arguments and returns the module to be imported; a class of modules without arguments is a factory, too.",
        "def factory():\n    return Net",
        "def factory():\n    return Net(layers=12)",
    ),
    "HAP872": Explanation(
        "the example doesn't fit the module",
        "The example lists the arguments of the module's forward by their names, tensors with dtype and shape. A dim with a name becomes "
        "a parameter of the model, so that another batch or sequence length is a matter of `--set`.",
        '--example "x : f32[8]" for a module that is called with 16 columns',
        '--example "x : f32[batch = 8, 16]; label : i64[batch]"',
    ),
    "HAP873": Explanation(
        "torch.export can't follow the module",
        "The forward pass is recorded without data, so it must not branch on values of tensors, read numbers out of them or build shapes "
        "from them. Decide with torch.where or a mask, or with a switch that is set before the import.",
        "if x.sum() > 0:\n    x = x * 2",
        "x = torch.where(x.sum() > 0, x * 2, x)",
    ),
    "HAP874": Explanation(
        "an operator without a counterpart",
        "The module calls an operator of torch that no operator of the theory stands for. The message names the module, the line and the "
        "operator. Use other functions for this step, or import the rest, declare an `op` and write the step by hand.",
    ),
    "HAP875": Explanation(
        "a change in place that others see",
        "Tensors of a model have one value. `x.add_(1)` is taken as a new tensor, unless an argument, a parameter or a view of more than one step shares the memory (parts of a new tensor may be overwritten): "
        "then what is read later would silently be the old value.",
        "y.t()[0] += 1",
        "y = y + torch.nn.functional.one_hot(torch.tensor(0), y.shape[1])",
    ),
    "HAP876": Explanation(
        "a dtype that models don't have",
        "Tensors are of f64, f32, bf16, f16, i64, i32, i8 or bool. Complex numbers aren't among them: keep real and imaginary parts apart.",
        "torch.view_as_complex(x)",
        "real, imaginary = x.unbind(-1)",
    ),
    "HAP877": Explanation(
        "an operator in a form that can't be imported",
        "The operator is known, but not with these arguments; the message says which.",
    ),
    "HAP878": Explanation(
        "an unknown loss or optimizer",
        "`--loss` names a loss for a module that returns none; `--optimizer` is written as in `train loss with …`.",
        "--optimizer adamw",
        '--optimizer "adamw(lr = 0.0003)"',
    ),
    "HAP879": Explanation(
        "weights that don't fit the text",
        "A parameter of a text has the state_dict's name and as many elements as the tensor there. The module isn't the one that was "
        "imported, it has other sizes, or the text was changed.",
    ),
}
