"""A guess at the machine at hand, for when nobody described a cluster."""

from __future__ import annotations

import os

from hapdsl.cluster.hardware import Cluster, Device
from hapdsl.cluster.links import Host, Link

# One core of a present-day server: two fused multiply-adds of 8 floats each at 2 GHz are 64 GFLOP/s at best, of which
# framework kernels of middle size reach a quarter. The loopback numbers are those gloo shows between local processes.
CORE_FLOPS = 16e9
CORE_BANDWIDTH = 6e9
LOOPBACK = Link(bandwidth=0.9e9, latency=1.2e-3)
LAUNCH = 10e-6


def guess() -> Cluster:
    """This machine as one device per usable core, all alike, marked as guessed. Measures nothing."""
    cores = usable_cores()
    memory = total_memory() / cores
    devices = tuple(
        Device(f"here.core.{k}", "core", {"f32": CORE_FLOPS}, memory, CORE_BANDWIDTH, LAUNCH) for k in range(cores)
    )
    return Cluster("here", devices, (Host("here", tuple(range(cores)), LOOPBACK),), guessed=True)


def usable_cores() -> int:
    """Cores that this process may run on, at least 1."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on every system
        return max(1, os.cpu_count() or 1)


def total_memory() -> float:
    """Bytes of physical memory, 4 GiB where the system won't say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return 4.0 * 2**30
