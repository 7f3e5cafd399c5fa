"""Hardware: clusters from text or from a guess, as numbers the cost model reads."""

from hapdsl.cluster.builder import build
from hapdsl.cluster.hardware import Cluster, Curve, Device, Host, Link
from hapdsl.cluster.library import check_devices, with_devices
from hapdsl.cluster.machine import guess

__all__ = ["Cluster", "Curve", "Device", "Host", "Link", "build", "check_devices", "guess", "with_devices"]
