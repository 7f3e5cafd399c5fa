"""The translated module as a model's text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hapdsl.importing import defs
from hapdsl.importing.attributes import attributes
from hapdsl.importing.build import Builder
from hapdsl.importing.names import Symbols
from hapdsl.importing.roll import Layer, Piece, Rolled, Run, loose, roll
from hapdsl.importing.values import Declared, Statement, Tensor, Value
from hapdsl.lang import nodes
from hapdsl.lang.inline import inline
from hapdsl.theory.library import standard

# Words that can't begin a statement with another meaning, and names that hapdsl makes itself.
KEYWORDS = {
    "input", "param", "frozen", "buffer", "repeat", "microbatch", "output", "metric", "train", "return", "path", "grad", "new", "true", "false",
}  # fmt: skip
RESERVED = ("grad", "new", "path")
# What an operator's result is called where no module gives it a name.
NOUNS = {
    "add": "added", "sub": "difference", "mul": "product", "div": "quotient", "matmul": "product", "matmul_nt": "product", "bmm": "product",
    "bmm_nt": "scores", "einsum": "product", "rearrange": "turned", "reshape": "reshaped", "scale": "scaled", "shift": "shifted", "slice": "part",
    "concat": "joined", "pad": "padded", "spread": "repeated", "attention": "attended", "softmax": "weights", "embedding": "rows",
}  # fmt: skip
LONGEST_ROW = 70  # characters of names that are declared together
LONGEST_NEST = 90  # characters of a call that is written inside another one


class Writer:
    """Statements, declarations and symbols to the nodes of a model."""

    def __init__(
        self, builder: Builder, symbols: Symbols, statements: list[Statement], optimizer: nodes.Call | None
    ) -> None:
        self.builder, self.symbols, self.optimizer = builder, symbols, optimizer
        self.declared = builder.declared
        self.statements = statements
        self.names: dict[int, str] = {id(d.tensor): d.name for d in self.declared.values()}
        self.taken: set[str] = {d.name for d in self.declared.values()} | set(symbols.values)
        self.readers: dict[int, int] = {}
        for s in statements:
            for t in s.operands:
                self.readers[id(t)] = self.readers.get(id(t), 0) + 1
        self.counts: dict[str, str] = {}
        self.carried_names: dict[int, str] = {}
        self.defs: list[nodes.Def] = []
        self.layers: dict[str, defs.Layer] = {}
        self.calls: dict[str, tuple[str, list[nodes.Expr]]] = {}
        self.roles = {
            id(t): w for s in statements if s.op == "attention" for t, w in zip(s.operands, "qkv", strict=False)
        }
        paths = [s.origin.path for s in statements]
        inner = {p.rpartition(".")[0] for p in paths}
        final = {s.origin.path: s for s in statements}
        self.leaf = {id(s) for p, s in final.items() if p and p not in inner}

    # -- the whole -----------------------------------------------------------------------

    def model(
        self, name: str, loss: Value | None, outputs: Sequence[tuple[str, Value]], note: Sequence[str]
    ) -> nodes.Model:
        kept = {id(v.tensor) for _, v in outputs} | ({id(loss.tensor)} if loss is not None else set())
        if loss is not None:
            self.names[id(loss.tensor)] = self.free("loss")
        for word, v in outputs:
            if id(v.tensor) not in self.names:
                self.names[id(v.tensor)] = self.free(word)
        pieces = self.define(roll(self.statements, self.declared, self.shown, kept), kept)
        self.count_turns(pieces)
        rolled = {f"{p.path}." for p in pieces if not isinstance(p, Run)}
        top = [
            d for d in self.declared.values() if id(d.tensor) in self.readers and not d.name.startswith(tuple(rolled))
        ]
        body: list[nodes.Statement] = [*self.inputs(top), *self.declarations(top, "")]
        self.name_carried(pieces, kept)
        for piece in pieces:
            match piece:
                case Run(statements=statements):
                    body.extend(self.run(statements, "", self.taken))
                case Rolled():
                    body.extend(self.repeat(piece))
                case Layer(path=path):
                    body.append(self.called(path))
        if loss is not None and self.optimizer is not None:
            shown = [self.names[id(v.tensor)] for _, v in outputs if v.tensor.statement is not None]
            body.extend([nodes.Output(tuple(dict.fromkeys(shown)))] if shown else [])
            body.append(nodes.Train(self.names[id(loss.tensor)], self.optimizer))
        else:
            shown = [self.names[id(v.tensor)] for v in [*([loss] if loss else []), *(v for _, v in outputs)]]
            body.append(nodes.Output(tuple(dict.fromkeys(shown))))
        parameters = (
            *self.symbols.parameters(),
            *(nodes.Parameter(n, nodes.Number(int(v))) for n, v in self.counts.items()),
        )
        return nodes.Model(name, parameters, tuple(body), leading=tuple(note))

    # -- defs --------------------------------------------------------------------------------

    def define(self, pieces: list[Piece], kept: set[int]) -> list[Piece]:
        """Layers that are alike but for numbers become calls of one def; the others go with the statements around them."""
        found: dict[str, list[defs.Layer]] = {}
        for piece in pieces:
            if isinstance(piece, Layer) and len(piece.statements) >= defs.SHORTEST:
                layer = self.layer(piece, kept)
                found.setdefault(layer.key, []).append(layer)
        for layers in found.values():
            if len(layers) < 2:
                continue
            name = self.def_name(layers[0].path)
            tensors = [f"x{k + 1}" if k else "x" for k in range(len(layers[0].reads))]
            definition = defs.define(name, layers, tensors, list(self.symbols.values))
            self.defs.append(definition.block)
            for layer in layers:
                self.layers[layer.path] = layer
                self.calls[layer.path] = (name, definition.arguments[layer.path])
        return loose(pieces, lambda p: p.path in self.calls)

    def layer(self, piece: Layer, kept: set[int]) -> defs.Layer:
        """A layer as the body of a def."""
        scope = f"{piece.path}."
        made = {id(t) for s in piece.statements for t in s.makes}
        read: dict[int, Tensor] = {}
        for s in piece.statements:
            for t in s.operands:
                if id(t) not in made and not (t.statement is None and t.name.startswith(scope)):
                    read.setdefault(id(t), t)
        inside = {id(s) for s in piece.statements}
        outside = kept | {id(t) for s in self.statements if id(s) not in inside for t in s.operands}
        returns = [t for s in piece.statements for t in s.makes if id(t) in outside]
        names, taken = dict(self.names), set(self.taken)
        self.names.update({id(t): f"x{k + 1}" if k else "x" for k, t in enumerate(read.values())})
        for t in returns:
            self.names.pop(id(t), None)
        own = [d for d in self.declared.values() if d.name.startswith(scope) and id(d.tensor) in self.readers]
        here = {*self.symbols.values, *(self.names[i] for i in read), *(d.name[len(scope) :] for d in own)}
        body = (*self.declarations(own, scope), *self.run(piece.statements, scope, here))
        inner = [self.names[id(t)] for t in returns]
        self.names, self.taken = names, taken
        return defs.Layer(piece.path, body, list(read.values()), returns, inner)

    def def_name(self, path: str) -> str:
        """After the class of the layer's module."""
        try:
            word = type(self.builder.traced.module.get_submodule(path)).__name__.lower()
        except AttributeError:
            word = "layer"
        taken = {d.name for d in self.defs} | set(standard())
        return next(w for w in (word, *(f"{word}{k}" for k in range(2, 999))) if w not in taken)

    def called(self, path: str) -> nodes.Statement:
        layer = self.layers[path]
        name, numbers = self.calls[path]
        targets = []
        for k, t in enumerate(layer.returns):
            if id(t) not in self.names:
                self.names[id(t)] = self.free(path if k == len(layer.returns) - 1 else f"{path}.{layer.names[k]}")
            targets.append(self.names[id(t)])
        tensors = [nodes.Name(self.local(t, "")) for t in layer.reads]
        args = tuple(nodes.Arg(None, e) for e in (*tensors, *numbers))
        return nodes.Assign(tuple(targets), nodes.Call(name, args), path)

    def count_turns(self, pieces: Iterable[Piece]) -> None:
        """One repeat: its turns are the parameter `layers`. Of several, each has the number itself."""
        rolled = [p for p in pieces if isinstance(p, Rolled)]
        if len(rolled) == 1 and "layers" not in self.taken:
            self.counts["layers"] = str(rolled[0].turns)
            self.taken.add("layers")

    def name_carried(self, pieces: Sequence[Piece], kept: set[int]) -> None:
        """What a repeat carries on has one name: before it, inside, and behind it."""
        for piece in pieces:
            if not isinstance(piece, Rolled):
                continue
            for before, after in piece.carried:
                word = self.names.get(id(before))
                loaded = before.statement is None
                if (
                    word is None
                    or loaded
                    or self.readers.get(id(before), 0) > sum(t is before for s in piece.body for t in s.operands)
                ):
                    word = self.free("x")
                if not loaded and id(before) not in self.names and id(before) not in kept:
                    self.names[id(before)] = word
                self.carried_names[id(after)] = word
                self.names.setdefault(id(piece.last[after]), word)

    # -- statements -------------------------------------------------------------------------

    def run(self, statements: Sequence[Statement], scope: str, taken: set[str]) -> list[nodes.Statement]:
        here = {id(s.result) for s in statements}
        read_here: dict[int, int] = {}
        for s in statements:
            for t in s.operands:
                read_here[id(t)] = read_here.get(id(t), 0) + 1
        nested: dict[int, nodes.Expr] = {}
        made: list[nodes.Statement] = []
        for s in statements:
            call = self.call(s, nested, scope)
            if s.results:
                path = self.wanted(s, scope).rpartition(".")[0]
                for t, word in zip(s.results, s.words, strict=True):
                    self.names.setdefault(id(t), self.free(f"{path}.{word}" if path else word, taken))
                made.append(nodes.Assign(tuple(self.names[id(t)] for t in s.results), call))
                continue
            if s.updates:
                held_as = said(s.updates[len(scope) :] if s.updates.startswith(scope) else s.updates)
                made.append(nodes.Assign((f"{held_as}.new",), call))
                continue
            once = self.readers.get(id(s.result), 0) == 1 == read_here.get(id(s.result), 0)
            plain = not any(id(t) in nested for t in s.operands)
            if (
                s.inner
                and once
                and plain
                and id(s.result) not in self.roles
                and id(s.result) in here
                and id(s.result) not in self.names
                and len(inline(call)) < LONGEST_NEST
            ):
                nested[id(s.result)] = call
                continue
            if id(s.result) not in self.names:
                self.names[id(s.result)] = self.free(self.roles.get(id(s.result)) or self.wanted(s, scope), taken)
            made.append(nodes.Assign((self.names[id(s.result)],), call))
        return made

    def repeat(self, piece: Rolled) -> list[nodes.Statement]:
        scope = f"{piece.path}.0."
        before: list[nodes.Statement] = []
        outer = dict(self.names)
        for found, after in piece.carried:
            word = self.carried_names[id(after)]
            if self.names.get(id(found)) != word:
                before.append(nodes.Assign((word,), nodes.Name(self.names[id(found)])))
            self.names[id(found)] = word
        last_read = {id(t): k for k, s in enumerate(piece.body) for t in s.operands}
        position = {id(t): k for k, s in enumerate(piece.body) for t in s.makes}
        for found, after in piece.carried:
            word = self.carried_names[id(after)]
            if last_read.get(id(found), -1) <= position[id(after)]:
                self.names[id(after)] = word
        inside = set(self.taken)
        own = [d for d in self.declared.values() if d.name.startswith(scope) and id(d.tensor) in self.readers]
        body = [*self.declarations(own, scope), *self.run(piece.body, scope, inside)]
        body += [
            nodes.Assign((self.carried_names[id(after)],), nodes.Name(self.names[id(after)]))
            for _, after in piece.carried
            if self.names[id(after)] != self.carried_names[id(after)]
        ]
        count: nodes.Expr = nodes.Number(piece.turns)
        if self.counts.get("layers") == str(piece.turns):
            count = nodes.Name("layers")
        self.names.update({k: v for k, v in outer.items() if k not in {id(a) for _, a in piece.carried}})
        for _, after in piece.carried:
            self.names[id(piece.last[after])] = self.carried_names[id(after)]
        return [*before, nodes.Repeat(piece.path, count, tuple(body))]

    def wanted(self, s: Statement, scope: str) -> str:
        """A name for a result: the module that made it, if it made nothing else, else the operator."""
        path = s.origin.path
        path = path[len(scope) :] if path.startswith(scope) else "" if scope.startswith(path + ".") else path
        words = [w for w in path.split(".") if w]
        op = s.called or NOUNS.get(s.op, s.op)
        if id(s) in self.leaf and words:
            return self.shortest(words)
        return op if not words or words[-1].isdigit() else f"{words[-1]}.{op}"

    @staticmethod
    def shortest(words: list[str]) -> str:
        return ".".join(words[-2:]) if words[-1].isdigit() and len(words) > 1 else words[-1]

    def free(self, wanted: str, taken: set[str] | None = None) -> str:
        """The name, or the name with a number, that is nobody's yet."""
        taken = self.taken if taken is None else taken
        wanted = re.sub(r"[^A-Za-z0-9_.]", "_", wanted)
        parts = [p + "_" if p in RESERVED else p for p in wanted.split(".")]
        if parts[0] in KEYWORDS or not parts[0] or parts[0][0].isdigit():
            parts[0] = f"{parts[0]}_" if parts[0] in KEYWORDS else f"x{parts[0]}"
        wanted = ".".join(parts)
        name, k = wanted, 2
        while name in taken:
            name, k = f"{wanted}_{k}" if wanted[-1].isdigit() else f"{wanted}{k}", k + 1
        taken.add(name)
        return name

    def call(self, s: Statement, nested: Mapping[int, nodes.Expr], scope: str) -> nodes.Call:
        args = [
            nodes.Arg(None, nested[id(t)] if id(t) in nested else nodes.Name(self.local(t, scope))) for t in s.operands
        ]
        positional, named = attributes(s, self.symbols)
        if s.op == "einsum":
            return nodes.Call(s.op, (*(nodes.Arg(None, p) for p in positional), *args))
        return nodes.Call(
            s.op, (*args, *(nodes.Arg(None, p) for p in positional), *(nodes.Arg(k, v) for k, v in named.items()))
        )

    def local(self, t: Tensor, scope: str) -> str:
        name = self.names[id(t)]
        name = name[len(scope) :] if scope and t.statement is None and name.startswith(scope) else name
        return said(name)

    def shown(self, thing: Statement | Tensor) -> str:
        """What two layers must have in common: attributes of a call, the type of a parameter."""
        if isinstance(thing, Tensor):
            d = self.declared[thing.name]
            return f"{d.kind} {inline(self.type(d))}"
        positional, named = attributes(thing, self.symbols)
        return ", ".join([*(inline(p) for p in positional), *(f"{k}={inline(v)}" for k, v in named.items())])

    # -- declarations -----------------------------------------------------------------------------

    def type(self, d: Declared) -> nodes.Type:
        return nodes.Type(d.dtype, tuple(self.symbols.extent(dim) for dim in d.dims))

    def inputs(self, found: Iterable[Declared]) -> list[nodes.Statement]:
        return [nodes.Declare("input", (d.name,), self.type(d)) for d in found if d.kind == "input"]

    def declarations(self, found: Iterable[Declared], scope: str) -> list[nodes.Statement]:
        """Parameters, those of one type on one line. What the state_dict holds in another shape says so."""
        made: list[nodes.Declare] = []
        for d in found:
            if d.kind == "input":
                continue
            note = f"in the state_dict {list(d.shape)}" if d.reshaped else None
            one = nodes.Declare(
                d.kind,
                (said(d.name[len(scope) :]),),
                self.type(d),
                _initial(d, d.name in self.builder.tables),
                trailing=note,
            )
            for k, other in enumerate(made):
                names = (*other.names, *one.names)
                if replace(other, names=one.names) == one and len(", ".join(names)) < LONGEST_ROW:
                    made[k] = replace(other, names=names)
                    break
            else:
                made.append(one)
        return list(made)


def said(name: str) -> str:
    """A state_dict's name as the text has it: one that begins with a digit gets a `_` in front."""
    return f"_{name}" if name[:1].isdigit() else name


def _initial(d: Declared, table: bool) -> nodes.Expr | None:
    """First values where no weights are loaded: ones for the scales of norms, zeros for biases, else small numbers. A table's stand
    beside the text."""
    if table:
        return nodes.Name("table")
    last = d.name.rpartition(".")[2]
    if d.kind == "buffer":
        return nodes.Name("ones") if "var" in last else None
    if "bias" in last:
        return nodes.Name("zeros")
    if len(d.shape) == 1 and ("weight" in last or "scale" in last or "gamma" in last):
        return nodes.Name("ones")
    return nodes.Call("normal", (nodes.Arg("std", nodes.Number(0.02)),)) if d.kind != "frozen" else None
