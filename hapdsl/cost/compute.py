"""What a compute instruction costs on each device: a roofline.

    seconds = max(flops / (e speed of the dtype), bytes read and written / (e memory bandwidth)) + launch

where e is the part of the peaks that the operator reaches on that device (1 where its cluster says nothing). Where the operator was measured
there, its curve replaces e and the launch; no curve goes below the peaks, which bounds of the search rely on. All sizes are those that are executed: whole units per
device, not ideal shares.

FLOP are those of whole tiles: where a cluster says that an operator computes some of its dims in tiles of a length, what a device has of each is
rounded up to it (tile quantization: a tile that isn't full costs as much as one that is).

A device whose share of the work is empty isn't called and pays nothing. Local conversions (`slice`, `partial`), loads
and `free` are free, as in the HAP paper: they touch a share of memory at most once, which the kernel that reads it does
again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hapdsl.cluster.hardware import Cluster, in_whole_tiles
from hapdsl.graph.training import Node
from hapdsl.theory.dtypes import FLOATS

Floats = NDArray[np.float64]


def compute_dtype(node: Node) -> str:
    """The dtype whose speed counts: of the first output that is a float, else of the first such operand, else f32."""
    given = (*node.instance.result_dtypes, *(g.dtype for g in node.instance.given))
    return next((d for d in given if d in FLOATS), "f32")


def flops_done(node: Node, lengths: Mapping[str, ArrayLike], cluster: Cluster) -> Floats:
    """FLOP per device in whole tiles, by which measured curves go: a number, or an array [devices]. `lengths` as of `compute_seconds`."""
    flops = np.asarray(node.instance.flops(lengths), dtype=float)
    tiles = cluster.reach(node.op, compute_dtype(node)).tiles
    return flops if tiles is None else in_whole_tiles(flops, node.instance.tiled(lengths), tiles)


def compute_seconds(
    node: Node, lengths: Mapping[str, ArrayLike], input_bytes: ArrayLike, output_bytes: ArrayLike, cluster: Cluster
) -> Floats:
    """Seconds per device, float array [devices].

    `lengths` maps an index of the operator to its local length per device (those left out are whole);
    `input_bytes` and `output_bytes` are the bytes of all operands and of all outputs on each device.
    Cost: O(indices × devices).
    """
    dtype = compute_dtype(node)
    reach = cluster.reach(node.op, dtype)
    flops, done = node.instance.flops(lengths), flops_done(node, lengths, cluster)
    moved = np.asarray(input_bytes) + np.asarray(output_bytes)
    seconds: Floats = np.maximum(done / reach.speeds, moved / reach.bandwidths) + cluster.launches
    for devices, measured in reach.curves:
        sizes = [np.broadcast_to(x, len(cluster))[devices] for x in (done, moved)]
        peak = np.maximum(flops / cluster.speeds(dtype), moved / cluster.bandwidths)[devices]
        seconds[devices] = np.maximum(peak, measured.at(*sizes))
    for length in lengths.values():
        seconds = np.where(np.asarray(length) == 0, 0.0, seconds)
    return seconds
