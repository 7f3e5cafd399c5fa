"""A model's text becomes a list of operator calls over named tensors (the forward pass).

`def`s are expanded, `repeat`s unrolled, parameters set. Names follow the text: a tensor `q` of `def block`
called in turn 3 of `repeat layer` is `layer.3.block.q`; `layer.3.x` is `x` as turn 3 finds it.
Cost: linear in the operator calls of the unrolled model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hapdsl.graph.calls import bind_call, bind_parameters
from hapdsl.graph.declared import declared
from hapdsl.graph.drafts import Drafts, Turns
from hapdsl.graph.emit import emit, with_defaults
from hapdsl.graph.scope import Bound, Draft, Extent, Scope, allowed, assigned
from hapdsl.graph.size import DEEPEST, Size
from hapdsl.graph.trained import Training
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.lang.near import near
from hapdsl.lang.nodes import Span
from hapdsl.theory.instance import Given
from hapdsl.theory.instantiate import instantiate
from hapdsl.theory.ops import OpDecl

MAX_CALLS = 400_000


def elaborate(
    model: nodes.Model,
    defs: Mapping[str, nodes.Def],
    ops: Mapping[str, OpDecl],
    settings: Mapping[str, Any],
    training: bool = True,
) -> Drafts:
    """Expand `model` with its parameters overridden by `settings`, for training or for evaluation.

    Raises HapError with codes HAP2xx (names, calls) and HAP3xx (shapes), each at the line that caused it.
    """
    return _Elaborator(defs, ops, training).model(model, settings)


class _Elaborator:
    def __init__(self, defs: Mapping[str, nodes.Def], ops: Mapping[str, OpDecl], training: bool) -> None:
        self.defs, self.ops, self.training = defs, ops, training
        self.out = Drafts()
        self.depth = 0

    def model(self, model: nodes.Model, settings: Mapping[str, Any]) -> Drafts:
        declared = [p.name for p in model.parameters]
        for name in settings:
            if name not in declared:
                raise error("HAP206", f"model '{model.name}' has no parameter '{name}'", model.span, f"it has: {', '.join(declared) or 'none'}")  # fmt: skip
        scope = Scope("", {})
        for parameter in model.parameters:
            if parameter.name in settings:
                value = settings[parameter.name]
            elif parameter.default is not None:
                value = scope.number(parameter.default).value
            else:
                raise error("HAP207", f"parameter '{parameter.name}' of '{model.name}' has no value", parameter.span, f"--set {parameter.name}=…")  # fmt: skip
            self.out.parameters[parameter.name] = value
            scope.names[parameter.name] = Extent(value, parameter.name)
        Size(self.defs, MAX_CALLS).check(model.body, scope.numbers())
        self.body(model.body, scope)
        self.training_in(scope).groups(model)
        return self.out

    def body(self, statements: Sequence[nodes.Statement], scope: Scope) -> None:
        for statement in statements:
            self.statement(statement, scope)

    def statement(self, statement: nodes.Statement, scope: Scope) -> None:
        match statement:
            case nodes.Declare():
                self.declare(statement, scope)
            case nodes.Assign():
                self.assign(statement, scope)
            case nodes.Repeat():
                self.repeat(statement, scope)
            case nodes.Output(names=names):
                self.out.outputs += [self.tensor(nodes.Name(n, span=statement.span), scope) for n in names]
            case nodes.Metric(names=names):
                self.out.metrics += [self.tensor(nodes.Name(n, span=statement.span), scope) for n in names]
            case nodes.Train():
                self.training_in(scope).train(statement)
            case nodes.Group():
                pass  # read when all is known: `Training.groups`
            case nodes.Microbatch():
                self.microbatch(statement, scope)
            case _:
                raise error("HAP209", "this statement can't stand here", statement.span)

    def microbatch(self, statement: nodes.Microbatch, scope: Scope) -> None:
        """The lines of the block once, for the whole batch; what is taken in turns is worked out behind the gradients."""
        if self.out.microbatch is not None or scope.repeat:
            raise error("HAP208", "a model has one `microbatch` block, outside of any other", statement.span, "put all that is taken in turns into one")  # fmt: skip
        count = scope.extent(statement.count, "the number of turns").value
        self.out.microbatch = Turns(count, statement.span)
        start = len(self.out.nodes)
        self.body(statement.body, scope)
        self.out.microbatch.nodes = {id(n) for n in self.out.nodes[start:]}

    # -- declarations ------------------------------------------------------------

    def declare(self, statement: nodes.Declare, scope: Scope) -> None:
        if len(self.out.tensors) >= MAX_CALLS:
            raise error(
                "HAP223", f"the model has over {MAX_CALLS:,} tensors", statement.span, "lower the number of layers"
            )
        self.out.tensors += declared(statement, scope)

    def training_in(self, scope: Scope) -> Training:
        return Training(self.out, self.ops, scope, lambda e: self.tensor(e, scope))

    # -- calls -------------------------------------------------------------------

    def assign(self, statement: nodes.Assign, scope: Scope) -> None:
        targets = statement.targets
        kept = [scope.buffer(t) for t in targets]
        for target, buffer in zip(targets, kept, strict=True):
            if buffer is None:
                scope.claim(target, statement.span)
        paths = [
            f"{b.name}.new" if b is not None else scope.results.get(t, scope.prefix + t)
            for t, b in zip(targets, kept, strict=True)
        ]
        if not isinstance(statement.value, nodes.Call):
            value = self.tensor(statement.value, scope)
            values = [value]
            self.out.aliases[paths[0]] = value
        else:
            values = self.call(statement.value, scope, paths, statement.label)
        if len(values) != len(targets):
            raise error("HAP219", _unequal(len(targets), len(values)), statement.span)
        for target, path, value, buffer in zip(targets, paths, values, kept, strict=True):
            if buffer is not None:
                self.renew(buffer, value, target, scope, statement)
                continue
            scope.names[target] = value
            if value.name == path:
                value.home = scope

    def renew(self, buffer: Draft, value: Draft, target: str, scope: Scope, statement: nodes.Assign) -> None:
        """`buffer` is `value` after the step. Its last call reads the buffer, so that both are cut alike and held alike."""
        path = f"{buffer.name}.new"
        if id(buffer) in self.out.renewed:
            raise error("HAP214", f"'{target}' is bound twice", statement.span, "a buffer has one value after the step")
        if value.shape != buffer.shape:
            raise error(
                "HAP234",
                f"'{target}' is {list(value.shape)}, the buffer is {list(buffer.shape)}",
                statement.span,
                "a buffer keeps its shape",
            )
        maker = next((n for n in reversed(self.out.nodes) if value in n.outputs), None)
        if maker is None or buffer not in maker.inputs or value.name != path or value.dtype != buffer.dtype:
            if value.name == path:
                value.name = f"{path}.value"
            inputs = [("g", value), ("x", buffer)]
            value = self.emit(self.ops["cast_like"], inputs, {}, path, scope, statement.span, [path])[0]
        value.home = None  # its name stays the buffer's, also where a def returns it
        self.out.renewed[id(buffer)] = value
        scope.names[target] = value

    def tensor(self, expr: nodes.Expr, scope: Scope) -> Draft:
        if isinstance(expr, nodes.Call):
            values = self.call(expr, scope, None, None)
            if len(values) != 1:
                raise error("HAP219", f"'{expr.function}' returns {len(values)} values, one is needed here", expr.span)
            return values[0]
        if isinstance(expr, nodes.Name):
            bound = scope.names.get(expr.id)
            if isinstance(bound, Draft):
                return bound
            if bound is None:
                known = [n for n, b in scope.names.items() if isinstance(b, Draft)]
                raise error("HAP201", f"unknown name '{expr.id}'", expr.span, near(expr.id, known))
            raise error("HAP204", f"'{expr.id}' is a number; a tensor is needed here", expr.span)
        raise error("HAP204", "a tensor is needed here", expr.span, "numbers go into attributes: shift(x, by = 1)")

    def call(self, call: nodes.Call, scope: Scope, paths: list[str] | None, label: str | None) -> list[Draft]:
        """The values of a call; `paths` are the names its outermost results take."""
        if call.function in self.defs:
            return self.expand(self.defs[call.function], call, scope, paths, label)
        if call.function in self.ops:
            if label is not None:
                raise error(
                    "HAP220", f"'as {label}' names a call of a `def`; '{call.function}' is an operator", call.span
                )
            return self.operate(self.ops[call.function], call, scope, paths)
        known = [*self.defs, *self.ops]
        raise error("HAP221", f"there is no def or operator '{call.function}'", call.span, near(call.function, known))

    def operate(self, decl: OpDecl, call: nodes.Call, scope: Scope, paths: list[str] | None) -> list[Draft]:
        if decl.states:
            raise error(
                "HAP222",
                f"'{decl.name}' is an update operator",
                call.span,
                "write: train loss with " + decl.name + "(…)",
            )
        where = paths[0] if paths else scope.temporary(decl.name)
        bound = bind_call(decl, call, scope.is_tensor)
        inputs = [(o, self.tensor(e, scope)) for o, e in bound.operands]
        attributes = {n: scope.number(e).value for n, e in bound.attributes.items()}
        if paths is not None and len(paths) != len(decl.results):
            raise error("HAP219", f"{_unequal(len(paths), len(decl.results))} of '{decl.name}'", call.span)
        always = decl.training if self.training else decl.evaluation
        full = with_defaults(decl, [o for o, _ in inputs], attributes, where) if always or decl.without else attributes
        if always:
            when = "in training" if self.training else "in evaluation"
            return self.replaced(decl, always, when, inputs, full, scope, call.span, paths)
        for attribute, instead in decl.without.items():
            if full.get(attribute) == 0:
                when = f"where {attribute} is 0"
                return self.replaced(decl, instead, when, inputs, full, scope, call.span, paths)
        return self.emit(decl, inputs, attributes, where, scope, call.span, paths)

    def replaced(
        self,
        decl: OpDecl,
        instead: Sequence[nodes.Rule],
        when: str,
        inputs: list[tuple[str, Draft]],
        attributes: dict[str, Any],
        scope: Scope,
        span: nodes.Span,
        paths: list[str] | None,
    ) -> list[Draft]:
        """What its declaration puts in the place of a call: in training, in evaluation or where an attribute is 0. `attributes` are all of them."""
        instance = instantiate(decl, [Given(o, t.shape, t.dtype) for o, t in inputs], attributes, span)
        numbers = {n: Extent(v, None) for n, v in attributes.items()}
        inner = Scope(scope.prefix, {**numbers, **dict(inputs)}, scope.repeat, fresh=scope.fresh)
        found: list[Draft] = []
        if self.depth >= DEEPEST:
            raise error("HAP319", f"{decl.name}: {when} it stands for itself", span)
        self.depth += 1
        for k, result in enumerate(decl.results):
            rule = next((r for r in instead if result.name in r.targets), None)
            value = self.instead(rule.value, inner, paths[k : k + 1] if paths else None) if rule is not None else None
            if value is None or value.shape != instance.result_shapes[k]:
                shown = "nothing" if value is None else f"{list(value.shape)}"
                raise error(
                    "HAP319",
                    f"{decl.name}: {when} {shown} stands for '{result.name}', which is {list(instance.result_shapes[k])}",
                    span,
                )
            if rule is not None and isinstance(rule.value, nodes.Name) and rule.value.id in decl.stopped:
                value = self.out.stop(value, paths[k] if paths else scope.temporary(decl.name), scope, span)
            if paths is not None and value.name != paths[k]:
                self.out.aliases[paths[k]] = value
            found.append(value)
        self.depth -= 1
        return found

    def instead(self, expr: nodes.Expr, scope: Scope, paths: list[str] | None) -> Draft:
        """The one value of an expression, under its own name where it makes one."""
        return self.call(expr, scope, paths, None)[0] if isinstance(expr, nodes.Call) else self.tensor(expr, scope)

    def emit(
        self,
        decl: OpDecl,
        inputs: list[tuple[str, Draft]],
        attributes: dict[str, Any],
        where: str,
        scope: Scope,
        span: nodes.Span,
        paths: list[str] | None,
    ) -> list[Draft]:
        """One call; its results are this scope's own."""
        names = paths or ([where] if len(decl.results) == 1 else [f"{where}.{r.name}" for r in decl.results])
        if len(self.out.nodes) >= MAX_CALLS:
            raise error(
                "HAP223", f"the model has over {MAX_CALLS:,} operator calls", span, "lower the number of layers"
            )
        operands = [o for o, _ in inputs]
        made = emit(
            self.out, decl, [t for _, t in inputs], attributes, names, "forward", where, scope.repeat, span, operands
        )
        for tensor in made:
            tensor.home = scope
        return made

    def expand(
        self, definition: nodes.Def, call: nodes.Call, scope: Scope, paths: list[str] | None, label: str | None
    ) -> list[Draft]:
        instance = label or definition.name
        allowed(instance, call.span)
        if instance in scope.labels:
            raise error("HAP224", f"'{instance}' is called twice here", call.span, f"name the call: … = {definition.name}(…) as another")  # fmt: skip
        scope.labels.add(instance)
        if self.depth >= DEEPEST:
            raise error("HAP225", f"'{definition.name}' calls itself without end", call.span)
        inner = Scope(f"{scope.prefix}{instance}.", self.arguments(definition, call, scope), scope.repeat)
        self.depth += 1
        try:
            for statement in definition.body:
                if isinstance(statement, nodes.Return):
                    return self.returned(statement, inner, paths, call.span)
                self.statement(statement, inner)
        finally:
            self.depth -= 1
        raise error("HAP226", f"def '{definition.name}' returns nothing", definition.span, "end it with `return …`")

    def arguments(self, definition: nodes.Def, call: nodes.Call, scope: Scope) -> dict[str, Bound]:
        given = bind_parameters(definition, call)
        bound: dict[str, Bound] = {}
        for parameter in definition.parameters:
            expr = given.get(parameter.name)
            if expr is not None:
                bound[parameter.name] = self.argument(expr, scope)
            elif parameter.default is not None:
                bound[parameter.name] = Scope("", bound).number(parameter.default)
            else:
                raise error("HAP207", f"parameter '{parameter.name}' of '{definition.name}' has no value", call.span)
        return bound

    def argument(self, expr: nodes.Expr, scope: Scope) -> Bound:
        return self.tensor(expr, scope) if scope.is_tensor(expr) else scope.number(expr)

    def returned(self, statement: nodes.Return, inner: Scope, paths: list[str] | None, span: Span) -> list[Draft]:
        """What a def returns takes the caller's names, where it was made here and has no reader's claim elsewhere."""
        count = len(statement.values)
        if paths is not None and len(paths) != count:
            raise error("HAP219", _unequal(len(paths), count), span)
        if paths is None:
            paths = [f"{inner.prefix}out"] if count == 1 else [f"{inner.prefix}out.{k}" for k in range(count)]
        values = []
        for path, expr in zip(paths, statement.values, strict=True):
            if isinstance(expr, nodes.Call):
                found = self.call(expr, inner, [path], None)
                values += found
                continue
            value = self.tensor(expr, inner)
            if value.home is inner and value not in values:
                value.name = path
            else:
                self.out.aliases[path] = value
            values.append(value)
        return values

    # -- repeat ------------------------------------------------------------------

    def repeat(self, statement: nodes.Repeat, scope: Scope) -> None:
        allowed(statement.variable, statement.span)
        count = scope.extent(statement.count, "the number of turns").value
        path = f"{scope.prefix}{statement.variable}"
        if path in self.out.repeats:
            raise error("HAP214", f"a second repeat over '{path}'", statement.span, "choose another variable")
        if count > MAX_CALLS:
            raise error("HAP223", f"a repeat of {count:,} turns", statement.count.span, f"at most {MAX_CALLS:,}")
        self.out.repeats[path] = count
        carried = [n for n in dict.fromkeys(assigned(statement.body)) if n in scope.names]
        for name in carried:
            self.enter(name, path, statement, scope)
        for turn in range(count):
            inner = Scope(f"{path}.{turn}.", dict(scope.names), (*scope.repeat, (path, turn)))
            last = turn == count - 1
            inner.results = {
                n: scope.results.get(n, scope.prefix + n) if last else f"{path}.{turn + 1}.{n}" for n in carried
            }
            self.body(statement.body, inner)
            for name in carried:
                scope.names[name] = inner.names[name]
        scope.once.update(carried)
        for name in carried:
            value = scope.names[name]
            assert isinstance(value, Draft)
            # What another turn would find, whatever it is called in the end.
            self.out.aliases[f"{path}.{count}.{name}"] = value
            if value.home is not None and value.name == scope.prefix + name:
                value.home = scope  # made by the last turn, but it is this scope's now

    def enter(self, name: str, path: str, statement: nodes.Repeat, scope: Scope) -> None:
        """Name what turn 0 finds: a tensor that only the repeat goes on with takes that name, others get it as a second one."""
        bound = scope.names[name]
        if not isinstance(bound, Draft):
            raise error("HAP214", f"'{name}' is a parameter and can't be bound again", statement.span)
        if bound.kind == "value" and bound.name == scope.results.get(name, scope.prefix + name):
            bound.name = f"{path}.0.{name}"
        else:
            self.out.aliases[f"{path}.0.{name}"] = bound


def _unequal(names: int, values: int) -> str:
    """`1 name for 2 values`."""
    return f"{names} name{'s' * (names != 1)} for {values} value{'s' * (values != 1)}"
