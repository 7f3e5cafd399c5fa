"""Exported operators to statements over values: what every handler uses.

Handlers run over the graph again and again until nothing more is learnt of the dims: what a view far below says of a projection's
width is known when the projection is written the last time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.fx import Node
from torch.utils._pytree import tree_leaves, tree_map

from hapdsl.importing.atoms import Atom, Dim, leaves, root
from hapdsl.importing.clean import changes
from hapdsl.importing.constants import Constant, Constants, NoValue
from hapdsl.importing.handlers import KNOWING
from hapdsl.importing.layouts import Layouts
from hapdsl.importing.trace import Traced, origin
from hapdsl.importing.values import Declared, Followed, Layout, Tensor, Value, flat, resolved, same_layout
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.theory.dtypes import FLOATS

PASSES = 12  # views split what views split: two or three are usual

# Results that share memory with their first operand.
VIEWS = {
    f"aten.{n}"
    for n in (
        "view.default", "reshape.default", "flatten.using_ints", "unflatten.int", "transpose.int", "permute.default", "t.default",
        "unsqueeze.default", "squeeze.dim", "squeeze.default", "expand.default", "select.int", "slice.Tensor", "narrow.default",
        "alias.default", "detach.default", "swapaxes.default", "expand_as.default", "broadcast_to.default", "squeeze.dims", "mT.default",
        "numpy_T.default", "reshape_as.default", "split_with_sizes.default", "split.sizes", "broadcast_tensors.default", "contiguous.default", "unbind.int", "split.Tensor", "chunk.default", "view_as.default",
    )
} | {"<built-in function getitem>"}  # fmt: skip
GETITEM = "<built-in function getitem>"
OVERWRITES = ("aten.copy_", "aten.fill_", "aten.zero_")  # whatever was there
_IN_PLACE = re.compile(r"(aten\.\w*[a-z0-9])_\.(\w+)")

Handler = Callable[..., Any]  # (Builder, Node, *args, **kwargs) -> Value | tuple of Values


class Builder(Layouts):
    """One traced module under translation. `statements` and `declared` are those of the last pass."""

    def __init__(
        self,
        traced: Traced,
        handlers: Callable[[str], Handler | None],
        symbols: Mapping[str, Sequence[Atom]] | None = None,
    ) -> None:
        super().__init__()
        self.traced, self.handlers = traced, handlers
        self.constants = Constants(traced)
        self.given = symbols or {}
        self.env: dict[Node, Any] = {}
        self.known_outputs: list[tuple[str, Value]] = []
        self.base: dict[Node, Node] = {}  # what a view looks at
        self.tabled: dict[Node, int] = {}
        self.renewed: dict[str, Value] = {}  # buffers that have changed in this step
        self.tables: dict[str, torch.Tensor] = {}  # constants that no number says

    # -- the passes ----------------------------------------------------------------

    def run(self) -> None:
        """Translate the graph. Raises HapError HAP874 an unknown operator, HAP875 a change in place, HAP876 a dtype."""
        problem: HapError | None = None
        in_order = self.overwrites_constants()
        for _ in range(PASSES):
            self.ties.changes, problem = 0, None
            before = len(self.merged)
            self.env, self.statements, self.declared, self.known_outputs, self.base = {}, [], {}, [], {}
            self.renewed = {}
            if in_order:
                self.constants.values.clear()
            try:
                for node in self.traced.graph.nodes:
                    self.here = node
                    self.visit(node)
                    if in_order and self.constants.has(node):
                        with suppress(NoValue):  # whoever needs it says so
                            self.constants.value(node)
            except HapError as found:  # what was learnt before it may be all that it lacked: a tensor's equal dims are told apart where it is declared
                problem = found
            if self.ties.changes == 0 and len(self.merged) == before:
                break
        if problem is not None:
            raise problem

    def visit(self, node: Node) -> None:
        if node.op == "placeholder":
            if node.name in self.traced.names and isinstance(node.meta.get("val"), torch.Tensor):
                self.env[node] = self.placeholder(node)
        elif node.op == "call_function":
            self.look(node)
            if self.constants.has(node):
                self.env[node] = self.constant(node)
                self.stays(node)
            else:
                self.env[node] = self.called(node)
        elif node.op == "output":
            found = tree_leaves(node.args)
            values = [self.env[n] for n in found if isinstance(n, Node)]
            names = self.traced.outputs or [f"y{k}" for k in range(len(values))]
            self.known_outputs = [(n, v) for n, v in zip(names, values, strict=False) if isinstance(v, Value)]

    def overwrites_constants(self) -> bool:
        """Is a part of a constant overwritten? Then constants are worked out in the graph's order, so that each reader finds what is there by then."""
        changing = (n for n in self.traced.graph.nodes if n.op == "call_function" and changes(n))
        return any(
            self.constants.has(n) and n.all_input_nodes and n.all_input_nodes[0].op != "placeholder" for n in changing
        )

    def stays(self, node: Node) -> None:
        """A buffer that goes on from what it was in the step before is no constant, if it is read. Raises HapError HAP875."""
        if not changes(node) or not _read(node) or str(node.target).startswith(OVERWRITES):
            return
        changed = node.all_input_nodes[0]
        name = self.traced.names.get(self.base.get(changed, changed).name, ("", ""))[1]
        if name in dict(self.traced.module.named_buffers()):
            where = self.origin
            raise error(
                "HAP875",
                f"{node.target} changes buffer '{name}' in place, so that each step finds another value"
                + (f" ({where})" if str(where) else ""),
                where.span,
                "read a tensor of its own (y = x + 1), or give what depends on the step as an argument",
            )

    def look(self, node: Node) -> None:
        """Remember what a view looks at."""
        if str(node.target) in VIEWS and node.all_input_nodes:
            source = node.all_input_nodes[0]
            # Outputs of one operator have memory of their own.
            apart = str(node.target) == GETITEM and source not in self.base
            if not apart:
                self.base[node] = self.base.get(source, source)

    def placeholder(self, node: Node) -> Value | Constant:
        kind, name = self.traced.names[node.name]
        if kind == "buffer":
            return self.constant(node)
        shape = tuple(node.meta["val"].shape)
        dims = tuple((self.atom(("declared", name, d), n),) for d, n in enumerate(shape))
        if kind == "input" and name in self.given:
            for d, atom in enumerate(self.given[name]):
                self.ties.tie(dims[d], (atom,))
        return self.declare(kind, name, resolved(dims), shape, self.dtype(node.meta["val"]))

    def declare(self, kind: str, name: str, dims: Layout, shape: tuple[int, ...], dtype: str) -> Value:
        dims = self.told_apart(name, dims)
        whole = kind == "input" or name in self.merged
        stored = (
            dims if whole else tuple((a,) for d in dims for a in (d or ())) if any(len(d) > 1 for d in dims) else dims
        )
        if name not in self.declared:
            self.declared[name] = Declared(kind, name, Tensor(name), stored, dtype, shape)
        return Value(self.declared[name].tensor, dims, stored, dtype)

    def told_apart(self, name: str, dims: Layout) -> Layout:
        """Dims of one tensor that operators made one, as in a square matrix between equal widths: the later one is a second index."""
        seen: set[int] = set()
        found: list[Dim] = []
        for dim in dims:
            own = tuple(
                self.atom((name, "second", id(root(a))), a.size, root(a)) if id(root(a)) in seen else a for a in dim
            )
            seen.update(id(root(a)) for a in dim)
            found.append(own)
        return tuple(found)

    def constant(self, node: Node) -> Constant:
        shape = tuple(node.meta["val"].shape) if isinstance(node.meta.get("val"), torch.Tensor) else ()
        dims = tuple((self.atom((node.name, "constant", d), n),) for d, n in enumerate(shape))
        self.measured_by(node, dims)
        return Constant(self.constants, node, resolved(dims))

    def constant_name(self, node: Node) -> str:
        """A name beside the parameters of the module that computes a constant."""
        path = origin(node).path
        words = [n for n in self.traced.graph.nodes if n in self.tabled and origin(n).path == path]
        if node not in self.tabled:
            self.tabled[node] = len(words)
        number = f"{self.tabled[node] + 1}" if self.tabled[node] else ""
        return f"{path}.constant{number}" if path else f"constant{number}"

    def called(self, node: Node) -> Any:
        name = str(node.target)
        if isinstance(node.meta.get("val"), torch.Tensor):
            self.dtype(node.meta["val"])
        in_place = _IN_PLACE.fullmatch(name)
        handler = self.handlers(plain_name(name, in_place))
        args = torch.fx.node.map_arg(node.args, self.env.get)
        kwargs = torch.fx.node.map_arg(node.kwargs, self.env.get)
        try:
            followed = next((a for a in tree_leaves([args, kwargs]) if isinstance(a, Followed)), None)
            if followed is not None:
                found = followed.follow(self, node, plain_name(name, in_place), args, kwargs)
            elif handler is None:
                raise self.unknown(name)
            else:
                if plain_name(name, in_place) not in KNOWING:
                    args, kwargs = tree_map(self.known_tensor, (args, kwargs))
                found = handler(self, node, *args, **kwargs)
            if isinstance(found, Value):
                found = self.handed_on(node, found)
            if in_place:
                self.replace(node, found)
            return found
        except NoValue as problem:
            raise self.refuse(f"buffer {problem}, which has no values on the meta device,") from None
        except TypeError as problem:
            if "positional argument" in str(problem) or "keyword argument" in str(problem):
                raise self.refuse(f"{name} with these arguments") from None
            raise

    def known_tensor(self, x: Any) -> Any:
        return self.table(x) if isinstance(x, Constant) else x

    def table(self, x: Constant) -> Value:
        """A constant that no number says: a tensor of the text, whose values come with the module's weights. What is repeated is kept once."""
        if str(x.node.target) == "aten.expand.default":
            return self.repeats(x)
        name = self.traced.names[x.node.name][1] if x.node.op == "placeholder" else self.constant_name(x.node)
        try:
            tensor = x.tensor
        except NoValue as problem:
            raise self.refuse(f"buffer {problem}, which has no values on the meta device,") from None
        dtype = self.dtype(tensor)
        self.tables[name] = tensor.clone()  # what is overwritten later is another
        return self.declare(
            "frozen" if dtype in FLOATS else "buffer", name, resolved(x.dims), tuple(tensor.shape), dtype
        )

    def repeats(self, x: Constant) -> Value:
        """A constant that repeats another one, which becomes a tensor of the text."""
        assert isinstance(x.node.args[0], Node)
        once = self.table(self.constant(x.node.args[0]))
        own = (*((),) * (len(x.dims) - len(once.dims)), *once.dims)
        for kept, dim in zip(own, x.dims, strict=True):
            if leaves(kept):
                self.tie(kept, dim)
        dims = tuple(leaves(kept) or leaves(dim) for kept, dim in zip(own, x.dims, strict=True))
        return Value(once.tensor, dims, resolved(once.stored), once.dtype)

    def depends_on_parameters(self, x: Value) -> bool:
        """Is x a trained parameter, or made of one so that it passes a gradient?"""
        seen: set[int] = set()
        stack = [x.tensor]
        while stack:
            t = stack.pop()
            if id(t) in seen:
                continue
            seen.add(id(t))
            if t.statement is not None:
                stack.extend(t.statement.passes)
            elif t.name in self.declared and self.declared[t.name].kind == "param":
                return True
        return False

    def buffer(self, x: Constant) -> Value:
        """A buffer of the module's that a step changes."""
        shape = x.shape
        return self.declare(
            "buffer", self.traced.names[x.node.name][1], resolved(x.dims), shape, self.dtype(x.node.meta["val"])
        )

    def current(self, held: Value) -> Value:
        """What a buffer is by now: a module that is called twice goes on from what its first call has left."""
        return self.renewed.get(held.tensor.name, held)

    def update(self, held: Value, value: Value) -> None:
        """`value` is what the buffer is after a step, or before it changes again."""
        name = held.tensor.name
        before = self.renewed.get(name)
        if before is not None:
            assert before.tensor.statement is not None
            before.tensor.statement.updates = ""
        assert value.tensor.statement is not None
        value.tensor.statement.updates = name
        self.renewed[name] = value

    def handed_on(self, node: Node, found: Value) -> Value:
        """What a numbered layer hands to another one is stored as the module sees it, so that all layers find it alike."""
        layer = layer_of(origin(node).path)
        dims = resolved(found.dims)
        crossing = any(layer_of(origin(u).path) != layer for u in node.users if u.op == "call_function")
        if (
            not crossing
            or found.tensor.statement is None
            or any(not d for d in dims)
            or same_layout(found.stored, dims)
        ):
            return found
        if {id(a) for a in found.atoms} != {id(a) for a in flat(dims)}:
            return found
        found = self.fits(Value(found.tensor, dims, resolved(found.stored), found.dtype), dims)
        assert found.tensor.statement is not None
        found.tensor.statement.inner = False
        return found

    def laid(self, owner: Any, piece: Piece, found: Any) -> Value | None:
        """The owner with a new part."""
        handler = self.handlers("hapdsl.laid")
        return handler(self, self.here, owner, piece, found) if handler is not None else None

    def replace(self, node: Node, found: Any) -> None:
        """A change in place: who reads the changed tensor from here on reads the result. Refused where a view shares its memory."""
        target = node.all_input_nodes[0]
        owner = self.base.get(target, target)
        order = {n: k for k, n in enumerate(self.traced.graph.nodes)}
        shared = [n for n in (owner, *(v for v, o in self.base.items() if o is owner)) if n is not target]
        piece = piece_of(target, owner) if target is not owner and owner.op != "placeholder" else None
        if piece is not None:  # whoever reads the owner from here on reads it with its new part
            read = [u for n in shared if n is not owner and not _whole(n, owner) for u in n.users]
            laid = self.laid(self.env[owner], piece, found) if not any(order[u] > order[node] for u in read) else None
            if laid is not None:
                for n in (owner, *(n for n in shared if _whole(n, owner))):
                    self.env[n] = laid
                    self.constants.known[n] = False
                self.env[target] = found
                return
        read_later = any(order[u] > order[node] for n in shared for u in n.users)
        if read_later or owner.op == "placeholder":
            what = "an argument or parameter" if owner.op == "placeholder" else "a tensor that a view shares"
            where = self.origin
            raise error(
                "HAP875",
                f"{node.target} changes {what} in place" + (f" ({where})" if str(where) else ""),
                where.span,
                "write the new value to a tensor of its own: y = x + 1, torch.where, torch.cat",
            )
        self.env[target] = found


Piece = tuple[
    int, int, int, bool, tuple[bool, bool]
]  # dim, start, stop; is the dim gone? are start and stop counted from the end?


def piece_of(view: Node, owner: Node) -> Piece | None:
    """What part of its owner a view is, None where it is more than one slice or selection of it."""
    source = view.args[0]
    if not (isinstance(source, Node) and _whole(source, owner)):
        return None
    extents, (d, *rest) = owner.meta["val"].shape, (*view.args[1:], 0)
    if not isinstance(d, int) or not all(isinstance(r, int | None) for r in rest) or not len(extents):
        return None
    extent = int(extents[d])
    numbers = [r for r in rest if isinstance(r, int | None)]
    if str(view.target) == "aten.select.int":
        back = (numbers[0] or 0) < 0
        start = (numbers[0] or 0) % extent
        return d % len(extents), start, start + 1, True, (back, back)
    if str(view.target) == "aten.slice.Tensor":
        start, stop, step = slice(*numbers[:-1]).indices(extent)
        first, last = (*numbers[:-1], None, None)[:2]
        ends = ((first or 0) < 0, last is None or last < 0 or last >= extent)
        return (d % len(extents), start, stop, False, ends) if step == 1 and stop > start else None
    return None


def _read(changed: Node) -> bool:
    """Does anybody read what a change in place leaves, but for further changes that nobody reads?"""
    return any(not changes(u) or u.all_input_nodes != [changed] or _read(u) for u in changed.users)


def _whole(view: Node, owner: Node) -> bool:
    """Is the view all of its owner, as `x[:]` is?"""
    while view is not owner:
        source = view.args[0] if view.args else None
        if (
            str(view.target) != "aten.slice.Tensor"
            or not isinstance(source, Node)
            or view.meta["val"].shape != source.meta["val"].shape
        ):
            return False
        view = source
    return True


def plain_name(name: str, in_place: re.Match[str] | None) -> str:
    """The operator whose result one that works in place leaves."""
    return f"{in_place[1]}.{in_place[2]}" if in_place else name


def layer_of(path: str) -> str:
    """The outermost numbered layer of a module's path: `h.3` of `h.3.attn.0`."""
    words = path.split(".")
    k = next((k for k, w in enumerate(words) if w.isdigit() and k > 0), None)
    return "" if k is None else ".".join(words[: k + 1])
