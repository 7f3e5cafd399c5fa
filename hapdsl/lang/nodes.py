"""The tree of the language: what `parse` returns and `print` writes.

The shape of every node is given here once, as a small grammar in dataclasses. Nodes are immutable and compare by content: `span` (where it
stood in the text) never takes part in a comparison, comments do, so `parse(print(t)) == t` says that comments survive too.

    File      = (Import | Def | Op | Model | Device | Cluster | Program)*
    Model     = (Declare | Assign | Repeat | Microbatch | Output | Metric | Train | Group)*
    Def       = (Declare | Assign | Repeat | Return)*
    Op        = (Sum | Linear | Whole | Size | Flops | Grad | Training | Evaluation | Torch | Dtype | Notation | At | Order | Reads)*
    Cluster   = (Device | HostNode | Network | Measured)*
    Program   = (Mesh | Shares | Ratio | Fingerprint | Pin | Section | Turns | Line | Free | Rest)*
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of source text; lines and columns count from 1, the end is exclusive."""

    file: str = ""
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0


NOWHERE = Span()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Anything of the tree, and where it stood in the text."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement(Node):
    """A node that stands on a line of its own, with the comments that belong to it.

    `leading` are the full-line comments above it and `trailing` the one behind it (of a
    block: behind its `{`), both without `#` and outer blanks; an entry BLANK of `leading` is a
    blank line between two comments, or between the last one and the statement. `gap` says that
    a blank line goes before; the first statement of a file or block never has one.

    `sign` remembers where the author put the `=`, `:` or `{` on which neighbouring lines align (columns behind
    the statement's start, 0 for nowhere). It is layout, like `span`, and takes no part in comparisons.
    """

    leading: tuple[str, ...] = ()
    trailing: str | None = None
    gap: bool = False
    sign: int = field(default=0, compare=False, repr=False)


BLANK = "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Statement):
    """A statement with a body in braces; `closing` are the comments before its `}`.

    `inline` says that the author wrote it on one line; the printer keeps that where it fits.
    """

    closing: tuple[str, ...] = ()
    inline: bool = field(default=False, compare=False, repr=False)


# -- expressions ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number(Node):
    value: int | float


@dataclass(frozen=True, slots=True)
class Quantity(Node):
    """A number with a unit, kept as written (`14 TFLOP/s`); `lang.units` converts it."""

    value: int | float
    unit: str


@dataclass(frozen=True, slots=True)
class Text(Node):
    value: str


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A dotted name. In a program a leading dot means "of this turn of the repeat"."""

    id: str


@dataclass(frozen=True, slots=True)
class Bool(Node):
    value: bool


@dataclass(frozen=True, slots=True)
class Hole(Node):
    """`?`: a choice left to the search."""


@dataclass(frozen=True, slots=True)
class Items(Node):
    """A list `[a, b]`."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """`left op right` with op one of + - * / // %."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Negate(Node):
    operand: Expr


@dataclass(frozen=True, slots=True)
class Arg(Node):
    """`name = value`, or `value` in its place."""

    name: str | None
    value: Expr


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`function(args)`: of an operator, a `def` or arithmetic."""

    function: str
    args: tuple[Arg, ...]


@dataclass(frozen=True, slots=True)
class Placed(Node):
    """One axis of a placement: `R`, `S(dim)`, `P` or `?`."""

    kind: str
    dim: int | None = None


@dataclass(frozen=True, slots=True)
class Value(Node):
    """`name@placement`; several axes are written `name@(S(0), R)`."""

    name: str
    placement: tuple[Placed, ...]


Expr = Number | Quantity | Text | Name | Bool | Hole | Items | Binary | Negate | Call | Value


# -- shared statements ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Import(Statement):
    path: str


@dataclass(frozen=True, slots=True)
class Type(Node):
    """`f32[batch, d]`; a scalar is `f32[]`."""

    dtype: str
    dims: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Parameter(Node):
    """A parameter of a `def` or `model`, with its default."""

    name: str
    default: Expr | None = None


# -- models --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Declare(Statement):
    """`kind names : type [master dtype] [init expr]`, kind one of input, param, frozen, buffer."""

    kind: str
    names: tuple[str, ...]
    type: Type
    init: Expr | None = None
    master: str | None = None


@dataclass(frozen=True, slots=True)
class Assign(Statement):
    """`targets = value [as label]`."""

    targets: tuple[str, ...]
    value: Expr
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Repeat(Block):
    """`repeat variable in count { body }` of a model."""

    variable: str
    count: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Microbatch(Block):
    """`microbatch count { body }` of a model or a program."""

    count: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Return(Statement):
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Output(Statement):
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metric(Statement):
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Train(Statement):
    """`train loss with optimizer(...) [clip norm]`."""

    loss: str
    optimizer: Call
    clip: Expr | None = None


@dataclass(frozen=True, slots=True)
class Group(Statement):
    """`group patterns with optimizer(...)`: how the parameters of these names are updated; `*` stands for any letters."""

    patterns: tuple[str, ...]
    optimizer: Call


@dataclass(frozen=True, slots=True)
class Def(Block):
    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Model(Block):
    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]


# -- operators -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Index(Node):
    """One dim in index notation.

    `names` has one name for a plain dim, several for a merged dim `(h e)` (major first);
    `star` marks `*b`, which stands for any number of dims. A literal extent `3` is the
    name "3".
    """

    names: tuple[str, ...]
    star: bool = False


@dataclass(frozen=True, slots=True)
class Operand(Node):
    """`[kind] name[dims][?]`, kind one of "", buffer, state; `*name[dims]` is variadic, `name[dims] = default` may be a number."""

    name: str
    dims: tuple[Index, ...]
    kind: str = ""
    optional: bool = False
    variadic: bool = False
    default: Expr | None = None


@dataclass(frozen=True, slots=True)
class Attribute(Node):
    """`attr name [= default]`."""

    name: str
    default: Expr | None = None


@dataclass(frozen=True, slots=True)
class Result(Node):
    """An output; the name is "out" where none is written (`named` tells which)."""

    name: str
    dims: tuple[Index, ...]
    named: bool = True


@dataclass(frozen=True, slots=True)
class Sum(Statement):
    """`sum k`: an index whose pieces give partial sums."""

    indices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Whole(Statement):
    """`whole k`: an index that is never cut."""

    indices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Linear(Statement):
    """`linear x` (that operand by itself) or `linear (a, b)` (all of them together)."""

    operands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Size(Statement):
    """`size h2 = expr`: the extent of an index that only the outputs have."""

    index: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Flops(Statement):
    """`flops expr`: floating-point operations of a call, by its indices."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Rule(Node):
    """`targets = value` in a `grad`, `training` or `evaluation` statement; several targets are written `(a, b)`."""

    targets: tuple[str, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Grad(Statement):
    """`grad x = …, w = …`: what the backward pass computes."""

    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Training(Statement):
    """`training y = x`: what stands for an output where a model is trained."""

    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Evaluation(Statement):
    """`evaluation y = x`: what stands for an output where a model is evaluated."""

    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Torch(Statement):
    """`torch "torch.matmul"`: the kernel."""

    target: str


@dataclass(frozen=True, slots=True)
class Dtype(Statement):
    """`dtype y = f32` or `dtype y = an_attr`."""

    output: str
    value: str


@dataclass(frozen=True, slots=True)
class Notation(Statement):
    """`notation spec`: the index notation stands in the attribute `spec`."""

    attribute: str


@dataclass(frozen=True, slots=True)
class At(Statement):
    """`at k = dims`: the index (or star) takes the positions that an attribute lists."""

    index: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Order(Statement):
    """`order y = dims`: the output's dims are permuted by an attribute."""

    output: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Reads(Statement):
    """`reads table = b * d`: so many elements of an operand are read, not all of it."""

    operand: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Op(Block):
    """`op name(operands, attributes) -> results { body }`."""

    name: str
    operands: tuple[Operand, ...]
    attributes: tuple[Attribute, ...]
    results: tuple[Result, ...]
    body: tuple[Statement, ...]


# -- clusters ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting(Node):
    """`name = value`, or `name = { name = value, ... }`."""

    name: str
    value: Expr | tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Part(Node):
    """`count * name [virtual]`."""

    count: int
    name: str
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class Device(Statement):
    """`device name { settings }`, or `device name = base { settings that differ }`; of a cluster, or of a file."""

    name: str
    settings: tuple[Setting, ...]
    base: str | None = None


@dataclass(frozen=True, slots=True)
class HostNode(Statement):
    """`node name = parts [over { link }] [uplink { link to the network }]`."""

    name: str
    parts: tuple[Part, ...]
    link: tuple[Setting, ...] = ()
    uplink: tuple[Setting, ...] = ()


@dataclass(frozen=True, slots=True)
class Network(Statement):
    """`network parts over { link }`."""

    parts: tuple[Part, ...]
    link: tuple[Setting, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured(Statement):
    """`measured kind [on device] [at skew] { 1 MiB = 3 ms, … }`: an operator on one kind of device, or a collective at a skew of its shares."""

    kind: str
    points: tuple[tuple[Quantity, Quantity], ...]
    device: str | None = None
    skew: float | None = None


@dataclass(frozen=True, slots=True)
class Cluster(Block):
    name: str
    body: tuple[Statement, ...]


# -- programs ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mesh(Statement):
    """`mesh nodes = 2, devices = 4`; without it a program has one axis, `devices`."""

    axes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Layers(Node):
    """`[layer in 0..6]` behind a class name: only those turns."""

    variable: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Shares(Statement):
    """`shares class [over axis] = [units per device]`, or `= ?`.

    `values` holds Number and `2 * 76` (Binary); nested Items (one row per outer device)
    cut a class over two axes.
    """

    cls: str
    values: Items | Hole
    axis: str | None = None
    layers: Layers | None = None


@dataclass(frozen=True, slots=True)
class Ratio(Statement):
    """`ratio class [over axis] = [weights]`: rounded to units by largest remainder."""

    cls: str
    values: Items | Hole
    axis: str | None = None
    layers: Layers | None = None


@dataclass(frozen=True, slots=True)
class Fingerprint(Statement):
    """`fingerprint "1:9f86d081"`: the format's version and the model's fingerprint."""

    value: str


@dataclass(frozen=True, slots=True)
class Pin(Statement):
    """`pin tensor @ placement`."""

    name: str
    placement: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class Section(Block):
    """`forward { }`, `backward { }` or `update { }`."""

    kind: str
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Turns(Block):
    """`repeat variable in [reverse] start..stop { }` of a program."""

    variable: str
    start: int
    stop: int
    reverse: bool
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Line(Statement):
    """`outputs = function(args)`: one instruction."""

    outputs: tuple[Value, ...]
    function: str
    args: tuple[Arg, ...]


@dataclass(frozen=True, slots=True)
class Free(Statement):
    """`free values`: they end here."""

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Rest(Statement):
    """`...`: the search writes what is missing."""


@dataclass(frozen=True, slots=True)
class Program(Block):
    """`program name for model[(args)] [on cluster] { }`."""

    name: str
    model: str
    args: tuple[Arg, ...]
    cluster: str | None
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class File(Node):
    """A whole file; `closing` are the comments after its last block."""

    items: tuple[Import | Def | Op | Model | Device | Cluster | Program, ...]
    closing: tuple[str, ...] = ()
