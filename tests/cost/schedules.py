"""Collectives flow by flow: every step's transfers are laid on links, cards and switches, and a step lasts as long as the busiest of
them. Nothing here comes from the cost model's formulas.

A step is a list of (source, target, bytes); it takes the largest sum of bytes over a resource divided by what the resource carries a
second, and the largest latency that one of its flows meets.
"""

from __future__ import annotations

from collections.abc import Sequence

from hapdsl.cluster import Cluster

Flow = tuple[int, int, float]
Step = list[Flow]


class Hall:
    """A cluster whose devices `group` communicate."""

    def __init__(self, cluster: Cluster, group: Sequence[int]) -> None:
        self.cluster = cluster
        self.nodes = [[d for d in host.devices if d in set(group)] for host in cluster.nodes]
        self.hosts = [h for h, members in zip(cluster.nodes, self.nodes, strict=True) if members]
        self.nodes = [members for members in self.nodes if members]
        self.home = {d: k for k, members in enumerate(self.nodes) for d in members}
        self.group = [d for members in self.nodes for d in members]

    def seconds(self, steps: Sequence[Step], through_links: bool = True) -> float:
        return sum(self.step(step, through_links) for step in steps if step)

    def step(self, flows: Step, through_links: bool) -> float:
        load: dict[object, float] = {}
        carries: dict[object, float] = {}
        latency = 0.0

        def use(resource: object, carried: float, size: float) -> None:
            load[resource] = load.get(resource, 0.0) + size
            carries[resource] = carried

        for source, target, size in flows:
            a, b = self.home[source], self.home[target]
            link, network = self.hosts[a].link, self.cluster.network
            if len(self.nodes[a]) > 1 and (a == b or through_links):
                assert link is not None
                use(("link", source), link.bandwidth, size)
                use(("switch", a), link.switch, size)
                latency = max(latency, link.latency)
            if a != b:
                assert network is not None
                for way, k in (("out", a), ("in", b)):
                    card = self.hosts[k].uplink
                    use((way, k), network.bandwidth if card is None else card, size)
                use("network", network.switch, size)
                latency = max(latency, network.latency)
        return max(load[r] / carries[r] for r in load) + latency

    def ring(self, members: Sequence[int], block: float, steps: int | None = None) -> list[Step]:
        """Each passes a block to the next, n - 1 times."""
        n = len(members)
        one = [(members[i], members[(i + 1) % n], block) for i in range(n)]
        return [one] * (n - 1 if steps is None else steps) if n > 1 else []

    def pairs(self, members: Sequence[int], sizes: Sequence[float], times: Sequence[int] | None = None) -> list[Step]:
        """Each sends to each, to another one in every step: `sizes` by target, so many `times` by source."""
        n, times = len(members), times or [1] * len(members)
        ways = [[(i, (i + turn) % n) for i in range(n)] for turn in range(1, n)]
        return [[(members[i], members[j], times[i] * sizes[j]) for i, j in step] for step in ways]

    def together(self, rings: Sequence[list[Step]]) -> list[Step]:
        """Several schedules side by side."""
        most = max(map(len, rings), default=0)
        return [[flow for steps in rings if i < len(steps) for flow in steps[i]] for i in range(most)]

    def up(self, members: Sequence[int], size: float) -> list[Step]:
        """A binomial tree to the first of `members`."""
        steps, distance, n = [], 1, len(members)
        while distance < n:
            steps.append([(members[i], members[i - distance], size) for i in range(distance, n, 2 * distance)])
            distance *= 2
        return steps


def all_reduce(hall: Hall, method: str, total: float) -> float:
    n, k = len(hall.group), len(hall.nodes)
    if method == "ring":
        return hall.seconds(hall.ring(hall.group, total / n, 2 * (n - 1)))
    if method == "tree":
        inside = hall.together([hall.up(members, total) for members in hall.nodes])
        across = hall.up([members[0] for members in hall.nodes], total)
        return 2 * hall.seconds(inside) + 2 * hall.seconds(across, through_links=False)
    c = min(map(len, hall.nodes))
    inside = hall.together([hall.ring(members, total / c) for members in hall.nodes])
    across = hall.together([hall.ring([m[j] for m in hall.nodes], total / c / k, 2 * (k - 1)) for j in range(c)])
    return 2 * hall.seconds(inside) + hall.seconds(across, through_links=False)


def all_gather(hall: Hall, method: str, largest: float) -> float:
    k, g, c = len(hall.nodes), max(map(len, hall.nodes)), min(map(len, hall.nodes))
    if method == "padded":
        return hall.seconds(hall.ring(hall.group, largest))
    if g == c:
        across = hall.together([hall.ring([m[j] for m in hall.nodes], largest) for j in range(c)])
        inside = hall.together([hall.ring(members, k * largest) for members in hall.nodes])
        return hall.seconds(across, through_links=False) + hall.seconds(inside)
    first = hall.together([hall.ring(members, largest) for members in hall.nodes])
    across = hall.together([hall.ring([m[j] for m in hall.nodes], g * largest / c) for j in range(c)])
    last = hall.together([hall.ring(members, (k - 1) * g * largest / c) for members in hall.nodes])
    return hall.seconds(first) + hall.seconds(across, through_links=False) + hall.seconds(last)


def all_to_all(hall: Hall, largest: float) -> float:
    """All flows at once; the latency of as many messages as there are others."""
    n = len(hall.group)
    flows = [(a, b, largest / n) for a in hall.group for b in hall.group if a != b]
    latency = max(hall.step([(a, b, 0.0)], True) for a, b, _ in flows)
    return hall.step(flows, True) - latency + (n - 1) * latency


def all_to_all_by_levels(hall: Hall, largest: float) -> float:
    """Every node's j-th member collects what is for the j-th members of other nodes, these exchange it, and hand it on to those who have no
    counterpart everywhere: the members c behind, 2 c behind… All of it pairwise, a partner a step."""
    n, c = len(hall.group), min(map(len, hall.nodes))
    block = largest / n

    def served(j: int, node: Sequence[int]) -> int:
        return len(node[j::c]) if j < c else 0

    def elsewhere(j: int, node: Sequence[int]) -> int:
        return sum(served(j, other) for other in hall.nodes if other is not node)

    first = hall.together([hall.pairs(m, [(1 + elsewhere(j, m)) * block for j in range(len(m))]) for m in hall.nodes])
    columns = [([m[j] for m in hall.nodes], [served(j, m) * block for m in hall.nodes]) for j in range(c)]
    across = hall.together([hall.pairs(column, sizes, list(map(len, hall.nodes))) for column, sizes in columns])
    last = [
        [(m[j], m[j + turn * c], (n - len(m)) * block) for m in hall.nodes for j in range(c) if j + turn * c < len(m)]
        for turn in range(1, max(served(0, m) for m in hall.nodes))
    ]
    return hall.seconds(first) + hall.seconds(across, through_links=False) + hall.seconds(last)
