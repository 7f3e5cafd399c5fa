"""How many bytes of tensors a rank really holds: each storage counted once, from instruction to instruction.

While an action runs, what was there before it and what is there after it are both held. What a kernel or the packing of a message allocates and frees
inside one action isn't counted, nor what a backend takes for itself, as `hapdsl.cost.memory` doesn't count workspace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from hapdsl.run.actions import Act, Action, Store
from hapdsl.run.backends import Backend
from hapdsl.run.distributed import Fed, Rank

STARTS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send", "receive")


class Live(TorchDispatchMode):
    """Knows every storage that was made while it was on, or that it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, tuple[StorageWeakRef, int, int]] = {}
        self.made = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            if isinstance(leaf, Tensor):
                self.show(leaf)
        return found

    def show(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.known or self.known[key][0].expired():
            self.made += 1
            self.known[key] = (StorageWeakRef(storage), storage.nbytes(), self.made)

    def now(self) -> dict[int, int]:
        """Bytes by storage, of those that are there."""
        self.known = {k: entry for k, entry in self.known.items() if not entry[0].expired()}
        return {serial: size for _, size, serial in self.known.values()}


def peak_bytes(rank: Rank, fed: Fed, steps: int = 3) -> int:
    """Run some steps and return the most bytes that the rank held in one, its parameters, state and inputs included.

    The least of the steps counts: a thread of the backend may hold a message a moment longer.
    """
    return min(_peak_bytes(rank, fed) for _ in range(steps))


def _peak_bytes(rank: Rank, fed: Fed) -> int:
    live = Live()
    for tensor in (*rank.held.values(), *(t for parts in fed.values() for t in parts)):
        live.show(tensor)
    peak = [sum(live.now().values())]
    with _watched(rank, live, peak), live:
        rank.step(fed)
    return max(peak)


@contextmanager
def _watched(rank: Rank, live: Live, peak: list[int]) -> Iterator[None]:
    def watched(action: Action) -> Action:
        return Action(action.kind, action.step, _around(action.run, live, peak))

    def unseen(start: Any) -> Any:
        def call(*arguments: Any) -> Any:
            with _disable_current_modes():
                return start(*arguments)

        return call

    starts = {name: getattr(Backend, name) for name in STARTS}
    before: Sequence[list[Action]] = (rank.loop, rank.after)
    rank.loop, rank.after = ([watched(a) for a in part] for part in before)
    for name, start in starts.items():
        setattr(Backend, name, unseen(start))
    try:
        yield
    finally:
        rank.loop, rank.after = before
        for name, start in starts.items():
            setattr(Backend, name, start)


def _around(run: Act, live: Live, peak: list[int]) -> Act:
    def act(store: Store) -> None:
        before = live.now()
        run(store)
        peak.append(sum((before | live.now()).values()))

    return act
