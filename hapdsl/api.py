"""The Python API: an nn.Module planned and trained on devices that differ, as short as data parallelism.

    plan = hapdsl.plan(module, example, "cluster.hap", loss="cross_entropy")
    step = plan.compile(module)
    for batch in loader:
        loss = step(batch)
    step.write_back(module)

    plan = hapdsl.plan(module, example, "cluster.hap", loss="cross_entropy", evaluate=True)

Under torchrun, with as many processes as the cluster has devices, each process is one of them; otherwise this process computes for
all devices in turn, which gives the same numbers and is for trying out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hapdsl.check.write import write
from hapdsl.cluster.describe import word
from hapdsl.graph.program import Program, Value
from hapdsl.importing import weights
from hapdsl.importing.convert import OPTIMIZER, import_module
from hapdsl.lang.diagnostics import error
from hapdsl.lang.files import write_file
from hapdsl.resized import resized
from hapdsl.run.backends import require
from hapdsl.run.checkpoint import find
from hapdsl.run.checkpoint_read import fits, loaded
from hapdsl.run.checkpoint_write import Saving
from hapdsl.run.context import NAMES
from hapdsl.run.course import keep as write_checkpoint
from hapdsl.run.course import take_up
from hapdsl.run.distributed import Rank
from hapdsl.run.guarded import stay
from hapdsl.run.how import How
from hapdsl.run.initial import Initial
from hapdsl.run.inprocess import InProcess
from hapdsl.run.pieces import assemble, counts
from hapdsl.standalone import standalone
from hapdsl.theory.dtypes import FLOATS
from hapdsl.virtual import plan_over
from hapdsl.workbench import Workbench

Loss = str | Callable[..., Tensor]
Batch = Tensor | Sequence[Tensor] | Mapping[str, Tensor]


@dataclass
class Planned:
    """A proven program for a module, as text with all that it needs.

    `cost_s` is the predicted seconds a step, `bound_s` what no program of the searched space is below (None for a plan that was
    loaded). `tables` are constants of the module that the text can't say.
    """

    text: str
    program: Program
    cost_s: float | None = None
    bound_s: float | None = None
    tables: dict[str, Tensor] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write the text; tables, if there are any, beside it as PATH.npz. Raises HapError HAP852."""
        write_file(Path(path), self.text)
        weights.save_tables(path, self.tables)

    def compile(
        self,
        module: nn.Module | None = None,
        *,
        allow: Iterable[str] = (),
        seed: int = 0,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        resume: str | Path | None = None,
    ) -> Step:
        """The program ready to train from the module's weights; without a module, from the text's first values; with `resume`, from the
        newest checkpoint in a folder, which any plan for the model may have written (`Step.save`, `hapdsl run --checkpoint`).

        It runs on `device` ("cpu" or "cuda"; the module's where left out; under torchrun each process on the GPU of its LOCAL_RANK), and batches are
        brought there. `dtype` runs all floating tensors as one; left out, each as the text declares it. `allow` names modules whose functions the text's operators
        may call. Raises HapError: HAP721 a device that isn't here, HAP722 a dtype that it lacks or that can't train, HAP879 weights that don't fit,
        HAP718 a torchrun with another number of processes than devices, HAP750 to HAP753 what is wrong with a checkpoint.
        """
        if module is None:
            start = weights.from_tables(self.program.graph, self.tables)
        else:
            start = weights.from_module(self.program.graph, module, self.tables)
        found = None if resume is None else find(resume)
        if found is not None:
            fits(found, self.program.graph, loaded(self.program))
        step = Step(self.program, start, frozenset(allow), seed, _how(module, device, dtype), self.text)
        if found is not None:
            take_up(step.executor, found)
        return step


def plan(
    module: nn.Module,
    example: Any,
    cluster: str | None = None,
    *,
    loss: Loss | None = None,
    target: str = "label",
    optimizer: str = OPTIMIZER,
    ops: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    objective: str = "sync",
    gap: float = 0.01,
    time_limit: float | None = None,
    evaluate: bool = False,
) -> Planned:
    """Import `module`, search a program and shares for `cluster` (FILE or FILE:NAME; this machine where left out), and prove it.

    `example` is one batch as the module is called: tensors in order or by name, or a text as for `hapdsl import --example`. The loss is
    the module's own, or `loss` of its first result and the example's `target`. `ops` is a file that declares operators for functions
    that the theory doesn't know. `settings` override the model's parameters: {"batch": 256}. With `evaluate` nothing is trained: as in
    `module.eval()`, dropout does nothing and batch normalisation goes by its running statistics. Raises HapError.
    """
    name = type(module).__name__.lower()
    name = name if name.isascii() else word(name)
    imported = import_module(module, example, name, loss, target, optimizer, ops=ops)
    bench = Workbench("plan.hap", imported.text)
    block, hardware = bench.cluster_block(cluster), bench.cluster(cluster)
    graph = bench.graph(name, settings, train=not evaluate)
    found = plan_over(
        graph, hardware, objective=objective, gap=gap, time_limit=time_limit, baselines=False, name=f"{name}_plan"
    )
    found.program.model_args = dict(settings or {})
    found.program.cluster = block.name
    text = standalone(bench, write(found.program), block, f"planned for the {objective} objective")
    proven = _proven(text, "plan.hap")
    return Planned(text, proven, found.cost_s, found.bound_s, imported.tables)


def load(path: str | Path, program: str | None = None) -> Planned:
    """A plan that was saved, or a program written by hand, proven again. Raises HapError as `hapdsl check` does."""
    bench = Workbench(path)
    tree = bench.program(program)
    proven = bench.proven(tree).program
    text = bench.bundle.main.text
    if len(bench.bundle.sources) > 1 or len(bench.programs()) > 1:
        # Saved elsewhere, or taken for smaller batches, it must not need the files beside it.
        text = standalone(bench, tree, None if tree.cluster is None else bench.cluster_block(tree.cluster))
    return Planned(text, proven, tables=weights.load_tables(path))


def _proven(text: str, name: str) -> Program:
    bench = Workbench(name, text)
    return bench.proven(bench.program()).program


class Step:
    """One training (or evaluation) step at a time; parameters and optimizer state stay on their devices between calls."""

    def __init__(
        self, program: Program, start: Mapping[str, Tensor], allow: frozenset[str], seed: int, how: How, text: str
    ) -> None:
        self.program, self.graph, self.text = program, program.graph, text
        self.allow, self.seed, self.how = allow, seed, how
        self.inputs = [t.name for t in self.graph.of_kind("input")]
        dtype = how.precision(self.graph)
        if _under_torchrun() and not dist.is_initialized():
            stay(how.chosen)
        self.executor = self.make(program)
        self.executor.load(_Start(start, Initial(self.graph, seed, dtype)))
        self.smaller: dict[int, InProcess | Rank] = {}  # by size, for what a data set leaves over
        self.last: tuple[InProcess | Rank, Mapping[Value, Any]] | None = None

    def __call__(self, *batch: Batch, **named: Tensor) -> Tensor:
        """Run one step on a global batch: its tensors in order or by name, or a row or mapping of them. Returns the loss, a scalar; of a
        model without one its first output or metric, which under torchrun only the first rank has (the others get an empty tensor).

        A smaller batch than planned for is cut in the same proportions. Raises HapError: HAP706 a tensor that is missing or has another
        shape or kind, HAP702, HAP704 a label or an index out of range.
        """
        given = self.named(named if named and not batch else batch[0] if len(batch) == 1 else batch)
        executor = self.sized(given)
        with torch.no_grad():
            made: dict[Value, Any] = dict(
                executor.step(given) if isinstance(executor, InProcess) else executor.step(executor.feed(given))
            )
            self.last = executor, made
            if self.graph.loss is None:
                first = self.results(made)[(*self.graph.outputs, *self.graph.metrics)[0]]
                whole = self.whole(first, made[first], executor)
                return torch.empty(0) if whole is None else whole
            value = self.loss_value(made)
            if isinstance(executor, InProcess):
                return assemble(executor.program, value, made[value])
            own = counts(executor.program, value, executor.rank)
            total = made[value].clone() if own else torch.zeros_like(made[value])
            dist.all_reduce(total)
            return total

    def make(self, program: Program, beside: InProcess | Rank | None = None) -> InProcess | Rank:
        """An executor of a program: this process' part of it under torchrun, else all of it; it goes on with the training of the one that it is `beside`."""
        backend, dtype = self.how.chosen, self.how.precision(self.graph)
        if _under_torchrun():
            assert not isinstance(beside, InProcess)
            return Rank(program, dtype, self.seed, self.allow, backend=backend, beside=beside)
        assert not isinstance(beside, Rank)
        made = InProcess(program, dtype, self.seed, self.allow, device=backend.device(), beside=beside)
        require(backend, made.device, made.lowered.torch_dtypes)
        return made

    def sized(self, given: Mapping[str, Tensor]) -> InProcess | Rank:
        """The executor for the size of a batch; a smaller one works on what the planned one holds."""
        graph = self.graph.undivided
        own = {
            t.name: t.shape[0]
            for t in self.graph.of_kind("input")
            if t.shape and t.classes[0] in (graph.batch, self.graph.batch) and t.name in given
        }
        found = {n: int(given[n].shape[0]) if given[n].dim() else 0 for n in own}
        size, planned = max(found.values(), default=0), max(own.values(), default=0) * self.graph.turns
        if size > planned:
            raise error(
                "HAP706",
                f"a batch of {size} for a plan for {planned}",
                help=f"plan for it: hapdsl.plan(…, settings={{…: {size}}}), or take smaller batches",
            )
        if size in (0, planned) or min(found.values()) < size:
            return self.executor  # it says what doesn't fit
        if size not in self.smaller:
            self.smaller[size] = self.make(resized(self.text, self.program, size), self.executor)
        executor = self.smaller[size]
        executor.held = self.executor.held  # which both write in place
        return executor

    def outputs(self) -> dict[str, Tensor]:
        """Outputs and metrics of the last step, whole, as far as the program makes them (one for evaluation makes all); under torchrun
        on the first rank, elsewhere none."""
        if self.last is None:
            return {}
        executor, made = self.last
        whole = {n: self.whole(v, made[v], executor) for n, v in self.results(made).items()}
        return {n: t for n, t in whole.items() if t is not None}

    def results(self, made: Iterable[Value]) -> dict[str, Value]:
        """The outputs and metrics among some values, by name."""
        return {v.tensor: v for v in made if v.tensor in (*self.graph.outputs, *self.graph.metrics)}

    def loss_value(self, made: Iterable[Value]) -> Value:
        return [v for v in made if v.tensor == self.graph.loss][-1]

    def named(self, batch: Any) -> dict[str, Tensor]:
        """The tensors of a batch by input. Raises HapError HAP706."""
        names = ", ".join(self.inputs)
        if isinstance(batch, Mapping):
            given = dict(batch)
        else:
            row = [batch] if isinstance(batch, Tensor) else list(batch) if isinstance(batch, list | tuple) else []
            if len(row) != len(self.inputs):
                raise error(
                    "HAP706",
                    f"a batch of {len(row)} tensors for the inputs {names}",
                    help="give them in this order, or by name",
                )
            given = dict(zip(self.inputs, row, strict=True))
        for name in self.inputs:
            tensor, wanted = given.get(name), self.graph.tensors[name]
            if not isinstance(tensor, Tensor):
                what = "has none" if tensor is None else f"has a {type(tensor).__name__}"
                raise error("HAP706", f"the batch {what} for input '{name}'", help=f"tensors for the inputs {names}")
            if tensor.is_complex() or (tensor.is_floating_point() and wanted.dtype not in FLOATS):
                raise error(
                    "HAP706",
                    f"'{name}' is {tensor.dtype}, expected {wanted.dtype}",
                    help=f"{name}.long()" if not tensor.is_complex() else "",
                )
        return given

    def save(self, folder: str | Path, keep: int = 2) -> Path:
        """Write a checkpoint of parameters, buffers and optimizer state, behind the steps done so far, and keep the newest `keep` of a folder;
        returns its own folder. Under torchrun all ranks call it. Raises HapError HAP754.

        Data stay the caller's: `plan.compile(resume=folder)` goes on with whatever batch it is given next.
        """
        return write_checkpoint(self.executor, Saving(Path(folder), 1, keep), self.seed, "the caller's")

    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and buffers by the module's names, whole; under torchrun on the first rank, elsewhere none."""
        found: dict[str, Tensor] = {}
        for value in self.executor.held:
            if self.graph.tensors[value.tensor].kind == "state":
                continue
            whole = self.whole(value, self.executor.held[value], self.executor)
            if whole is not None:
                found[weights.plain(value.tensor)] = whole
        return found

    @staticmethod
    def whole(value: Value, local: Any, executor: InProcess | Rank) -> Tensor | None:
        """A value put together from what `executor` has of it (`local`), in the tensor's global shape; under torchrun all ranks take part, and
        only the first one has it."""
        if isinstance(executor, InProcess):
            return assemble(executor.program, value, local)
        from hapdsl.run.train import collect

        return collect(executor, value, local)

    def write_back(self, module: nn.Module) -> None:
        """Put the trained parameters into the module, on the first rank."""
        weights.into_module(module, self.state_dict())


class _Start(Mapping[str, Tensor]):
    """The module's tensors, and first values of what it doesn't have (optimizer state)."""

    def __init__(self, given: Mapping[str, Tensor], otherwise: Initial) -> None:
        self.given, self.otherwise = given, otherwise

    def __getitem__(self, name: str) -> Tensor:
        return self.given[name] if name in self.given else self.otherwise[name]

    def __iter__(self) -> Any:
        return iter(self.otherwise)

    def __len__(self) -> int:
        return len(self.otherwise)


def _how(module: nn.Module | None, device: str | torch.device | None, dtype: torch.dtype | None) -> How:
    """On what a step runs: where the module lies, if nothing is said. Raises HapError HAP721."""
    if device is None:
        lies = None if module is None else next((t.device for t in (*module.parameters(), *module.buffers())), None)
        device = None if lies is None or lies.type == "meta" else lies
    kind = device.partition(":")[0] if isinstance(device, str) else None if device is None else device.type
    name = None if dtype is None else NAMES.get(dtype, str(dtype))
    how = How(device=kind, dtype=name)
    _ = how.chosen
    return how


def _under_torchrun() -> bool:
    return dist.is_available() and (dist.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) > 1)
