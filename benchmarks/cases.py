"""What is measured: models, clusters and ways to search, by group."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hapdsl.lang.resources import programs_folder

PROGRAMS = programs_folder()
LIMIT = 20.0  # CPU seconds (of a mixed-integer program seconds); for searches that may never end
PLAN_CPU = 20.0  # CPU seconds of a plan that is compared with the baselines

# Sizes under which every example is planned beside the baselines: all of its operators, few layers, and widths that leave room on most clusters.
SMALL: Mapping[str, Mapping[str, int]] = {
    "accumulate": {"layers": 1},
    "bert": {"layers": 1},
    "bert_moe": {"layers": 2},  # one pair: a block with experts, one without
    "decoder": {"layers": 1},
    "encoder": {"layers": 1},
    "gpt": {"layers": 2},
    "gpt2": {"layers": 1, "seq": 256},
    "llama": {"layers": 1, "d": 512, "heads": 8, "kv": 4, "ffn": 1792, "vocab": 16000},
    "lora": {"layers": 1},
    "mixed": {"layers": 1},
    "mixtral": {"layers": 1, "d": 512, "heads": 8, "kv": 4, "ffn": 1792},
    "resnet": {"size": 64, "batch": 128},
    "unet": {"size": 64, "w1": 32, "w2": 64, "w3": 128, "w4": 256, "w5": 512},
    "vit": {"layers": 1},
    "vit_digits": {"layers": 1},
}


@dataclass(frozen=True)
class Case:
    """One measurement, in a process of its own.

    `kind`: "plan" (the synthesizer), "sketch" (a plan completed around a pin), "space" (one way, `method`, to the optimum of one space under
    given shares), "baselines" (a plan without the baselines among its candidates, beside each of them).
    `cluster` is one of `example_clusters`, or "four kinds N" for N devices (`four_kinds`).
    """

    group: str
    kind: str
    model: str
    cluster: str = "two_kinds"
    settings: Mapping[str, int] = field(default_factory=dict)
    method: str = ""

    @property
    def name(self) -> str:
        settings = ", ".join(f"{k}={v}" for k, v in self.settings.items())
        return f"{self.group}: {self.model}({settings}) on {self.cluster}{' by ' + self.method if self.method else ''}"


def example_clusters() -> dict[str, Path]:
    """The clusters of programs/clusters by name, and the files they stand in."""
    files = sorted((PROGRAMS / "clusters").glob("*.hap"))
    return {
        name: path
        for path in files
        for name in re.findall(r"^cluster (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }


KINDS = (("a", 9), ("b", 5), ("c", 3), ("d", 2))  # TFLOP/s


def four_kinds(devices: int) -> str:
    """A cluster of so many devices in four kinds, equally many of each, eight (or all) to a node; of two devices, two kinds.

    Raises ValueError where they can't be dealt so: up to eight devices in equal parts, beyond them in whole nodes of each kind.
    """
    kinds = KINDS[: min(4, devices)]
    if devices % (len(kinds) if devices <= 8 else 8 * len(kinds)):
        raise ValueError(
            f"{devices} devices can't be dealt to {len(kinds)} kinds: there are 1, 2, 3, 4, 8 and multiples of 32"
        )
    declared = "\n".join(
        f"    device {name} {{ compute = {speed} TFLOP/s, memory = 64 GiB, bandwidth = {speed * 100} GB/s, launch = 5 us }}"
        for name, speed in kinds
    )
    link = "bandwidth = 50 GB/s, latency = 10 us"
    if devices <= 8:
        parts = ", ".join(f"{devices // len(kinds)} * {name}" for name, _ in kinds)
        return f"cluster four_kinds {{\n{declared}\n    node host = {parts} over {{ {link} }}\n}}\n"
    nodes = "\n".join(f"    node host_{name} = 8 * {name} over {{ {link} }}" for name, _ in kinds)
    parts = ", ".join(f"{devices // 8 // len(kinds)} * host_{name}" for name, _ in kinds)
    return f"cluster four_kinds {{\n{declared}\n{nodes}\n    network {parts} over {{ bandwidth = 12 GB/s, latency = 30 us }}\n}}\n"


def cases() -> Iterator[Case]:
    """Everything, in the order of the tables."""
    for layers in (1, 4, 12, 24, 48, 96):
        yield Case("layers", "plan", "gpt", settings={"layers": layers})
    for devices in (2, 8, 64, 256, 1024):
        yield Case("devices", "plan", "gpt", f"four kinds {devices}", {"layers": 24, "batch": 1024})
    for model, settings in (
        ("gpt", {"layers": 24}),
        ("bert", {"layers": 24, "batch": 256}),
        ("bert_moe", {"layers": 24}),
        ("vgg19", {"batch": 256}),
        ("vit", {"layers": 24, "batch": 256}),
    ):
        yield Case("models", "plan", model, settings=settings)
    yield Case("sketch", "sketch", "gpt", settings={"layers": 24}, method="a pin")
    yield Case("sketch", "sketch", "gpt", settings={"layers": 24}, method="a pin and the plan's shares")
    yield Case("sketch", "sketch", "gpt", settings={"layers": 24}, method="a pin, the plan at hand")
    depths: dict[str, tuple[int | None, ...]] = {"mlp": (None,), "gpt": (1, 4, 24)}
    for model, each in depths.items():
        for deep in each:
            for method in METHODS:
                yield Case("methods", "space", model, settings={} if deep is None else {"layers": deep}, method=method)
    for path in sorted((PROGRAMS / "models").glob("*.hap")):
        for cluster in example_clusters():
            yield Case("baselines", "baselines", path.stem, cluster, SMALL.get(path.stem, {}))


# Ways to the cheapest program of one space. The last two are exponential and have LIMIT seconds.
METHODS = ("elimination", "A*", "MILP", "A*, h = 0", "property sets")
