"""Tree to text: the canonical printer, which is also the formatter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hapdsl.lang import nodes as n
from hapdsl.lang.inline import braces, commas, inline, number, placement, text, together
from hapdsl.lang.layout import INDENT, WIDTH, Row, comment, lines


def to_text(node: n.Node) -> str:
    """The canonical text of a file (which ends with a newline), of a statement or block, or of a part of one.

    `parse(to_text(file)) == file`, and printing what was parsed from printed text changes nothing.
    """
    if isinstance(node, n.File):
        return "".join(line + "\n" for line in _body(node.items, node.closing, 0))
    if isinstance(node, n.Statement):
        return "\n".join(_body((node,), (), 0))
    return inline(node)


def _body(statements: Sequence[Any], closing: Sequence[str], indent: int) -> Iterator[str]:
    """The lines of a file's or block's statements and of the comments at its end."""
    rows: list[Row] = []
    pad = _keyword_width(statements)
    for i, statement in enumerate(statements):
        above = _above(statement, first=i == 0)
        shown = _on_one_line(statement, indent) if isinstance(statement, n.Block) else None
        if isinstance(statement, n.Block) and shown is None:
            yield from lines(rows, indent)
            rows = []
            margin = " " * indent
            yield from (margin + line if line else "" for line in above)
            yield from _block(statement, indent)
            continue
        row = _row(statement, pad) if shown is None else Row(shown)
        rows.append(replace(row, apart=bool(above), comment=statement.trailing, above=tuple(above)))
    yield from lines(rows, indent)
    for i, entry in enumerate(closing):
        if entry != n.BLANK:
            yield " " * indent + comment(entry)
        elif i or statements:
            yield ""


def _above(statement: n.Statement, first: bool) -> list[str]:
    """What stands above a statement: an empty line, comments."""
    above = [""] if statement.gap and not first else []
    return above + ["" if entry == n.BLANK else comment(entry) for entry in statement.leading]


def _block(block: Any, indent: int) -> Iterator[str]:
    *before, last = _wrapped(f"{_header(block)} {{", indent)
    yield from before
    yield last if block.trailing is None else f"{last}  {comment(block.trailing)}"
    yield from _body(block.body, block.closing, indent + INDENT)
    yield " " * indent + "}"


def _wrapped(header: str, indent: int) -> Iterator[str]:
    return lines([Row(header)], indent)


def _on_one_line(block: Any, indent: int) -> str | None:
    """A block that may stand on one line, because it is empty or because the author wrote it so."""
    header = _header(block)
    if not block.body and not block.closing:
        return f"{header} {{ }}"
    if not block.inline or block.closing:
        return None
    parts = []
    for statement in block.body:
        if statement.leading or statement.trailing is not None:
            return None
        if isinstance(statement, n.Block):
            part = _on_one_line(statement, indent)
            if part is None:
                return None
        else:
            row = _row(statement, 0)
            part = " ".join(piece for piece in (row.left, row.right, row.last) if piece)
        parts.append(part)
    shown = f"{header} {{ {'; '.join(parts)} }}"
    return shown if indent + len(shown) <= WIDTH else None


# -- blocks --------------------------------------------------------------------


def _header(block: n.Block) -> str:
    match block:
        case n.Def():
            return f"def {block.name}({commas(block.parameters)})"
        case n.Model():
            parameters = f"({commas(block.parameters)})" if block.parameters else ""
            return f"model {block.name}{parameters}"
        case n.Op():
            given = ", ".join(inline(x) for x in (*block.operands, *block.attributes))
            return f"op {block.name}({given}) -> {commas(block.results)}"
        case n.Cluster():
            return f"cluster {block.name}"
        case n.Program():
            args = f"({commas(block.args)})" if block.args else ""
            on = f" on {block.cluster}" if block.cluster else ""
            return f"program {block.name} for {block.model}{args}{on}"
        case n.Repeat():
            return f"repeat {block.variable} in {inline(block.count)}"
        case n.Turns():
            reverse = "reverse " if block.reverse else ""
            return f"repeat {block.variable} in {reverse}{block.start}..{block.stop}"
        case n.Microbatch():
            return f"microbatch {inline(block.count)}"
        case n.Section():
            return block.kind
    raise TypeError(f"no text for {type(block).__name__}")


# -- statements ----------------------------------------------------------------

_OP_KEYWORDS = {
    n.Sum: "sum", n.Whole: "whole", n.Linear: "linear", n.Size: "size", n.Flops: "flops", n.Tiled: "tiled",
    n.Grad: "grad", n.Training: "training", n.Evaluation: "evaluation", n.Without: "without",
    n.Torch: "torch", n.Dtype: "dtype", n.Notation: "notation", n.At: "at", n.Order: "order", n.Reads: "reads",
}  # fmt: skip


def _keyword_width(statements: Sequence[n.Statement]) -> int:
    """The longest keyword of an operator's body, to which the others are padded."""
    return max((len(_OP_KEYWORDS.get(type(s), "")) for s in statements), default=0)


def _row(statement: n.Statement, pad: int) -> Row:
    if (keyword := _OP_KEYWORDS.get(type(statement))) is not None:
        return Row(f"{keyword.ljust(pad)} {_op_statement(statement)}")
    match statement:
        case n.Import(path=path):
            return Row(f"import {text(path)}")
        case n.Declare(kind=kind, names=names, type=type_, init=init, master=master, sign=sign):
            left, right = f"{kind} {', '.join(names)}", f": {inline(type_)}{f' master {master}' if master else ''}"
            if init is None:
                return Row(left, right, "", "declare", sign)
            same_line = init.span.line == statement.span.line
            last_column = init.span.column - len("init ") - statement.span.column if same_line else 0
            return Row(left, right, f"init {inline(init)}", "declare", sign, last_column)
        case n.Assign(targets=targets, value=value, label=label, sign=sign):
            shown = f"= {inline(value)}{f' as {label}' if label else ''}"
            return Row(", ".join(targets), shown, "", "assign", sign)
        case n.Return(values=values):
            return Row(f"return {commas(values)}")
        case n.Output(names=names):
            return Row(f"output {', '.join(names)}")
        case n.Metric(names=names):
            return Row(f"metric {', '.join(names)}")
        case n.Train(loss=loss, optimizer=optimizer, clip=clip):
            return Row(f"train {loss} with {inline(optimizer)}{f' clip {inline(clip)}' if clip is not None else ''}")
        case n.Group(patterns=patterns, optimizer=optimizer):
            return Row(f"group {', '.join(patterns)} with {inline(optimizer)}")
        case n.Device(name=name, settings=settings, base=base, sign=sign):
            return Row(f"device {name}{f' = {base}' if base else ''}", braces(settings), "", "device", sign)
        case n.HostNode(name=name, parts=parts, link=link, uplink=uplink, sign=sign):
            leaving = f" uplink {braces(uplink)}" if uplink else ""
            return Row(f"node {name}", f"= {_parts(parts, link)}{leaving}", "", "node", sign)
        case n.Network(parts=parts, link=link):
            return Row(f"network {_parts(parts, link)}")
        case n.Measured(kind=kind, points=points, device=device, skew=skew):
            shown = ", ".join(f"{inline(size)} = {inline(time)}" for size, time in points)
            what = (
                f"measured {kind}{f' on {device}' if device else ''}{f' at {number(skew)}' if skew is not None else ''}"
            )
            return Row(f"{what} {{ {shown} }}" if points else f"{what} {{ }}")
        case n.Shares() | n.Ratio():
            return _dealt(statement)
        case n.Mesh(axes=axes):
            return Row("mesh " + ", ".join(f"{name} = {number(count)}" for name, count in axes))
        case n.Fingerprint(value=value):
            return Row(f"fingerprint {text(value)}")
        case n.Pin(name=name, placement=axes):
            return Row(f"pin {name} @ {placement(axes)}")
        case n.Line(outputs=outputs, function=function, args=args, sign=sign):
            return Row(commas(outputs), f"= {function}({commas(args)})", "", "line", sign)
        case n.Free(values=values):
            return Row(f"free {commas(values)}")
        case n.Rest():
            return Row("...")
    raise TypeError(f"no text for {type(statement).__name__}")


def _op_statement(statement: n.Statement) -> str:
    match statement:
        case n.Sum(indices=names) | n.Whole(indices=names):
            return ", ".join(names)
        case n.Linear(operands=operands):
            return together(operands)
        case n.Tiled(dims=dims):
            return commas(dims)
        case (
            n.Size(index=name, value=value)
            | n.At(index=name, value=value)
            | n.Order(output=name, value=value)
            | n.Reads(operand=name, value=value)
        ):
            return f"{name} = {inline(value)}"
        case n.Flops(value=value):
            return inline(value)
        case n.Grad(rules=rules) | n.Training(rules=rules) | n.Evaluation(rules=rules):
            return commas(rules)
        case n.Without(attribute=attribute, rules=rules):
            return f"{attribute} : {commas(rules)}"
        case n.Torch(target=target):
            return text(target)
        case n.Dtype(output=output, value=value):
            return f"{output} = {value}"
        case n.Notation(attribute=attribute):
            return attribute
    raise TypeError(f"no text for {type(statement).__name__}")


def _dealt(statement: n.Shares | n.Ratio) -> Row:
    word = "shares" if isinstance(statement, n.Shares) else "ratio"
    layers = inline(statement.layers) if statement.layers else ""
    over = f" over {statement.axis}" if statement.axis else ""
    return Row(f"{word} {statement.cls}{layers}{over}", f"= {inline(statement.values)}", "", "shares", statement.sign)


def _parts(parts: Sequence[n.Part], link: Sequence[n.Setting]) -> str:
    return commas(parts) + (f" over {braces(link)}" if link else "")
