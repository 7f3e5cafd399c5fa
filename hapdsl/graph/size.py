"""How many operator calls a model expands to, told from its text: a model that is far too large is refused before it is built.

Every def is counted once for each set of numbers it is called with, so the count costs little even where the expansion would never
end. It is exact but for calls that elaboration refuses anyway.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hapdsl.graph.calls import bind_parameters
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, error
from hapdsl.theory.expressions import ARITHMETIC, evaluate

DEEPEST = 60  # defs within defs


class Size:
    """Counts calls of operators; `most` is the limit."""

    def __init__(self, defs: Mapping[str, nodes.Def], most: int) -> None:
        self.defs, self.most = defs, most
        self.known: dict[tuple[object, ...], int] = {}

    def check(self, body: Sequence[nodes.Statement], numbers: Mapping[str, Any]) -> None:
        """Raises HapError HAP223 at the statement with which a model becomes larger than the limit."""
        self.body(body, numbers, 0)

    def body(self, body: Sequence[nodes.Statement], numbers: Mapping[str, Any], depth: int) -> int:
        """Operator calls of some statements, `depth` defs deep. Raises HapError HAP223 as `check` does."""
        total = 0
        for statement in body:
            match statement:
                case nodes.Assign(value=value):
                    total += self.expression(value, numbers, depth)
                case nodes.Return(values=values):
                    total += sum(self.expression(v, numbers, depth) for v in values)
                case nodes.Repeat(count=count, body=inner):
                    total += self.turns(count, numbers) * self.body(inner, numbers, depth)
                case nodes.Microbatch(body=inner):
                    total += self.body(inner, numbers, depth)
            if total > self.most:
                where = statement.count.span if isinstance(statement, nodes.Repeat) else statement.span
                raise error("HAP223", f"the model expands to {shown(total)} operator calls, the most is {self.most:,}", where, "lower the number of layers")  # fmt: skip
        return total

    def expression(self, expr: nodes.Expr, numbers: Mapping[str, Any], depth: int) -> int:
        """Operator calls of an expression; a def with the same numbers is counted once."""
        if not isinstance(expr, nodes.Call):
            return 0
        total = sum(self.expression(a.value, numbers, depth) for a in expr.args)
        definition = self.defs.get(expr.function)
        if definition is None:
            return total + 1
        if depth >= DEEPEST:
            return total  # it calls itself without end, which elaboration says better
        bound = self.bound(definition, expr, numbers)
        key = (definition.name, depth, *((n, repr(v)) for n, v in sorted(bound.items())))
        if key not in self.known:
            self.known[key] = 0  # calls within the call are counted at their own depth
            self.known[key] = self.body(definition.body, bound, depth + 1)
        return total + self.known[key]

    def bound(self, definition: nodes.Def, call: nodes.Call, numbers: Mapping[str, Any]) -> dict[str, Any]:
        """The numbers that a call gives to a def's parameters; tensors are left out."""
        found: dict[str, Any] = {}
        try:
            given = bind_parameters(definition, call)
        except HapError:
            return found  # elaboration says what is wrong with the call
        for parameter in definition.parameters:
            expr = given.get(parameter.name, parameter.default)
            scope = numbers if parameter.name in given else found
            value = None if expr is None else _number(expr, scope)
            if value is not None:
                found[parameter.name] = value
        return found

    @staticmethod
    def turns(count: nodes.Expr, numbers: Mapping[str, Any]) -> int:
        value = _number(count, numbers)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1


def _number(expr: nodes.Expr, numbers: Mapping[str, Any]) -> Any:
    try:
        return evaluate(expr, numbers, ARITHMETIC)
    except HapError:
        return None


def shown(total: int) -> str:
    """A count, however large: Python writes no number of thousands of digits."""
    return f"{total:,}" if total < 10**15 else f"about 10^{int(math.log10(total))}"
