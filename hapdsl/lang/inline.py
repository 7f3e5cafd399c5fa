"""The text of everything that stands inside one line: expressions, values, types, indices, settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hapdsl.lang import nodes as n

_TIGHTNESS = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2}
_NEGATION = 3
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def inline(node: n.Node) -> str:
    """The canonical text of a node that is no statement."""
    match node:
        case n.Number(value=value):
            return number(value)
        case n.Quantity(value=value, unit=unit):
            return f"{number(value)} {unit}"
        case n.Text(value=value):
            return text(value)
        case n.Name(id=name):
            return name
        case n.Bool(value=value):
            return "true" if value else "false"
        case n.Hole():
            return "?"
        case n.Items(items=items):
            return f"[{commas(items)}]"
        case n.Binary(op=op, left=left, right=right):
            tight = _TIGHTNESS[op]
            return f"{_operand(left, tight)} {op} {_operand(right, tight + 1)}"
        case n.Negate(operand=operand):
            return f"-{_operand(operand, _NEGATION)}"
        case n.Arg(name=name, value=value) | n.Setting(name=name, value=n.Node() as value):
            return inline(value) if name is None else f"{name} = {inline(value)}"
        case n.Setting(name=name, value=tuple() as settings):
            return f"{name} = {braces(settings)}"
        case n.Call(function=function, args=args):
            return f"{function}({commas(args)})"
        case n.Value(name=name, placement=axes):
            return f"{name}@{placement(axes)}"
        case n.Placed(kind=kind, dim=dim):
            return kind if dim is None else f"{kind}({dim})"
        case n.Type(dtype=dtype, dims=dims):
            return f"{dtype}[{commas(dims)}]"
        case n.Parameter(name=name, default=default):
            return name if default is None else f"{name} = {inline(default)}"
        case n.Attribute(name=name, default=default):
            return f"attr {name}" if default is None else f"attr {name} = {inline(default)}"
        case n.Index(names=names, star=star):
            return f"({' '.join(names)})" if len(names) > 1 else ("*" if star else "") + names[0]
        case n.Operand():
            kind = "*" if node.variadic else f"{node.kind} " if node.kind else ""
            behind = "?" if node.optional else f" = {inline(node.default)}" if node.default is not None else ""
            return f"{kind}{node.name}[{commas(node.dims)}]{behind}"
        case n.Result(name=name, dims=dims, named=named):
            return f"{name if named else ''}[{commas(dims)}]"
        case n.Rule(targets=targets, value=value):
            return f"{together(targets)} = {inline(value)}"
        case n.Part(count=count, name=name, virtual=virtual):
            return f"{count} * {name}{' virtual' if virtual else ''}"
        case n.Layers(variable=variable, start=start, stop=stop):
            return f"[{variable} in {start}..{stop}]"
    raise TypeError(f"no text for {type(node).__name__}")


def commas(items: Iterable[n.Node]) -> str:
    """`a, b, c`."""
    return ", ".join(inline(item) for item in items)


def number(value: float) -> str:
    """The shortest text that reads back as the same number."""
    return repr(value)


def text(value: str) -> str:
    """A text in quotes, with its escapes."""
    return f'"{value.translate(_ESCAPES)}"'


def placement(axes: Sequence[n.Placed]) -> str:
    """`S(0)`, or `(S(0), R)` on several axes."""
    return inline(axes[0]) if len(axes) == 1 else f"({commas(axes)})"


def braces(settings: Sequence[n.Setting]) -> str:
    """`{ a = 1, b = 2 }`."""
    return f"{{ {commas(settings)} }}" if settings else "{ }"


def together(names: Sequence[str]) -> str:
    """`a`, or `(a, b)`."""
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _operand(node: n.Expr, tight: int) -> str:
    """With parentheses where the operand binds less tightly than its place asks for."""
    shown = inline(node)
    return f"({shown})" if isinstance(node, n.Binary) and _TIGHTNESS[node.op] < tight else shown
