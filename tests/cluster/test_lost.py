"""Clusters without one device: the devices that are left, their order, and the links between them."""

from __future__ import annotations

import pytest

from hapdsl.cluster import build
from hapdsl.cluster.lost import without
from hapdsl.lang import nodes
from hapdsl.lang.print import to_text
from tests.texts import block_in, cluster_in

KINDS = """
    device a { compute = 8 TFLOP/s, memory = 1 GiB, bandwidth = 8 GB/s }
    device b { compute = 4 TFLOP/s, memory = 1 GiB, bandwidth = 4 GB/s }
    measured matmul on b { 1 GFLOP = 1 ms, 2 GFLOP = 2 ms }
    measured all_reduce { 1 MiB = 1 ms, 2 MiB = 2 ms }
"""
NETWORKS = {
    "one node": "node n = 2 * a, 1 * b over { bandwidth = 1 GB/s, latency = 1 us }",
    "several of a kind": "node n = 2 * a over { bandwidth = 1 GB/s, latency = 1 us }\n node m = 1 * b\n"
    "network 2 * n, 2 * m over { bandwidth = 1 GB/s, latency = 1 us }",
    "virtual": "node n = 2 * a over { bandwidth = 1 GB/s, latency = 1 us }\n"
    "network 3 * n virtual over { bandwidth = 1 GB/s, latency = 1 us }",
    "virtual of one": "node n = 1 * a\n node m = 1 * b\n network 2 * n virtual, 1 * m virtual over { bandwidth = 1 GB/s, latency = 1 us }",
    "two": "node n = 1 * a uplink { bandwidth = 2 GB/s }\n node m = 1 * b\n network 1 * n, 1 * m over { bandwidth = 1 GB/s, latency = 1 us }",
}  # fmt: skip


def where(cluster):
    """For each device its speed and memory, the node that it is in, and that node's links."""
    node = {d: (k, n.link, n.uplink) for k, n in enumerate(cluster.nodes) for d in n.devices}
    return [(cluster.devices[d].flops["f32"], node[d]) for d in range(len(cluster))]


@pytest.mark.parametrize("name", NETWORKS)
def test_each_device_in_turn(name):
    block = block_in(f"cluster c {{{KINDS}\n{NETWORKS[name]}\n}}\n", nodes.Cluster)
    cluster = build(block)
    for gone in range(len(cluster)):
        found = without(block, cluster, gone)
        assert found is not None and found.left_out == cluster.devices[gone].name
        assert cluster_in(to_text(nodes.File((found.block,)))) == found.cluster
        before = where(cluster)
        del before[gone]
        after = where(found.cluster)
        assert [speed for speed, _ in after] == [speed for speed, _ in before]
        numbers = {n: k for k, n in enumerate(dict.fromkeys(node for _, (node, _, _) in before))}
        assert [node for _, (node, _, _) in after] == [numbers[node] for _, (node, _, _) in before]
        assert (found.cluster.network is None) == (len(found.cluster.nodes) == 1)
        assert not found.cluster.measured
        assert all(bool(d.curves) == (d.kind == "b") for d in found.cluster.devices)
        for (_, (_, link, _)), (_, (node, now, _)) in zip(before, after, strict=True):
            assert now == (link if len(found.cluster.nodes[node].devices) > 1 else None)
        assert found.cluster.virtual == (name == "virtual of one" and len(found.cluster.nodes) > 1)


def test_the_last_device():
    block = block_in(f"cluster c {{{KINDS}\nnode n = 1 * b\n}}\n", nodes.Cluster)
    assert without(block, build(block), 0) is None
