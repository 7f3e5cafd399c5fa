"""From a `cluster` block to a Cluster.

Codes: HAP401 no devices, HAP402 an unknown name, HAP403 a name given twice, HAP404 a missing setting, HAP405 an
unknown setting, HAP406 a setting given twice, HAP407 no unit, HAP408 a quantity out of range, HAP409 a
missing `network`, HAP410 a node that no network reaches, HAP411 several devices or nodes and nothing between them,
HAP412 a count, HAP413 nodes that can't be virtual devices, HAP414 a measured table, HAP415 an unknown collective, HAP416 (a warning) a device
that no node has, HAP418 bits where bytes are meant, HAP419 an uplink without a network. Wrong units keep the codes of `lang.units` (HAP490 to HAP492).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hapdsl.cluster.hardware import Cluster, Device
from hapdsl.cluster.links import Host, Link
from hapdsl.cluster.measured import read_measured, read_operators
from hapdsl.cluster.settings import new_in, read_device, read_link, read_uplink
from hapdsl.graph.program import MOST_DEVICES
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, Report
from hapdsl.lang.nodes import Span


def build(cluster: nodes.Cluster, report: Report | None = None) -> Cluster:
    """The cluster that a block describes.

    All findings go to `report`; if the block has errors, HapError is raised with everything the report then holds,
    so a caller that goes on to other blocks catches it and has nothing to add.
    """
    report = Report() if report is None else report
    own = Report()
    built = _Builder(cluster, own).build()
    report.extend(new_in(own, report))
    if built is None:
        raise HapError(*report)
    return built


class _Builder:
    def __init__(self, cluster: nodes.Cluster, report: Report) -> None:
        self.cluster, self.report = cluster, report
        self.kinds: dict[str, Device | None] = {}
        self.hosts: dict[str, nodes.HostNode] = {}
        self.links: dict[str, Link | None] = {}
        self.uplinks: dict[str, float | None] = {}

    def fail(self, code: str, message: str, span: Span, help: str) -> None:
        self.report.add(code, message, span, help)

    def build(self) -> Cluster | None:
        body = self.cluster.body
        for device in (s for s in body if isinstance(s, nodes.Device)):
            self.declare(device.name, device.span)
            self.kinds[device.name] = read_device(device, self.report)
        for host in (s for s in body if isinstance(s, nodes.HostNode)):
            self.declare(host.name, host.span)
            self.hosts[host.name] = host
            self.links[host.name] = self.host_link(host)
            self.uplinks[host.name] = read_uplink(host.uplink, f"node '{host.name}'", host.span, self.report)
        tables = [s for s in body if isinstance(s, nodes.Measured)]
        measured = read_measured(tables, self.report)
        for name, curves in read_operators(tables, tuple(self.kinds), self.report).items():
            if (kind := self.kinds.get(name)) is not None:
                self.kinds[name] = replace(kind, curves=curves)
        parts, network = self.network([s for s in body if isinstance(s, nodes.Network)])
        self.warn_unused()
        if not parts and not self.report.errors:
            help = "add `device …` and `node … = 4 * name over { … }`"
            self.fail("HAP401", f"cluster '{self.cluster.name}' has no devices", self.cluster.span, help)
        if self.report.errors:
            return None
        devices: list[Device] = []
        hosts: list[Host] = []
        for label, name in _labels(parts):
            first = len(devices)
            devices.extend(self.devices_of(self.hosts[name], label))
            hosts.append(Host(label, tuple(range(first, len(devices))), self.links[name], self.uplinks[name]))
        virtual = any(part.virtual for part in parts)
        return Cluster(self.cluster.name, tuple(devices), tuple(hosts), network, measured, virtual=virtual)

    def declare(self, name: str, span: Span) -> None:
        if name in self.kinds or name in self.hosts:
            message = f"'{name}' is declared twice in cluster '{self.cluster.name}'"
            self.fail("HAP403", message, span, "rename one of them")

    def devices_of(self, host: nodes.HostNode, label: str) -> list[Device]:
        """The devices of one node, named `label.kind.number`; the number counts within the kind."""
        found: list[Device] = []
        count: dict[str, int] = {}
        for part in host.parts:
            device = self.kinds[part.name]
            assert device is not None  # else there were errors
            for _ in range(part.count):
                number = count[part.name] = count.get(part.name, -1) + 1
                found.append(replace(device, name=f"{label}.{part.name}.{number}"))
        return found

    def host_link(self, host: nodes.HostNode) -> Link | None:
        """The link inside a node; also looks at its parts."""
        count = self.count(host.parts, tuple(self.kinds), "device", host.span)
        if host.link:
            return read_link(host.link, f"node '{host.name}'", host.span, self.report)
        if count > 1:
            help = "add `over { bandwidth = 12 GB/s, latency = 10 us }`"
            self.fail("HAP411", f"node '{host.name}' joins {count} devices over nothing", host.span, help)
        return None

    def count(self, parts: Sequence[nodes.Part], known: Sequence[str], what: str, owner: Span) -> int:
        """How many things the parts name; reports counts, unknown names and `virtual`."""
        total = 0
        for part in parts:
            span = part.span if part.span.line else owner
            written = f"{part.count} * {part.name}"
            if part.name not in known:
                message = f"there is no {what} '{part.name}' in cluster '{self.cluster.name}'"
                self.fail("HAP402", message, span, f"known: {', '.join(known) or 'none is declared'}")
            if isinstance(part.count, bool) or not isinstance(part.count, int) or part.count < 1:
                self.fail("HAP412", f"{written}: how many?", span, "a count is a whole number from 1")
            elif part.count > MOST_DEVICES:
                self.fail("HAP412", f"{written} is too many", span, f"at most {MOST_DEVICES}")
            else:
                total += part.count
            if part.virtual and what == "device":
                help = "it is a node that may be one virtual device: `network 2 * host virtual over { … }`"
                self.fail("HAP413", f"'{part.name}' is one device already", span, help)
        return total

    def network(self, statements: list[nodes.Network]) -> tuple[Sequence[nodes.Part], Link | None]:
        """The nodes in order, and the link between them. Without a `network` statement there is one node."""
        for again in statements[1:]:
            message = f"cluster '{self.cluster.name}' has two networks"
            self.fail("HAP403", message, again.span, "put all nodes into one `network`")
        if statements:
            return self.reached(statements[0])
        if len(self.hosts) > 1:
            message = f"cluster '{self.cluster.name}' has {len(self.hosts)} nodes and no network"
            listed = ", ".join(f"1 * {name}" for name in self.hosts)
            help = f"add `network {listed} over {{ bandwidth = 10 Gbit/s, latency = 50 us }}`"
            self.fail("HAP409", message, self.cluster.span, help)
        for host in self.hosts.values():
            if host.uplink:
                message = f"the uplink of node '{host.name}' leads nowhere: there is no network"
                self.fail("HAP419", message, host.uplink[0].span, "add a `network`, or leave it out")
        return [nodes.Part(count=1, name=name) for name in self.hosts], None

    def reached(self, network: nodes.Network) -> tuple[Sequence[nodes.Part], Link | None]:
        total = self.count(network.parts, tuple(self.hosts), "node", network.span)
        link = read_link(network.link, "the network", network.span, self.report) if network.link else None
        if total > 1 and not network.link:
            help = "add `over { bandwidth = 10 Gbit/s, latency = 50 us }`"
            self.fail("HAP411", f"the network joins {total} nodes over nothing", network.span, help)
        named = {part.name for part in network.parts}
        for name, host in self.hosts.items():
            if name not in named:
                message = f"node '{name}' isn't reached by the network"
                self.fail("HAP410", message, host.span, f"add it to the network: `1 * {name}`")
        if not self.report.errors:
            devices = sum(part.count * sum(p.count for p in self.hosts[part.name].parts) for part in network.parts)
            if devices > MOST_DEVICES:
                message = f"cluster '{self.cluster.name}' has {devices} devices"
                self.fail("HAP412", message, network.span, f"at most {MOST_DEVICES}")
            self.virtual(network)
        return network.parts, link

    def virtual(self, network: nodes.Network) -> None:
        """Nodes are virtual devices all or none, and equally large: a program's mesh is a rectangle of nodes and devices."""
        counts = {part.name: sum(p.count for p in self.hosts[part.name].parts) for part in network.parts}
        said = [part for part in network.parts if part.virtual]
        if not said:
            return
        if len(said) < len(network.parts):
            part = next(part for part in network.parts if not part.virtual)
            message = f"'{part.name}' isn't virtual, other nodes are"
            self.fail(
                "HAP413", message, part.span if part.span.line else network.span, "say it of all nodes, or of none"
            )
        elif len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
            help = "a program on virtual devices becomes one on a mesh of nodes × devices"
            self.fail(
                "HAP413", f"nodes that are virtual devices have equally many devices: {listed}", network.span, help
            )

    def warn_unused(self) -> None:
        used = {part.name for host in self.hosts.values() for part in host.parts}
        for statement in self.cluster.body:
            if isinstance(statement, nodes.Device) and statement.name not in used:
                message = f"no node has a device '{statement.name}'"
                self.report.add("HAP416", message, statement.span, "use it or remove it", severity="warning")


def _labels(parts: Sequence[nodes.Part]) -> list[tuple[str, str]]:
    """(label, name) of everything that the parts count off; a name that stands once is its own label."""
    total: dict[str, int] = {}
    for part in parts:
        total[part.name] = total.get(part.name, 0) + part.count
    seen: dict[str, int] = {}
    found = []
    for part in parts:
        for _ in range(part.count):
            number = seen[part.name] = seen.get(part.name, -1) + 1
            found.append((part.name if total[part.name] == 1 else f"{part.name}.{number}", part.name))
    return found
