"""Hardware: clusters from text or from a guess, as numbers the cost model reads."""

from hapdsl.cluster.builder import build
from hapdsl.cluster.hardware import Cluster, Curve, Device, Interference, OpCurve
from hapdsl.cluster.library import check_devices, check_operators, with_devices
from hapdsl.cluster.links import Host, Link
from hapdsl.cluster.machine import guess
from hapdsl.cluster.wiring import Hop, Wiring

__all__ = [
    "Cluster",
    "Curve",
    "Device",
    "Hop",
    "Host",
    "Interference",
    "Link",
    "OpCurve",
    "Wiring",
    "build",
    "check_devices",
    "check_operators",
    "guess",
    "with_devices",
]
