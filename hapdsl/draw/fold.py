"""Which turns of a repeat are alike, so that a large drawing shows one of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

Turn = tuple[tuple[str, int], ...]
Key = tuple[str, Turn]  # a section and a turn in it


@dataclass(frozen=True)
class Folded:
    """`shown[i]` is the item drawn in place of item i (itself where nothing is folded).

    `times` says for a drawn turn how many it stands for, and `last` which turn is the last of them. `alike` counts the items
    outside of turns that one of them stands for, itself included (where more than one).
    """

    shown: list[int]
    times: Mapping[Key, int]
    last: Mapping[Key, int]
    alike: Mapping[int, int]


def unfolded(items: int) -> Folded:
    """Every item stands for itself."""
    return Folded(list(range(items)), {}, {}, {})


def fold(keys: Sequence[Key], contents: Sequence[Hashable], reads: Sequence[Iterable[int]]) -> Folded:
    """Fold runs of equal turns into their first one.

    `keys[i]` says where item i stands, `contents[i]` what it is apart from its turn, `reads[i]` the items whose results it reads.
    Two turns are equal if their items are, in order, and read the same items of their own turn. Cost: linear in items and reads.
    """
    members: dict[Key, list[int]] = {}
    for i, key in enumerate(keys):
        members.setdefault(key, []).append(i)
    place = {i: (key, n) for key, own in members.items() for n, i in enumerate(own)}
    shown = list(range(len(keys)))
    times: dict[Key, int] = {}
    last: dict[Key, int] = {}

    def signature(key: Key) -> Hashable:
        found = []
        for i in members[key]:
            inner = tuple(place[r][1] if place[r][0] == key else -1 for r in reads[i])
            found.append((contents[i], inner))
        return tuple(found)

    turns = [key for key in members if key[1]]
    # Turns of one repeat are looked at in the order in which they run.
    for _, group in groupby(sorted(turns, key=_repeat), key=_repeat):
        for _, run in groupby(group, key=signature):
            first, *others = list(run)
            if not others:
                continue
            times[first] = 1 + len(others)
            last[first] = others[-1][1][-1][1]
            for key in others:
                for mine, its in zip(members[key], members[first], strict=True):
                    shown[mine] = its
    return Folded(shown, times, last, _alike(keys, contents, reads, shown, times))


def _alike(
    keys: Sequence[Key],
    contents: Sequence[Hashable],
    reads: Sequence[Iterable[int]],
    shown: list[int],
    times: Mapping[Key, int],
) -> dict[int, int]:
    """Fold items outside of turns that read from folded turns, or from such items, and now look the same: buckets of gradients, and what is sent between turns."""
    seen: dict[Hashable, int] = {}
    counts: dict[int, int] = {}
    after: set[int] = set()
    for i, key in enumerate(keys):
        if key[1] or not any(r in after or keys[shown[r]] in times for r in reads[i]):
            continue
        after.add(i)
        first = seen.setdefault((key, contents[i], tuple(sorted({shown[r] for r in reads[i]}))), i)
        shown[i] = first
        counts[first] = counts.get(first, 0) + 1
    return {i: n for i, n in counts.items() if n > 1}


def _repeat(key: Key) -> tuple[str, tuple[str, ...]]:
    """The section, and the repeat that a turn is one of."""
    return key[0], tuple(name for name, _ in key[1])
