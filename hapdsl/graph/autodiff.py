"""The backward pass, from the gradients that operators declare, and the update of every parameter.

Names: the gradient of `h` is `h.grad`. Where several readers contribute, the contributions are `h.grad.1`,
`h.grad.2` … and `h.grad` is their sum. Where the gradient passes unchanged (`add`), no call is made and `u.grad`
is another name of `a.grad`. Cost: linear in the calls of the forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hapdsl.graph.calls import bind_call
from hapdsl.graph.drafts import Drafts
from hapdsl.graph.emit import emit
from hapdsl.graph.scope import Draft, DraftNode
from hapdsl.graph.updates import updates
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import error
from hapdsl.theory import notation
from hapdsl.theory.dtypes import DTYPE_BYTES, FLOATS
from hapdsl.theory.expressions import evaluate
from hapdsl.theory.ops import OpDecl


def differentiate(drafts: Drafts, ops: Mapping[str, OpDecl]) -> dict[int, Draft]:
    """Append backward and update calls to `drafts`; returns new values of params and state by id of the old.

    Raises HapError: HAP228 an operator without the gradient that is needed, HAP229 a parameter that
    the loss doesn't depend on, HAP230 nothing to train.
    """
    assert drafts.loss is not None
    trained = [t for t in drafts.tensors if t.kind == "param"]
    if not trained:
        raise error("HAP230", "the model trains nothing: it has no `param`", drafts.train_span, "declare one, or take `train` away")  # fmt: skip
    backward = _Backward(drafts, ops)
    backward.run()
    return updates(drafts, ops, trained, backward.complete)


class _Product(int):
    """The product of a star's extents, which remembers its factors."""

    factors: list[int]

    def __new__(cls, factors: list[int]) -> _Product:
        made = super().__new__(cls, math.prod(factors))
        made.factors = factors
        return made


class _Backward:
    def __init__(self, drafts: Drafts, ops: Mapping[str, OpDecl]) -> None:
        self.drafts, self.ops = drafts, ops
        self.needed = self.needing()
        self.pending: dict[int, int] = {}  # readers of a tensor whose gradients are still to come
        self.parts: dict[int, list[Draft]] = {}
        self.unasked: dict[int, int] = {}  # gradients made by the way, of tensors that need none
        self.complete: dict[int, Draft] = {}  # gradients by id of their tensor
        self.temporaries: dict[str, int] = {}

    def needing(self) -> set[int]:
        """Ids of the tensors between a trained parameter and anything else."""
        needed = {id(t) for t in self.drafts.tensors if t.kind == "param"}
        for node in self.drafts.nodes:
            if self.asked(node, needed):
                needed.update(id(t) for t in node.outputs if t.dtype in FLOATS)
        return needed

    @staticmethod
    def asked(node: DraftNode, needed: set[int]) -> dict[int, Draft]:
        """The operands of a call, by position, that need a gradient and to which it passes one."""
        stopped = node.instance.decl.stopped
        found = {p: t for p, t in enumerate(node.inputs) if id(t) in needed}
        return {p: t for p, t in found.items() if node.instance.given[p].operand not in stopped} if stopped else found

    def run(self) -> None:
        loss = self.drafts.loss
        assert loss is not None
        if id(loss) not in self.needed:
            raise error("HAP229", "the loss depends on no `param`", self.drafts.train_span, "nothing could be trained")
        forward = [n for n in self.drafts.nodes if any(id(t) in self.needed for t in n.outputs)]
        live = self.towards(loss, forward)
        for node in forward:
            if id(node) in live:
                for tensor in {id(t): t for t in self.asked(node, self.needed).values()}.values():
                    self.pending[id(tensor)] = self.pending.get(id(tensor), 0) + 1
        seed = Draft(f"{loss.name}.grad", (), loss.dtype, "seed", span=self.drafts.train_span)
        self.drafts.tensors.append(seed)
        self.complete[id(loss)] = seed
        for node in reversed(forward):
            if id(node) in live:
                self.node(node)

    def towards(self, loss: Draft, forward: list[DraftNode]) -> set[int]:
        """Ids of the calls through which gradients come from the loss."""
        wanted, live = {id(loss)}, set()
        for node in reversed(forward):
            if any(id(t) in wanted for t in node.outputs):
                live.add(id(node))
                wanted.update(id(t) for t in self.asked(node, self.needed).values())
        return live

    def node(self, node: DraftNode) -> None:
        """All gradients that one call passes to its operands."""
        targets = self.asked(node, self.needed)
        if node.instance.decl.notation:
            for position, tensor in targets.items():
                op, others, attributes = notation.gradient(node.instance, position)
                given = [self.output_grad(node, 0), *(node.inputs[k] for k in others)]
                self.contribute(tensor, self.emit(op, given, attributes, node, [self.part(tensor)])[0], node)
        else:
            done: set[int] = set()
            for rule in self.rules(node, targets):
                self.rule(rule, node, targets, done)
            missing = set(targets) - done
            if missing:
                operand = node.instance.given[min(missing)].operand
                raise error("HAP228", f"'{node.instance.decl.name}' declares no gradient for '{operand}'", node.span, f"add `grad {operand} = …` to the op, or make what it reads `frozen`")  # fmt: skip
        for tensor in {id(t): t for t in targets.values()}.values():
            self.pending[id(tensor)] -= 1
            if not self.pending[id(tensor)]:
                self.settle(tensor, node)

    @staticmethod
    def rules(node: DraftNode, targets: dict[int, Draft]) -> list[nodes.Rule]:
        """The gradients to apply: where several give what is asked for, those that give the least besides."""
        wanted = {node.instance.given[p].operand for p in targets}
        chosen: list[nodes.Rule] = []
        while wanted:
            rule = max(
                node.instance.decl.grads, key=lambda r: (len(wanted & {*r.targets}), -len(r.targets)), default=None
            )
            if rule is None or not wanted & {*rule.targets}:
                break
            chosen.append(rule)
            wanted -= {*rule.targets}
        return sorted(chosen, key=node.instance.decl.grads.index)

    def rule(self, rule: nodes.Rule, node: DraftNode, targets: dict[int, Draft], done: set[int]) -> None:
        positions = [[p for p, g in enumerate(node.instance.given) if g.operand == t] for t in rule.targets]
        if not any(p in targets for ps in positions for p in ps):
            return
        if len(positions) > 1:
            heads = [ps[0] if ps else None for ps in positions]
            names = []
            for k, p in enumerate(heads):  # one tensor may be several operands: count those before it
                if p is None:  # left out of this call
                    names.append(f"{node.outputs[0].name}.grad.{rule.targets[k]}")
                    continue
                tensor = node.inputs[p]
                earlier = sum(node.inputs[q] is tensor for q in heads[:k] if q is not None)
                if p not in targets:  # nobody asks for this gradient: it stays a contribution to nothing
                    earlier += self.unasked.get(id(tensor), 0)
                    self.unasked[id(tensor)] = earlier + 1
                names.append(f"{tensor.name}.grad.{len(self.parts.get(id(tensor), [])) + earlier + 1}")
            values = self.expression(rule.value, node, names, None)
            for position, value in zip(heads, values, strict=True):
                if position is not None and position in targets and position not in done:
                    self.contribute(targets[position], value, node)
                    done.add(position)
            return
        for position in positions[0]:
            if position in targets and position not in done:
                value = self.expression(rule.value, node, [self.part(targets[position])], position)[0]
                self.contribute(targets[position], value, node)
                done.add(position)

    # -- gradient expressions -------------------------------------------------------

    def expression(self, expr: nodes.Expr, node: DraftNode, names: list[str], position: int | None) -> list[Draft]:
        """The tensors that a gradient expression stands for; calls become nodes, names stay what they name."""
        if isinstance(expr, nodes.Name):
            return [self.named(expr, node, position)]
        if not isinstance(expr, nodes.Call) or expr.function not in self.ops:
            raise error("HAP228", f"the gradient of '{node.instance.decl.name}' must be a tensor or a call", expr.span)
        decl = self.ops[expr.function]
        tensors = self.tensor_names(node)
        omitted = {o.name for o in node.instance.decl.operands} - {g.operand for g in node.instance.given}
        args = tuple(a for a in expr.args if not (isinstance(a.value, nodes.Name) and a.value.id in omitted))
        call = nodes.Call(expr.function, args, span=expr.span)

        def is_tensor(e: nodes.Expr) -> bool:
            return (isinstance(e, nodes.Name) and e.id in tensors) or (
                isinstance(e, nodes.Call) and e.function in self.ops
            )

        bound = bind_call(decl, call, is_tensor)
        inputs = [self.expression(e, node, [self.temporary(names[0], e)], position)[0] for _, e in bound.operands]
        numbers, functions = self.numbers(node, position)
        attributes = {n: evaluate(e, numbers, functions) for n, e in bound.attributes.items()}
        return self.emit(expr.function, inputs, attributes, node, names, [o for o, _ in bound.operands])

    def temporary(self, name: str, expr: nodes.Expr) -> str:
        if not isinstance(expr, nodes.Call):
            return name
        base = f"{name}.{expr.function}"
        self.temporaries[base] = self.temporaries.get(base, 0) + 1
        return base if self.temporaries[base] == 1 else f"{base}.{self.temporaries[base]}"

    @staticmethod
    def tensor_names(node: DraftNode) -> set[str]:
        results = {r.name for r in node.instance.decl.results}
        return {g.operand for g in node.instance.given} | results | {f"{r}.grad" for r in results}

    def named(self, name: nodes.Name, node: DraftNode, position: int | None) -> Draft:
        instance = node.instance
        if position is not None and instance.given[position].operand == name.id:
            return node.inputs[position]
        for given, tensor in zip(instance.given, node.inputs, strict=True):
            if given.operand == name.id:
                return tensor
        for k, result in enumerate(instance.decl.results):
            if result.name == name.id:
                return node.outputs[k]
            if f"{result.name}.grad" == name.id:
                return self.output_grad(node, k)
        raise error("HAP228", f"'{name.id}' is no tensor of '{instance.decl.name}'", name.span)

    def output_grad(self, node: DraftNode, k: int) -> Draft:
        """The gradient of an output; zeros where nothing reads that output."""
        output = node.outputs[k]
        if id(output) not in self.complete:
            zeros = self.emit("scale", [output], {"by": 0.0}, node, [f"{output.name}.grad"])[0]
            self.complete[id(output)] = zeros
        return self.complete[id(output)]

    def numbers(self, node: DraftNode, position: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """What arithmetic in a gradient may read: extents, attributes, products of stars; and functions."""
        instance = node.instance
        names: dict[str, Any] = {d: d for d in DTYPE_BYTES} | dict(instance.extents)
        for star, members in instance.stars.items():
            names[star] = _Product([instance.extents[m] for m in members])
        names |= dict(instance.attributes)

        def place() -> tuple[int, int]:
            """Where the operand at `position` lies along the dim that a variadic operator joins."""
            dim = instance.attributes.get("dim", 0)
            sizes = [g.shape[dim] for g in instance.given]
            at = position or 0
            return sum(sizes[:at]), sum(sizes[: at + 1])

        for operand in instance.decl.operands:
            names.setdefault(operand.name, operand.name)
        functions = {
            "shape": lambda product: product.factors,
            "inverse": lambda perm: [[p % len(perm) for p in perm].index(k) for k in range(len(perm))],
            "start": lambda operand: place()[0],
            "stop": lambda operand: place()[1],
        }
        return names, functions

    # -- contributions --------------------------------------------------------------

    def part(self, tensor: Draft) -> str:
        """The name of the next contribution to a tensor's gradient; a single one is renamed when it settles."""
        return f"{tensor.name}.grad.{len(self.parts.get(id(tensor), [])) + 1}"

    def contribute(self, tensor: Draft, value: Draft, node: DraftNode) -> None:
        parts = self.parts.setdefault(id(tensor), [])
        name = f"{tensor.name}.grad.{len(parts) + 1}"
        value = self.unstretched(tensor, value, name, node)
        parts.append(value)

    def unstretched(self, tensor: Draft, value: Draft, name: str, node: DraftNode) -> Draft:
        """Sum a gradient back over the dims along which broadcasting stretched its tensor."""
        if value.shape == tensor.shape:
            return value
        extra = len(value.shape) - len(tensor.shape)
        dims = [
            *range(extra),
            *(extra + d for d, n in enumerate(tensor.shape) if n == 1 and value.shape[extra + d] > 1),
        ]
        if value.name == name:
            value.name = f"{name}.full"
        summed = self.emit("sum", [value], {"dims": dims}, node, [name])[0]
        if summed.shape != tensor.shape:
            summed.name = f"{name}.sum"
            summed = self.emit("reshape", [summed], {"shape": list(tensor.shape)}, node, [name])[0]
        return summed

    def settle(self, tensor: Draft, node: DraftNode) -> None:
        """All readers have contributed: name the gradient, or sum the contributions."""
        parts = self.parts.get(id(tensor), [])
        total = parts[0]
        for k, part in enumerate(parts[1:], start=2):
            name = f"{tensor.name}.grad" if k == len(parts) else f"{tensor.name}.grad.sum{k}"
            total = self.emit("add", [total, part], {}, node, [name], ["a", "b"])[0]
        if total.name == f"{tensor.name}.grad.1":
            total.name = f"{tensor.name}.grad"
        elif total.name != f"{tensor.name}.grad":
            self.drafts.aliases[f"{tensor.name}.grad"] = total
        self.complete[id(tensor)] = total

    def emit(
        self, op: str, inputs: list[Draft], attributes: Mapping[str, Any], node: DraftNode, names: list[str],
        operands: list[str] | None = None,
    ) -> list[Draft]:  # fmt: skip
        return emit(
            self.drafts,
            self.ops[op],
            inputs,
            attributes,
            names,
            "backward",
            node.path,
            node.repeat,
            node.span,
            operands,
        )
