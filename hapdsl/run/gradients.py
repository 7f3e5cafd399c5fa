"""Where gradients go over into updates: their norm is measured there, and what f16 needed is taken off again.

Everything from the seed (`loss.grad`) on is linear in it: the backward pass, collectives, casts, sums over turns. The first call that isn't
(an optimizer, or the sum of squares that clipping asks for) stands at the *border*. With a scale, the seed is that number instead of 1, so that
small gradients don't vanish in f16; at the border they are divided by it, in the dtype they have there (f32 where a master copy is
updated). If one of them is then infinite or no number on any rank, the step changes nothing and the scale is halved; after 2000 good steps
it is doubled (torch.amp.GradScaler's numbers; Micikevicius et al., arXiv 1710.03740, section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from hapdsl.graph.program import Value
from hapdsl.run.actions import Act, Store
from hapdsl.run.lower import Compute, Load, Lowered, Step
from hapdsl.run.pieces import counts

FIRST, GROWTH, BACKOFF, INTERVAL = 2.0**16, 2.0, 0.5, 2000
LARGEST_F16 = 2.0**15  # of a seed that is f16 itself


def borders(lowered: Lowered) -> tuple[dict[int, tuple[int, ...]], set[int]]:
    """The slots of gradients that each step is the first to read as more than something linear (the number behind the last step: what is left as a
    goal), and all slots that ever hold something that is linear in the seed."""
    found: dict[int, tuple[int, ...]] = {}
    linear: set[int] = set()
    ever: set[int] = set()
    for k in lowered.loop:
        step = lowered.steps[k]
        seed = isinstance(step.work, Load) and any(lowered.kind(v) == "seed" for v in step.instruction.outputs)
        _mark(linear, step.outputs, seed or bool(linear & set(step.inputs)))
        ever |= linear
    for k in lowered.after:
        step = lowered.steps[k]
        if not isinstance(step.work, Compute):
            for source, target in zip(step.inputs, step.outputs, strict=False):
                _mark(linear, (target,), source in linear)
        else:
            through = _passes(step, linear)
            read = tuple(dict.fromkeys(s for s in step.inputs if s in linear))
            if read and not through:
                found[k] = read
                linear -= set(read)
            _mark(linear, step.outputs, through)
        ever |= linear
    left = tuple(s for v in lowered.goals.values if (s := lowered.slots[v]) in linear)
    if left:
        found[len(lowered.steps)] = left
    return found, ever


def _mark(slots: set[int], outputs: tuple[int, ...], linear: bool) -> None:
    if linear:
        slots.update(outputs)
    else:
        slots.difference_update(outputs)


def _passes(step: Step, linear: set[int]) -> bool:
    """Is the call linear in just those operands that are linear in the seed?"""
    node = step.instruction.node
    assert node is not None
    places = {p for p, slot in enumerate(step.inputs) if slot in linear}
    return bool(places) and any(set(group) == places for group in node.instance.linear)


@dataclass
class Scale:
    """The scale of f16 gradients and what became of it. `good` steps have passed since it last changed; `skipped` steps changed nothing."""

    value: float = FIRST
    good: int = 0
    skipped: int = 0

    def after(self, finite: bool) -> None:
        if not finite:
            self.value, self.good, self.skipped = self.value * BACKOFF, 0, self.skipped + 1
            return
        self.good += 1
        if self.good >= INTERVAL:
            self.value, self.good = self.value * GROWTH, 0


@dataclass
class Gradients:
    """A rank's gradients as they cross the border. `measuring` says whether their squares are wanted in this step."""

    lowered: Lowered
    rank: int
    device: torch.device
    scale: Scale | None = None
    measuring: bool = False
    squares: list[Tensor] = field(default_factory=list)
    finite: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.borders, self.slots = borders(self.lowered)
        at = {slot: value for value, slot in self.lowered.slots.items()}
        self.counted: dict[int, Value] = {}
        # A gradient counts where it first crosses. What is made of it later isn't another: a copy in another placement, what clipping left.
        seen: set[str] = set()
        for k in (*self.lowered.after, len(self.lowered.steps)):
            for slot in self.borders.get(k, ()):
                if at[slot].tensor not in seen:
                    seen.add(at[slot].tensor)
                    self.counted[slot] = at[slot]
            if k < len(self.lowered.steps) and any(at[s].tensor in seen for s in self.lowered.steps[k].inputs):
                seen.update(at[s].tensor for s in self.lowered.steps[k].outputs)

    @property
    def half(self) -> bool:
        """Is anything between the seed and the border f16?"""
        graph, at = self.lowered.program.graph, {slot: value for value, slot in self.lowered.slots.items()}
        return any(self.lowered.dtypes[graph.tensors[at[s].tensor].dtype] == torch.float16 for s in self.slots)

    def scaled(self, seed: Tensor) -> Tensor:
        """The seed of a step."""
        if self.scale is None:
            return seed
        if seed.dtype == torch.float16:
            self.scale.value = min(self.scale.value, LARGEST_F16)
        return seed * self.scale.value

    def crossing(self, number: int) -> Act | None:
        """What is done with gradients before a step that reads them as such."""
        slots = self.borders.get(number)
        if slots is None:
            return None
        program = self.lowered.program
        weights = {s: counts(program, value, self.rank) for s in slots if (value := self.counted.get(s)) is not None}

        def act(store: Store) -> None:
            for slot in slots:
                gradient = store[slot]
                if self.scale is not None:
                    gradient = store[slot] = gradient * (1 / self.scale.value)
                    self.finite.append(torch.isfinite(gradient).all())
                if self.measuring and weights.get(slot):
                    self.squares.append(
                        gradient.double().square().sum() if gradient.dtype != torch.float64 else gradient.square().sum()
                    )

        return act

    def total(self) -> Tensor:
        """The sum of squares that this rank counts, f64; what was collected is forgotten."""
        squares, self.squares = self.squares, []
        return torch.stack(squares).sum().cpu() if squares else torch.zeros((), dtype=torch.float64)

    def settle(self) -> bool:
        """Behind the last step: may its updates stand? Agreed upon by all ranks."""
        if self.scale is None:
            return True
        own = torch.stack(self.finite).all() if self.finite else torch.ones((), dtype=torch.bool)
        self.finite = []
        bad = (~own).to("cpu", torch.int64).reshape(1)
        dist.all_reduce(bad)
        self.scale.after(finite := not int(bad))
        return finite


def chosen(wanted: str | float, gradients: Gradients) -> Scale | None:
    """The scale that "auto" (where something is f16), "off" or a number means."""
    if wanted == "off" or (wanted == "auto" and not gradients.half):
        return None
    return Scale() if wanted == "auto" else Scale(float(wanted))
