"""Hypothesis strategies for whole trees: every kind of node, with comments and blank lines.

They make the trees that the parser makes: a minus before a literal is part of the number, a first statement has no
gap, blank lines between comments are single.
"""

from __future__ import annotations

import dataclasses
import re

from hypothesis import strategies as st

from hapdsl.lang import nodes as n
from hapdsl.lang.resources import grammar_file

KEYWORDS = sorted(set(re.findall(r'"([a-z]+)"', grammar_file().read_text(encoding="utf-8"))))

_word = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
_dotted = st.builds(lambda head, tail: ".".join([head, *tail]), _word, st.lists(st.from_regex(r"[a-z0-9]{1,4}", fullmatch=True), max_size=3))  # fmt: skip
_usual = st.sampled_from(["x", "w1", "layer.3.attn.w", "w.grad", "w1.m.new", "h", "ln1.weight"])
# Where only a name can stand, words of the language are names, too.
name = st.one_of(_usual, _dotted, st.sampled_from(KEYWORDS))
first_name = st.one_of(_usual, _dotted).filter(lambda s: s not in KEYWORDS)
_operand_name = name.filter(lambda s: s not in ("attr", "buffer", "state"))
_expression_name = name.filter(lambda s: s not in ("true", "false"))
_turn_name = name.map(lambda s: "." + s)

_whole = st.integers(0, 2**63 - 1) | st.integers(0, 4096)
_line = st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r")
string = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
comment = st.one_of(
    st.text(_line, max_size=20), st.sampled_from(['"', "# twice", "x = f(y)", "}", "{", ""])
).map(str.strip)  # fmt: skip


def several(strategy, most=3):
    return st.lists(strategy, min_size=1, max_size=most).map(tuple)


def any_number(strategy, most=3):
    return st.lists(strategy, max_size=most).map(tuple)


# -- expressions ---------------------------------------------------------------

number = st.one_of(
    _whole, _whole.map(lambda i: -i), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([0.5, 1e-8, 1e22])
).map(n.Number)  # fmt: skip
hole = st.just(n.Hole())
_leaf = st.one_of(
    number, st.builds(n.Name, _expression_name), st.builds(n.Text, string), st.builds(n.Bool, st.booleans())
)


def _larger(inner):
    call = st.builds(n.Call, _expression_name, any_number(_arg(inner)))
    return st.one_of(
        st.builds(n.Items, any_number(inner)),
        st.builds(n.Binary, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner, inner),
        st.builds(n.Negate, inner.filter(lambda e: not isinstance(e, n.Number))),
        call,
    )


def _arg(value):
    return st.builds(n.Arg, st.none() | _expression_name, value)


expression = st.recursive(_leaf, _larger, max_leaves=8)
# Long enough to be wrapped.
_long_list = st.lists(st.integers(0, 99999).map(n.Number), min_size=40, max_size=60).map(lambda v: n.Items(tuple(v)))
call = st.builds(n.Call, _expression_name, any_number(_arg(expression)))

# -- statements ----------------------------------------------------------------


def _spaced(lines, first_blank):
    """Comments with single blank lines between them; never a blank one last, or first unless allowed."""

    def build(texts, blanks, leads):
        out = [n.BLANK] if leads and first_blank and texts else []
        for text, blank in zip(texts, blanks, strict=False):
            out += [text, n.BLANK] if blank else [text]
        return tuple(out[:-1] if out and out[-1] == n.BLANK and lines == "closing" else out)

    texts = st.lists(comment, max_size=2)
    return st.builds(build, texts, st.lists(st.booleans(), min_size=2, max_size=2), st.booleans())


_layout = {
    "leading": st.just(()) | _spaced("leading", False),
    "trailing": st.none() | comment,
    "gap": st.booleans(),
}


def statement(node, /, *args, **fields):
    return st.builds(node, *args, **fields, **_layout)


def _body(statements, most=4):
    return st.lists(statements, max_size=most).map(_settle)


def _settle(items):
    """A first statement has no gap."""
    return tuple(s if i or not s.gap else _replace(s, gap=False) for i, s in enumerate(items))


def _replace(node, **changes):
    return dataclasses.replace(node, **changes)


def _end(block):
    """A blank line can stand before the closing comments only where something is above them."""
    if not block.body and block.closing[:1] == (n.BLANK,):
        return _replace(block, closing=block.closing[1:])
    return block


def block(node, statements, /, **fields):
    closing = st.just(()) | _spaced("closing", True)
    return st.builds(node, body=_body(statements), closing=closing, **fields, **_layout).map(_end)


type_ = st.builds(n.Type, st.sampled_from(["f32", "i64", "bf16"]), any_number(expression))
declare = statement(n.Declare, st.sampled_from(["input", "param", "frozen", "buffer"]), several(name), type_, st.none() | expression, st.none() | name)  # fmt: skip
assign = statement(n.Assign, st.builds(lambda a, b: (a, *b), first_name, any_number(name)), expression | _long_list, st.none() | name)  # fmt: skip
_loop_leaf = declare | assign


def _loops(inner):
    return st.one_of(
        block(n.Repeat, inner, variable=name, count=expression), block(n.Microbatch, inner, count=expression)
    )


loop_statement = st.recursive(_loop_leaf, lambda inner: _loops(inner | _loop_leaf), max_leaves=4)
_def_leaf = _loop_leaf | statement(n.Return, several(expression))
def_statement = st.recursive(
    _def_leaf, lambda inner: block(n.Repeat, inner, variable=name, count=expression), max_leaves=4
)
_pattern = name | st.sampled_from(["*", "*.bias", "layer.*.ln*.weight", "b*", "w.3*.x", "*.0"])
model_statement = st.one_of(
    loop_statement, statement(n.Output, several(name)), statement(n.Metric, several(name)), statement(n.Train, name, call, st.none() | expression),
    statement(n.Group, several(_pattern), call),
)  # fmt: skip
_parameter = st.builds(n.Parameter, name, st.none() | expression)
def_ = block(n.Def, def_statement, name=name, parameters=any_number(_parameter))
model = block(n.Model, model_statement, name=name, parameters=any_number(_parameter))

_index_name = name | st.integers(0, 99).map(str)
index = st.one_of(
    st.builds(lambda i: n.Index((i,)), _index_name),
    st.builds(lambda i: n.Index((i,), star=True), name),
    st.lists(_index_name, min_size=2, max_size=3).map(lambda i: n.Index(tuple(i))),
)
_dims = any_number(index)
operand = st.one_of(
    st.builds(n.Operand, _operand_name, _dims, st.sampled_from(["", "buffer", "state"]), st.booleans()),
    st.builds(n.Operand, name, _dims, optional=st.booleans(), variadic=st.just(True)),
    st.builds(n.Operand, _operand_name, _dims, default=expression),
)
result = st.builds(n.Result, name, _dims) | st.builds(lambda d: n.Result("out", d, named=False), _dims)
_rule = st.builds(n.Rule, several(name), expression)
op_statement = st.one_of(
    statement(n.Sum, several(name)), statement(n.Whole, several(name)), statement(n.Linear, several(name)),
    statement(n.Size, name, expression), statement(n.Flops, expression), statement(n.Tiled, several(index)), statement(n.Grad, several(_rule)),
    statement(n.Training, several(_rule)), statement(n.Evaluation, several(_rule)),
    statement(n.Without, name, several(_rule)),
    statement(n.Torch, string), statement(n.Dtype, name, name), statement(n.Notation, name),
    statement(n.At, name, expression), statement(n.Order, name, expression), statement(n.Reads, name, expression),
)  # fmt: skip
op = block(
    n.Op, op_statement, name=name, operands=any_number(operand),
    attributes=any_number(st.builds(n.Attribute, name, st.none() | expression)), results=several(result),
)  # fmt: skip

quantity = st.builds(
    n.Quantity,
    number.map(lambda x: x.value),
    st.sampled_from(["GiB", "TFLOP/s", "Gbit/s", "us", "as", "e", "µs", "\u03bcs"]),
)
setting = st.recursive(
    st.builds(n.Setting, name, expression | quantity),
    lambda inner: st.builds(n.Setting, name, any_number(inner)),
    max_leaves=3,
)
_part = st.builds(n.Part, st.integers(0, 512), name, st.booleans())
device = statement(n.Device, name, any_number(setting), st.none() | name)
cluster_statement = st.one_of(
    device,
    statement(n.HostNode, name, several(_part), any_number(setting), any_number(setting)),
    statement(n.Network, several(_part), any_number(setting)),
    statement(
        n.Measured,
        name,
        any_number(st.tuples(quantity, quantity)),
        st.none() | name,
        st.none() | number.map(lambda x: abs(x.value)),
    ),
)
cluster = block(n.Cluster, cluster_statement, name=name)

placed = st.sampled_from(["R", "P", "?"]).map(n.Placed) | _whole.map(lambda d: n.Placed("S", d))
placement = several(placed)
value = st.builds(n.Value, name | _turn_name, placement)
_first_value = st.builds(n.Value, first_name | _turn_name, placement)
_read_value = st.builds(n.Value, _expression_name | _turn_name, placement)
_dealt = {
    "cls": name, "values": hole | _long_list | st.builds(n.Items, any_number(expression)), "axis": st.none() | name,
    "layers": st.none() | st.builds(n.Layers, name, st.integers(0, 99), st.integers(0, 99)),
}  # fmt: skip
_program_leaf = st.one_of(
    statement(n.Mesh, several(st.tuples(name, st.integers(0, 64)))),
    statement(n.Shares, **_dealt),
    statement(n.Ratio, **_dealt),
    statement(n.Fingerprint, string),
    statement(n.Pin, name | _turn_name, placement),
    statement(n.Line, st.builds(lambda a, b: (a, *b), _first_value, any_number(value)), name, any_number(_arg(expression | _read_value | hole))),
    statement(n.Free, several(value)),
    statement(n.Rest),
)  # fmt: skip


def _program_blocks(inner):
    return st.one_of(
        block(n.Section, inner, kind=st.sampled_from(["forward", "backward", "update"])),
        block(n.Turns, inner, variable=name, start=st.integers(0, 99), stop=st.integers(0, 99), reverse=st.booleans()),
        block(n.Microbatch, inner, count=expression),
    )


program_statement = st.recursive(_program_leaf, lambda inner: _program_blocks(inner | _program_leaf), max_leaves=6)
program = block(
    n.Program, program_statement, name=name, model=name, args=any_number(_arg(expression)), cluster=st.none() | name
)

item = st.one_of(statement(n.Import, string), def_, model, op, device, cluster, program)


def _file(items, closing):
    if not items and closing[:1] == (n.BLANK,):
        closing = closing[1:]
    return n.File(_settle(items), closing)


file = st.builds(_file, st.lists(item, max_size=3), st.just(()) | _spaced("closing", True))
