"""Operator declarations: an `op` block, read once, checked, and ready to be instantiated."""

from __future__ import annotations

from dataclasses import dataclass, field

from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import Report
from hapdsl.lang.nodes import Span
from hapdsl.theory.dtypes import DTYPE_BYTES, KINDS
from hapdsl.theory.expressions import names_in
from hapdsl.theory.patterns import free_stars, parting

NO_GRADIENT = "none"  # `grad x = none`
# What lines of programs call besides operators: an operator of such a name couldn't be told from it.
RESERVED = frozenset(
    ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "partial", "input", "param", "state", "seed", "free")
)


@dataclass(frozen=True)
class OpDecl:
    """One operator as declared. `attributes` maps a name to its default, None where required; an operand with a default
    (`lr[] = 0.1`) is among them: a call gives it as a tensor or as a number. `training` and `evaluation` say what stands for a call
    in the graphs of that kind, `without[p]` where the attribute p is 0. To operands that are `stopped` no gradient passes."""

    name: str
    operands: tuple[nodes.Operand, ...]
    attributes: dict[str, nodes.Expr | None]
    results: tuple[nodes.Result, ...]
    sums: frozenset[str] = frozenset()
    wholes: frozenset[str] = frozenset()
    linear: tuple[tuple[str, ...], ...] = ()
    sizes: dict[str, nodes.Expr] = field(default_factory=dict)
    flops: nodes.Expr | None = None
    tiled: tuple[nodes.Index, ...] = ()
    grads: tuple[nodes.Rule, ...] = ()
    stopped: frozenset[str] = frozenset()
    training: tuple[nodes.Rule, ...] = ()
    evaluation: tuple[nodes.Rule, ...] = ()
    without: dict[str, tuple[nodes.Rule, ...]] = field(default_factory=dict)
    torch: str | None = None
    dtypes: dict[str, str] = field(default_factory=dict)
    notation: str | None = None
    at: dict[str, nodes.Expr] = field(default_factory=dict)
    order: dict[str, nodes.Expr] = field(default_factory=dict)
    reads: dict[str, nodes.Expr] = field(default_factory=dict)
    span: Span = nodes.NOWHERE

    @property
    def tensors(self) -> tuple[nodes.Operand, ...]:
        """The operands a caller writes: all but the optimizer state."""
        return tuple(o for o in self.operands if o.kind != "state")

    @property
    def states(self) -> tuple[nodes.Operand, ...]:
        return tuple(o for o in self.operands if o.kind == "state")

    @property
    def patterns(self) -> tuple[tuple[nodes.Index, ...], ...]:
        """The dims of each operand, and then of each output."""
        return (*(o.dims for o in self.operands), *(r.dims for r in self.results))

    @property
    def is_update(self) -> bool:
        """Can it stand in `train ... with`? It takes a parameter and its gradient first, and returns the new value of the
        parameter `w` as `w_new`, and of each piece of state alike."""
        if len([o for o in self.tensors if o.default is None]) != 2:
            return False
        replaced = (self.tensors[0], *self.states)
        return [r.name for r in self.results] == [f"{o.name}_new" for o in replaced]


def index_names(dims: tuple[nodes.Index, ...]) -> list[str]:
    """The names in some dims, those of merged dims one by one; literal extents have none."""
    return [name for index in dims for name in index.names if not name.isdigit()]


def attributes_of(op: nodes.Op) -> dict[str, nodes.Expr | None]:
    """What a call of an operator may give as a number or text, with the defaults."""
    scalars = {o.name: o.default for o in op.operands if o.default is not None}
    return {**scalars, **{a.name: a.default for a in op.attributes}}


def declare(op: nodes.Op, report: Report) -> OpDecl:
    """Read an `op` block; what is wrong with it goes to `report` (codes HAP308, HAP310 to HAP319)."""
    decl = OpDecl(
        name=op.name,
        operands=op.operands,
        attributes=attributes_of(op),
        results=op.results,
        span=op.span,
        **_body(op),
    )
    _check(op, decl, report)
    return decl


def _body(op: nodes.Op) -> dict:
    """The statements of the body, gathered by what they say."""
    said: dict = {
        "sums": set(), "wholes": set(), "linear": [], "sizes": {}, "grads": [], "stopped": set(), "training": [], "evaluation": [], "without": {}, "dtypes": {}, "at": {}, "order": {}, "reads": {}, "tiled": [],
    }  # fmt: skip
    for statement in op.body:
        match statement:
            case nodes.Sum(indices=indices):
                said["sums"].update(indices)
            case nodes.Whole(indices=indices):
                said["wholes"].update(indices)
            case nodes.Linear(operands=operands):
                said["linear"].append(operands)
            case nodes.Size(index=index, value=value):
                said["sizes"][index] = value
            case nodes.Flops(value=value):
                said["flops"] = value
            case nodes.Tiled(dims=dims):
                said["tiled"].extend(dims)
            case nodes.Grad(rules=rules):
                said["grads"].extend(r for r in rules if not _ends(r))
                said["stopped"].update(t for r in rules if _ends(r) for t in r.targets)
            case nodes.Training(rules=rules):
                said["training"].extend(rules)
            case nodes.Evaluation(rules=rules):
                said["evaluation"].extend(rules)
            case nodes.Without(attribute=attribute, rules=rules):
                said["without"][attribute] = (*said["without"].get(attribute, ()), *rules)
            case nodes.Torch(target=target):
                said["torch"] = target
            case nodes.Dtype(output=output, value=value):
                said["dtypes"][output] = value
            case nodes.Notation(attribute=attribute):
                said["notation"] = attribute
            case nodes.At(index=index, value=value):
                said["at"][index] = value
            case nodes.Order(output=output, value=value):
                said["order"][output] = value
            case nodes.Reads(operand=operand, value=value):
                said["reads"][operand] = value
    return said | {
        "sums": frozenset(said["sums"]),
        "wholes": frozenset(said["wholes"]),
        "linear": tuple(said["linear"]),
        "tiled": tuple(said["tiled"]),
        "grads": tuple(said["grads"]),
        "stopped": frozenset(said["stopped"]),
        "training": tuple(said["training"]),
        "evaluation": tuple(said["evaluation"]),
    }


def _ends(rule: nodes.Rule) -> bool:
    """Does a `grad` say that no gradient passes?"""
    return isinstance(rule.value, nodes.Name) and rule.value.id == NO_GRADIENT


def _check(op: nodes.Op, decl: OpDecl, report: Report) -> None:
    operand_names = [o.name for o in decl.operands]
    result_names = [r.name for r in decl.results]
    in_operands = {n for o in decl.operands for n in index_names(o.dims)}
    indices = in_operands | {n for r in decl.results for n in index_names(r.dims)}
    named = [*operand_names, *result_names, *(a.name for a in op.attributes)]
    for name in sorted({n for n in named if named.count(n) > 1}):
        report.add(
            "HAP310",
            f"'{name}' names two operands, attributes or outputs of '{op.name}'",
            op.span,
            "give each its own name",
        )
    stars = {i.names[0] for dims in decl.patterns for i in dims if i.star}
    single = {name for dims in decl.patterns for i in dims if not i.star for name in i.names}
    for name in sorted(stars & single):
        report.add("HAP310", f"'{name}' is a star and a single index of '{op.name}'", op.span, "give each its own name")
    if op.name in RESERVED:
        report.add("HAP318", f"'{op.name}' is a word of programs", op.span, "give the operator another name")
    for name in sorted(set(operand_names) & indices):
        report.add("HAP311", f"'{name}' is an operand and an index of '{op.name}'", op.span, "rename one of them")
    for operand in decl.operands:
        if len(free_stars(operand.dims, decl.at)) > 1 and parting(operand.dims, decl.at) is None:
            report.add("HAP312", f"'{operand.name}' has two stars, so its dims can't be told apart", operand.span, "place one, or what stands between them, with an `at` statement")  # fmt: skip
    for result in decl.results:
        for name in index_names(result.dims):
            if name not in in_operands and name not in decl.sizes and not decl.notation:
                report.add("HAP313", f"nothing gives index '{name}' of '{result.name}' an extent", result.span, f"add `size {name} = …`")  # fmt: skip
    if decl.notation and (len(decl.operands) != 1 or decl.operands[0].optional or len(decl.results) != 1):
        report.add("HAP308", f"'{op.name}' takes its index notation from an attribute, but not one operand to one output", op.span, "declare it as rearrange(x[], attr spec) -> y[] is, or as einsum(*x[], attr spec) -> y[]")  # fmt: skip
    for statement in op.body:
        _check_statement(statement, op, decl, indices, report)


def _check_statement(statement: nodes.Statement, op: nodes.Op, decl: OpDecl, indices: set[str], report: Report) -> None:
    operands = {o.name for o in decl.operands}
    results = {r.name for r in decl.results}
    attributes = set(decl.attributes)

    def known(names: set[str], allowed: set[str], what: str) -> None:
        for name in sorted(names - allowed):
            report.add("HAP314", f"'{name}' is no {what} of '{op.name}'", statement.span, f"known: {', '.join(sorted(allowed)) or 'none'}")  # fmt: skip

    match statement:
        case nodes.Sum(indices=names) | nodes.Whole(indices=names):
            known(set(names), indices, "index")
            if isinstance(statement, nodes.Sum):
                for name in set(names):
                    if all(name in index_names(r.dims) for r in decl.results):
                        report.add("HAP315", f"index '{name}' is under `sum` but stands in every output", statement.span, "only an index that an output lacks is summed")  # fmt: skip
        case nodes.Linear(operands=names):
            known(set(names), operands, "operand")
        case nodes.Size(index=index, value=value):
            known({index}, indices, "index")
            known(names_in(value), indices | attributes, "index or attribute")
        case nodes.Flops(value=value):
            known(names_in(value), indices | attributes, "index or attribute")
        case nodes.Tiled(dims=dims):
            known({name for index in dims for name in index.names}, indices, "index")
        case nodes.Grad(rules=rules):
            grads = {f"{r}.grad" for r in results}
            for rule in rules:
                known(set(rule.targets), operands, "operand")
                read = names_in(rule.value) if not _ends(rule) else set()
                known(read, operands | results | grads | attributes | indices, "operand, output or gradient")
        case nodes.Training(rules=rules) | nodes.Evaluation(rules=rules) | nodes.Without(rules=rules):
            if isinstance(statement, nodes.Without):
                known({statement.attribute}, attributes, "attribute")
            for rule in rules:
                known(set(rule.targets), results, "output")
                known(names_in(rule.value), operands | attributes, "operand or attribute")
        case nodes.At(index=index, value=value):
            known({index}, {i.names[0] for dims in decl.patterns for i in dims if len(i.names) == 1}, "dim by itself")
            known(names_in(value), attributes, "attribute")
        case nodes.Order(output=output, value=value):
            known({output}, results, "output")
            known(names_in(value), attributes, "attribute")
        case nodes.Reads(operand=operand, value=value):
            known({operand}, operands, "operand")
            known(names_in(value), indices | attributes, "index or attribute")
        case nodes.Notation(attribute=attribute):
            known({attribute}, attributes, "attribute")
        case nodes.Dtype(output=output, value=value):
            known({output}, results | operands, "output or operand")
            known(
                {value},
                set(DTYPE_BYTES) | set(KINDS) | (operands | attributes if output in results else set()),
                "dtype, operand or attribute",
            )
