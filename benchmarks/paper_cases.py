"""What of the paper's evaluation (EuroSys '24, section 8) is simulated: its models, testbeds and sizes, and the side studies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from benchmarks.cases import PROGRAMS
from hapdsl.cluster.builder import build
from hapdsl.cluster.hardware import Cluster
from hapdsl.lang import nodes
from hapdsl.workbench import Workbench

SIZES = {"paper_hetero": (8, 16, 32, 64), "paper_homo": (8, 16, 24, 32)}
MODELS = ("vgg19", "vit", "bert", "bert_moe")
BATCH = {"vgg19": 64, "vit": 64, "bert": 64, "bert_moe": 32}  # of each device: weak scaling
EXPERTS = 2  # of each device
SEPARATE, VIRTUAL = "separate", "virtual"


@dataclass(frozen=True)
class Case:
    """One row of results, made in a process of its own; `kind` is a key of `paper_measure.MEASURES`.

    `devices` is how many of the testbed's take part: the paper has all machines in every size, with equally many cards of each. `nodes` says
    whether each machine is one virtual device. `settings` override the model's parameters beyond its weak scaling; `number` is what a study varies.
    """

    kind: str
    model: str = ""
    testbed: str = ""
    devices: int = 0
    nodes: str = SEPARATE
    settings: Mapping[str, int] = field(default_factory=dict)
    number: float = 0

    @property
    def name(self) -> str:
        words = [self.kind, self.model, f"on {self.testbed}" if self.testbed else "", str(self.devices or "")]
        words += ["virtual" if self.nodes == VIRTUAL else "", *[f"{k}={v}" for k, v in self.settings.items()]]
        return " ".join([w for w in words if w] + ([f"at {self.number:g}"] if self.number else []))

    def scaled(self) -> dict[str, int]:
        """The model's parameters: its share of the batch, and of the experts, for each device."""
        found = {"batch": BATCH[self.model] * self.devices}
        if self.model == "bert_moe":
            found["experts"] = EXPERTS * self.devices
        return {**found, **self.settings}


def of_size(name: str, devices: int, virtual: bool = False) -> tuple[nodes.Cluster, Cluster]:
    """A testbed's text and numbers with so many devices: all its machines, with fewer cards in each. Raises ValueError where they can't be dealt evenly."""
    whole = Workbench(PROGRAMS / "clusters" / f"{name}.hap").cluster_block(name)
    network = next(s for s in whole.body if isinstance(s, nodes.Network))
    machines = sum(p.count for p in network.parts)
    each, left = divmod(devices, machines)
    if left or not each:
        raise ValueError(f"{name} has {machines} machines: {devices} devices can't be dealt evenly")
    body = [_smaller(s, each, virtual) for s in whole.body]
    block = replace(whole, name=f"{name}_{devices}", body=tuple(body))
    return block, build(block)


def _smaller(statement: nodes.Statement, each: int, virtual: bool) -> nodes.Statement:
    if isinstance(statement, nodes.HostNode):
        (part,) = statement.parts
        if each > part.count:
            raise ValueError(f"'{statement.name}' has {part.count} devices, not {each}")
        return replace(statement, parts=(replace(part, count=each),), link=statement.link if each > 1 else ())
    if isinstance(statement, nodes.Network) and virtual:
        return replace(statement, parts=tuple(replace(p, virtual=True) for p in statement.parts))
    return statement


def only(block: nodes.Cluster, node: str) -> nodes.Cluster:
    """A testbed's machines of one sort by themselves."""
    body: list[nodes.Statement] = []
    for s in block.body:
        if isinstance(s, nodes.Network):
            body.append(replace(s, parts=tuple(p for p in s.parts if p.name == node)))
        elif not isinstance(s, nodes.HostNode) or s.name == node:
            body.append(s)
    return replace(block, name=f"{block.name}_{node}", body=tuple(body))


def cases() -> Iterator[Case]:
    """Everything, in the order of the tables."""
    for bed, sizes in SIZES.items():
        for model in MODELS:
            for devices in sizes:
                yield Case("point", model, bed, devices)
    for bed, sizes in SIZES.items():
        for model in MODELS:
            for devices in sizes[1:]:
                yield Case("point", model, bed, devices, VIRTUAL)
    for model in MODELS:
        yield Case("ablation", model, "paper_hetero", 64)
        yield Case("concurrent", model, "paper_hetero", 64)
    yield Case("crossing", testbed="paper_a100")
    for experts in (4, 8, 16, 24, 29, 32):
        yield Case("experts", "bert_moe", "paper_a100_p100", 4, settings={"experts": experts})
    for batch in (1, 2, 4, 8, 16, 32, 64):
        yield Case("factors", "vgg19", "paper_hetero", 8, number=batch)
    for batch in (4, 8, 16, 32, 64, 128):
        yield Case("shares", "bert", "paper_a100_p100", 4, number=batch)
    for layers in (1, 2, 4, 6, 8, 10, 12, 16, 20, 24):
        yield Case("synthesis", "vit", "paper_hetero", 64, settings={"layers": layers})
