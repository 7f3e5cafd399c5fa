"""The settings of a cluster block: `name = quantity`, read with their units and held against sane limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from hapdsl.cluster.hardware import Device, Interference
from hapdsl.cluster.links import Link
from hapdsl.lang import nodes, units
from hapdsl.lang.diagnostics import Diagnostic, HapError, Report
from hapdsl.lang.nodes import Span
from hapdsl.theory.dtypes import DTYPE_BYTES

# What a setting must measure (a dimension of `lang.units`), its lowest and its highest sane value in SI units. The
# limits leave room for hardware that is scaled up or down a million times, as experiments do; they catch slips of
# the pen such as 1e30, and everything the cost model can't divide by.
LIMITS: dict[str, tuple[str, float, float]] = {
    "compute": ("compute", 1.0, 1e24),
    "memory": ("memory", 1.0, 1e18),
    "bandwidth": ("bandwidth", 1.0, 1e21),
    "switch": ("bandwidth", 1.0, 1e21),
    "latency": ("time", 0.0, 3600.0),
    "launch": ("time", 0.0, 3600.0),
}
MOST_TILE = 65_536
EXAMPLES = {
    "compute": "14 TFLOP/s", "memory": "16 GiB", "bandwidth": "900 GB/s", "switch": "100 Gbit/s", "latency": "5 us", "launch": "5 us",
}  # fmt: skip


def known(
    settings: Sequence[nodes.Setting], names: Iterable[str], what: str, report: Report
) -> dict[str, nodes.Setting]:
    """The settings by name. Reports HAP405 for one that `what` doesn't have and HAP406 for one given twice."""
    allowed = tuple(names)
    found: dict[str, nodes.Setting] = {}
    for setting in settings:
        if setting.name not in allowed:
            report.add(
                "HAP405", f"{what} has no setting '{setting.name}'", setting.span, f"known: {', '.join(allowed)}"
            )
        elif setting.name in found:
            report.add("HAP406", f"{what}: '{setting.name}' is given twice", setting.span, "keep one of them")
        else:
            found[setting.name] = setting
    return found


def required(
    settings: dict[str, nodes.Setting], name: str, what: str, span: Span, report: Report
) -> nodes.Setting | None:
    """A setting that must be there; reports HAP404 where it isn't."""
    if name not in settings:
        report.add("HAP404", f"{what} doesn't say its {name}", span, f"add `{name} = {EXAMPLES[name]}`")
    return settings.get(name)


def amount(
    name: str, value: nodes.Expr | tuple[nodes.Setting, ...], what: str, span: Span, report: Report, bits: bool = True
) -> float | None:
    """A quantity in SI units; None where it is wrong: HAP407 no quantity, HAP408 out of range, HAP418 in bits where they
    aren't allowed, and the codes of `lang.units`."""
    dimension, low, high = LIMITS[name]
    sign = 1.0
    if isinstance(value, nodes.Negate):
        sign, value = -1.0, value.operand
    example = f"write, say, {name} = {EXAMPLES[name]}"
    if isinstance(value, nodes.Number):
        report.add("HAP407", f"{what}: {name} needs a unit", value.span, example)
        return None
    if not isinstance(value, nodes.Quantity):
        report.add("HAP407", f"{what}: {name} must be a quantity with a unit", getattr(value, "span", span), example)
        return None
    try:
        number = sign * units.to_si(value, dimension)
    except HapError as wrong:
        for d in wrong.diagnostics:
            report.add(d.code, f"{what}: {name}: {d.message}", value.span, d.help or example)
        return None
    if not bits and "bit" in value.unit:
        help = f"{value.unit.replace('bit', 'B')} if that was meant; 8 bits are a byte"
        report.add("HAP418", f"{what}: {name} is counted in bytes, found {value.unit}", value.span, help)
        return None
    if not math.isfinite(number) or not low <= number <= high:
        positive = "a positive, finite quantity" if low > 0 else "zero or a positive, finite quantity"
        limits = f"between {low:g} and {high:g} in SI units"
        report.add("HAP408", f"{what}: {name} is out of range, expected {positive}", value.span, f"{example}; {limits}")
        return None
    return number


def read_link(settings: Sequence[nodes.Setting], what: str, span: Span, report: Report) -> Link | None:
    """`over { bandwidth = …, latency = …, switch = … }`; latency is 0 where it isn't given, the switch unlimited."""
    given = known(settings, ("bandwidth", "latency", "switch"), what, report)
    bandwidth = required(given, "bandwidth", what, span, report)
    speed = amount("bandwidth", bandwidth.value, what, bandwidth.span, report) if bandwidth else None
    delay: float | None = 0.0
    if "latency" in given:
        delay = amount("latency", given["latency"].value, what, given["latency"].span, report)
    switch: float | None = math.inf
    if "switch" in given:
        switch = amount("switch", given["switch"].value, what, given["switch"].span, report)
    return None if speed is None or delay is None or switch is None else Link(speed, delay, switch)


def read_uplink(settings: Sequence[nodes.Setting], what: str, span: Span, report: Report) -> float | None:
    """`uplink { bandwidth = … }` in bytes/s; None where there is none."""
    if not settings:
        return None
    given = known(settings, ("bandwidth",), f"the uplink of {what}", report)
    setting = required(given, "bandwidth", f"the uplink of {what}", span, report)
    return amount("bandwidth", setting.value, f"the uplink of {what}", setting.span, report) if setting else None


def read_device(device: nodes.Device, report: Report) -> Device | None:
    """A `device` block as a Device named after its kind; None where something is wrong with it. What is wrong with a setting that it takes
    over from another device is said once, of the device that was read first."""
    own = Report()
    found = _device(device, own)
    report.extend(new_in(own, report))
    return found


def new_in(found: Report, report: Report) -> list[Diagnostic]:
    """What `report` doesn't hold yet: the same code at the same place is the same fault, whichever device takes it over."""
    said = {(d.code, d.span) for d in report}
    return [d for d in found if (d.code, d.span) not in said]


def _device(device: nodes.Device, report: Report) -> Device | None:
    what = f"device '{device.name}'"
    given = known(
        device.settings,
        ("compute", "memory", "bandwidth", "launch", "efficiency", "tile", "interference"),
        what,
        report,
    )
    compute = required(given, "compute", what, device.span, report)
    flops = _speeds(compute, what, report) if compute else None
    sizes: dict[str, float | None] = {"launch": 0.0}
    for name in ("memory", "bandwidth"):
        setting = required(given, name, what, device.span, report)
        sizes[name] = amount(name, setting.value, what, setting.span, report, bits=False) if setting else None
    if "launch" in given:
        sizes["launch"] = amount("launch", given["launch"].value, what, given["launch"].span, report)
    efficiency = _parts(given["efficiency"], what, report) if "efficiency" in given else {}
    tiles = _tiles(given["tile"], what, report) if "tile" in given else {}
    interference = _interference(given["interference"], what, report) if "interference" in given else Interference()
    memory, bandwidth, launch = sizes["memory"], sizes["bandwidth"], sizes["launch"]
    if flops is None or memory is None or bandwidth is None or launch is None:
        return None
    if efficiency is None or tiles is None or interference is None:
        return None
    return Device(
        device.name, device.name, flops, memory, bandwidth, launch, efficiency, tiles=tiles, interference=interference
    )


def _interference(setting: nodes.Setting, what: str, report: Report) -> Interference | None:
    """`interference = { compute = 0.3, message = 0.2 }`, or of computing alone `interference = 0.3`: from 0 to 1, both together, too. Reports HAP407
    no plain number, HAP408 out of range, HAP405 another part, and what `_numbers` does."""
    example = "write, say, interference = { compute = 0.3, message = 0.2 }: what each takes longer beside the other"
    if isinstance(setting.value, tuple):
        found = _numbers(setting, what, report, example, lambda v: 0 <= v <= 1, "0 to 1", Interference._fields)
        if found is None:
            return None
        parts = Interference(**found)
        if sum(parts) <= 1:
            return parts
        report.add("HAP408", f"{what}: interference takes more than there is, compute and message together are at most 1", setting.span, example)  # fmt: skip
    elif not isinstance(setting.value, nodes.Number):
        report.add("HAP407", f"{what}: interference must be a plain number", setting.span, example)
    elif not 0 <= setting.value.value <= 1:
        report.add("HAP408", f"{what}: interference is out of range, expected 0 to 1", setting.span, example)
    else:
        return Interference(float(setting.value.value))
    return None


def _parts(setting: nodes.Setting, what: str, report: Report) -> dict[str, float] | None:
    """`efficiency = { matmul = 0.7, compute = 0.5 }`: parts of the peaks, above 0 and up to 1. Reports what `_numbers` does."""
    example = "write, say, efficiency = { matmul = 0.7, conv2d = 0.5, memory = 0.8 }"
    limits = "above 0 and up to 1: a part of the peak"
    return _numbers(setting, what, report, example, lambda value: 0 < value <= 1, limits)


def _tiles(setting: nodes.Setting, what: str, report: Report) -> dict[str, int] | None:
    """`tile = { conv2d = 16 }`: whole numbers from 1 to MOST_TILE. Reports what `_numbers` does."""
    example = "write, say, tile = { conv2d = 16 }: channels are computed sixteen at a time"
    limits = f"whole numbers from 1 to {MOST_TILE}"
    found = _numbers(setting, what, report, example, lambda v: 1 <= v <= MOST_TILE and v == int(v), limits)
    return None if found is None else {name: int(value) for name, value in found.items()}


def _numbers(
    setting: nodes.Setting,
    what: str,
    report: Report,
    example: str,
    good: Callable[[float], bool],
    limits: str,
    names: Iterable[str] | None = None,
) -> dict[str, float] | None:
    """The plain numbers of a table: by operator, or by `names`. Reports HAP406 for one given twice, HAP407 no table or no plain number, HAP408 one that isn't `good`."""
    if not isinstance(setting.value, tuple):
        report.add("HAP407", f"{what}: {setting.name} is a table", setting.span, example)
        return None
    allowed = names or tuple(s.name for s in setting.value)
    found: dict[str, float] = {}
    for entry in known(setting.value, allowed, f"{what}: {setting.name}", report).values():
        named = f"{what}: {setting.name} of '{entry.name}'"
        if not isinstance(entry.value, nodes.Number):
            report.add("HAP407", f"{named} must be a plain number", entry.span, example)
        elif not good(entry.value.value):
            report.add("HAP408", f"{named} is out of range, expected {limits}", entry.span, example)
        else:
            found[entry.name] = float(entry.value.value)
    return found if len(found) == len(setting.value) else None


def _speeds(setting: nodes.Setting, what: str, report: Report) -> dict[str, float] | None:
    """FLOP/s per dtype, from one quantity (it is f32's) or from a table that has f32."""
    if not isinstance(setting.value, tuple):
        speed = amount("compute", setting.value, what, setting.span, report)
        return None if speed is None else {"f32": speed}
    entries = known(setting.value, DTYPE_BYTES, f"{what}: compute", report)
    if "f32" not in entries:
        report.add(
            "HAP404",
            f"{what}: compute doesn't say the speed of f32",
            setting.span,
            f"add `f32 = {EXAMPLES['compute']}`",
        )
    speeds = {dtype: amount("compute", s.value, f"{what} ({dtype})", s.span, report) for dtype, s in entries.items()}
    good = {dtype: speed for dtype, speed in speeds.items() if speed is not None}
    return good if len(good) == len(setting.value) and "f32" in good else None
