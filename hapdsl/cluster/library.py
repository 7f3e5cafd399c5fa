"""Devices that a file declares for all of its clusters, and devices made from others.

    device v100 { compute = { f32 = 15.7 TFLOP/s, f16 = 125 TFLOP/s }, memory = 16 GiB, bandwidth = 900 GB/s }
    cluster lab {
        device tired = v100 { compute = 9 TFLOP/s }      # all else is v100's
        node host = 4 * v100, 4 * tired over { … }
    }

A name is looked up in the cluster above the place that uses it, then among the file's and its imports' devices; so
`device v100 = v100 { … }` changes the library's v100 within one cluster. A setting replaces the whole setting of its name.

Codes: HAP402 an unknown device behind `=`, HAP417 devices made from each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hapdsl.cluster.measured import MEASURABLE
from hapdsl.cluster.settings import read_device
from hapdsl.lang import nodes
from hapdsl.lang.diagnostics import HapError, Report, error
from hapdsl.lang.near import near
from hapdsl.theory.dtypes import DTYPE_BYTES
from hapdsl.theory.ops import OpDecl


def with_devices(cluster: nodes.Cluster, library: Mapping[str, nodes.Device]) -> nodes.Cluster:
    """The cluster with every device that it uses declared in full inside it; itself where that is so already.

    What comes back needs no library: `build` reads it, and it can be written into a file of its own.
    Raises HapError: HAP402, HAP417.
    """
    used = {part.name for s in cluster.body if isinstance(s, nodes.HostNode) for part in s.parts}
    own: dict[str, nodes.Device] = {}
    body: list[nodes.Statement] = []
    for statement in cluster.body:
        if isinstance(statement, nodes.Device):
            made = own[statement.name] = _whole(statement, own, library)
            body.append(made)
        else:
            body.append(statement)
    taken = [
        replace(_whole(device, {}, library), leading=(), trailing=None, gap=False)
        for name, device in library.items()
        if name in used and name not in own
    ]
    if not taken and all(a is b for a, b in zip(body, cluster.body, strict=True)):
        return cluster
    return replace(cluster, body=(*taken, *body), inline=False)


def check_operators(
    blocks: Iterable[nodes.Cluster | nodes.Device], operators: Mapping[str, OpDecl], report: Report
) -> None:
    """Warns (HAP427) of an efficiency, a tile or a measured table for an operator that there isn't, and of a tile for one without `tiled` dims:
    once, however many devices take it over."""
    named: dict[tuple[str, nodes.Span], str] = {}
    for statement in (s for b in blocks for s in (b.body if isinstance(b, nodes.Cluster) else (b,))):
        if isinstance(statement, nodes.Measured) and statement.device is not None and statement.kind not in MEASURABLE:
            named[statement.kind, statement.span] = "measured"
        elif isinstance(statement, nodes.Device):
            for table in statement.settings:
                said = table.value if table.name in ("efficiency", "tile") and isinstance(table.value, tuple) else ()
                parts = ("compute", "memory") if table.name == "efficiency" else ()
                named |= {(s.name, s.span): table.name for s in said if s.name not in parts}
    for (name, span), table_name in named.items():
        op, _, dtype = name.partition(".")
        meant = [o for o in operators if o == op or o.startswith(f"{op}_")]
        if (dtype and dtype not in DTYPE_BYTES) or not meant:
            known = "an operator's name, with a dtype if need be: matmul, matmul.f16"
            help = known if op in operators else near(op, operators, known)
            report.add("HAP427", f"there is no operator '{name}'", span, help, "warning")
        elif table_name == "tile" and not any(operators[o].tiled for o in meant):
            tiled = ", ".join(o for o, decl in operators.items() if decl.tiled)
            report.add(
                "HAP427",
                f"'{op}' has no `tiled` dims, so its tile says nothing",
                span,
                f"have some: {tiled}",
                "warning",
            )


def _whole(
    device: nodes.Device, above: Mapping[str, nodes.Device], library: Mapping[str, nodes.Device]
) -> nodes.Device:
    """A device with its base's settings in place of those that it doesn't give itself. The base is one of those `above` it in its cluster, else
    of the library."""
    chain = [device]
    while (base := chain[-1].base) is not None:
        found = above.get(base) or library.get(base)
        if found is None:
            known = ", ".join(dict.fromkeys((*above, *library)))
            raise error(
                "HAP402",
                f"there is no device '{base}'",
                chain[-1].span,
                f"known: {known}" if known else 'import "std/hardware.hap"',
            )
        if any(found is d for d in chain):
            names = " -> ".join(d.name for d in (*chain, found))
            raise error(
                "HAP417",
                f"device '{device.name}' is made from itself: {names}",
                device.span,
                "say its settings in one of them",
            )
        chain.append(found)
    if len(chain) == 1:
        return device
    settings: dict[str, nodes.Setting] = {}
    twice: list[nodes.Setting] = []
    for layer in reversed(chain):
        given = {s.name: s for s in layer.settings}
        settings.update(given)
        # a setting given twice in one place stays, for the builder to find
        twice += [s for s in layer.settings if given[s.name] is not s]
    return replace(device, base=None, settings=(*settings.values(), *twice))


def check_devices(devices: Iterable[nodes.Device], library: Mapping[str, nodes.Device], report: Report) -> None:
    """Reads a file's own devices as a cluster would; what is wrong goes to `report`."""
    for device in devices:
        try:
            read_device(_whole(device, {}, library), report)
        except HapError as wrong:
            report.extend(wrong.diagnostics)
