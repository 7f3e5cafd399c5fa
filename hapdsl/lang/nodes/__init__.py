"""The tree of the language: what `parse` returns and `print` writes.

The shape of every node is given here once, as a small grammar in dataclasses. Nodes are immutable and compare by content: `span` (where it
stood in the text) never takes part in a comparison, comments do, so `parse(print(t)) == t` says that comments survive too.

    File      = (Import | Def | Op | Model | Device | Cluster | Program)*
    Model     = (Declare | Assign | Repeat | Microbatch | Output | Metric | Train | Group)*
    Def       = (Declare | Assign | Repeat | Return)*
    Op        = (Sum | Linear | Whole | Size | Flops | Tiled | Grad | Training | Evaluation | Without | Torch | Dtype | Notation | At | Order | Reads)*
    Cluster   = (Device | HostNode | Network | Measured)*
    Program   = (Mesh | Shares | Ratio | Fingerprint | Pin | Section | Turns | Microbatch | Line | Free | Rest)*
"""

from __future__ import annotations

from dataclasses import dataclass

from hapdsl.lang.nodes.base import BLANK, NOWHERE, Block, Node, Span, Statement
from hapdsl.lang.nodes.clusters import Cluster, Device, HostNode, Measured, Network, Part, Setting
from hapdsl.lang.nodes.expressions import (
    Arg,
    Binary,
    Bool,
    Call,
    Expr,
    Hole,
    Items,
    Name,
    Negate,
    Number,
    Parameter,
    Placed,
    Quantity,
    Text,
    Type,
    Value,
)
from hapdsl.lang.nodes.models import (
    Assign,
    Declare,
    Def,
    Group,
    Metric,
    Microbatch,
    Model,
    Output,
    Repeat,
    Return,
    Train,
)
from hapdsl.lang.nodes.operators import (
    At,
    Attribute,
    Dtype,
    Evaluation,
    Flops,
    Grad,
    Index,
    Linear,
    Notation,
    Op,
    Operand,
    Order,
    Reads,
    Result,
    Rule,
    Size,
    Sum,
    Tiled,
    Torch,
    Training,
    Whole,
    Without,
)
from hapdsl.lang.nodes.programs import (
    Fingerprint,
    Free,
    Layers,
    Line,
    Mesh,
    Pin,
    Program,
    Ratio,
    Rest,
    Section,
    Shares,
    Turns,
)

__all__ = [
    "BLANK", "NOWHERE", "Arg", "Assign", "At", "Attribute", "Binary", "Block", "Bool", "Call", "Cluster", "Declare",
    "Def", "Device", "Dtype", "Evaluation", "Expr", "File", "Fingerprint", "Flops", "Free", "Grad", "Group", "Hole",
    "HostNode", "Import", "Index", "Items", "Layers", "Line", "Linear", "Measured", "Mesh", "Metric", "Microbatch",
    "Model", "Name", "Negate", "Network", "Node", "Notation", "Number", "Op", "Operand", "Order", "Output",
    "Parameter", "Part", "Pin", "Placed", "Program", "Quantity", "Ratio", "Reads", "Repeat", "Rest", "Result",
    "Return", "Rule", "Section", "Setting", "Shares", "Size", "Span", "Statement", "Sum", "Text", "Tiled", "Torch",
    "Train", "Training", "Turns", "Type", "Value", "Whole", "Without",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Import(Statement):
    path: str


@dataclass(frozen=True, slots=True)
class File(Node):
    """A whole file; `closing` are the comments after its last block."""

    items: tuple[Import | Def | Op | Model | Device | Cluster | Program, ...]
    closing: tuple[str, ...] = ()
