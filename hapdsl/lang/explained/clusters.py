"""HAP4xx: clusters and units. In the order of their numbers."""

from __future__ import annotations

from hapdsl.lang.explained.explanation import Explanation

CLUSTERS: dict[str, Explanation] = {
    "HAP401": Explanation(
        "a cluster without devices",
        "A cluster needs at least one `device` and one `node` that has some of it.",
        "cluster lab { }",
        "cluster lab {\n    device d { compute = 14 TFLOP/s, memory = 16 GiB, bandwidth = 900 GB/s }\n    node host = 1 * d\n}",
    ),
    "HAP402": Explanation(
        "an unknown device or node",
        "A node is made of devices, a network of nodes: devices of the cluster itself, of the file or of what it imports, nodes of the cluster.",
        "network 4 * v100 over { … }",
        "network 1 * host over { … }",
    ),
    "HAP403": Explanation(
        "declared twice",
        "Devices and nodes of a cluster share their names; a cluster has one network and one table per collective.",
    ),
    "HAP404": Explanation(
        "a missing setting",
        "A device says its compute, memory and bandwidth (a table of speeds has f32), a link its bandwidth; a device's "
        "launch and a link's latency are 0 if they aren't given.",
        "device d { compute = 14 TFLOP/s }",
        "device d { compute = 14 TFLOP/s, memory = 16 GiB, bandwidth = 900 GB/s }",
    ),
    "HAP405": Explanation(
        "an unknown setting",
        "Devices have compute, memory, bandwidth, launch, efficiency, tile and interference; links have bandwidth, latency and switch, an uplink its "
        "bandwidth; a table of speeds has dtypes, one of interference compute and message.",
    ),
    "HAP406": Explanation("a setting given twice", "Of two values one would be ignored, so keep the one you mean."),
    "HAP407": Explanation(
        "not a quantity",
        "Sizes, speeds and times of hardware carry their unit, because GB, GiB and Gbit differ; an efficiency is a plain number, a part of the peak.",
        "compute = 14",
        "compute = 14 TFLOP/s",
    ),
    "HAP408": Explanation(
        "hardware that can't be",
        "Speeds, memory and bandwidth are positive, times aren't negative, and nothing is absurdly large: the cost model "
        "divides by these numbers. A device that shouldn't work is left out of its node.",
        "compute = 0 TFLOP/s",
        "compute = 14 TFLOP/s",
    ),
    "HAP409": Explanation(
        "several nodes and no network",
        "Without a `network` a cluster has exactly one node.",
        "",
        "network 1 * big, 2 * small over { bandwidth = 10 Gbit/s, latency = 50 us }",
    ),
    "HAP410": Explanation(
        "a node that the network doesn't reach", "Every declared node stands in the `network`, once or more."
    ),
    "HAP411": Explanation(
        "nothing between devices",
        "Two or more devices in a node, or nodes in a network, are joined by a link that says its bandwidth.",
        "node host = 4 * d",
        "node host = 4 * d over { bandwidth = 12 GB/s, latency = 10 us }",
    ),
    "HAP412": Explanation(
        "a wrong count", "Devices and nodes are counted in whole numbers from 1, up to 100,000 devices together."
    ),
    "HAP413": Explanation(
        "nodes that can't be virtual devices",
        "`virtual` behind a node of the network makes each such node one device for programs of one axis: plain data parallelism inside, priced and run on a "
        "mesh of nodes × devices. So it holds for all nodes of a cluster or for none, and they have equally many devices.",
        "network 2 * big virtual, 6 * small over { … }",
        "network 2 * big virtual, 6 * small virtual over { … }",
    ),
    "HAP414": Explanation(
        "a table that is no curve",
        "A measured table has two points or more; sizes grow from one to the next, and times don't shrink.",
        "measured all_reduce { 1 MiB = 3 ms }",
        "measured all_reduce { 1 MiB = 3 ms, 64 MiB = 140 ms }",
    ),
    "HAP415": Explanation(
        "an unknown collective",
        "Measured are all_reduce, all_gather, reduce_scatter, all_to_all, or one method of them: all_reduce_ring, "
        "all_gather_grouped, reduce_scatter_hierarchical and so on. A method may have a table for uneven shares as well (`at 2.5`: the largest "
        "is 2.5 times an even one). An operator is measured on a kind of device.",
        "measured matmul { 1 GFLOP = 90 us, 8 GFLOP = 640 us }",
        "measured matmul on v100 { 1 GFLOP = 90 us, 8 GFLOP = 640 us }",
    ),
    "HAP416": Explanation(
        "a device that no node has", "A warning: the device is declared, but the cluster doesn't contain it."
    ),
    "HAP417": Explanation(
        "devices made from each other",
        "Behind `=` stands the device whose settings hold where nothing else is said. Following it must come to a device that says all of its own.",
        "device a = b { launch = 5 us }",
        'import "std/hardware.hap"\ndevice a = v100 { launch = 5 us }',
    ),
    "HAP418": Explanation(
        "bits where bytes are meant",
        "Memory, its bandwidth and the sizes of measured messages are counted in bytes (GB, GiB, GB/s); links may be in bits per second, as networks "
        "are sold. 8 Gbit are 1 GB.",
        "memory = 16 Gbit",
        "memory = 16 GiB",
    ),
    "HAP419": Explanation(
        "an uplink without a network",
        "A node's uplink is its card to the network; without a `network` statement there is nothing at its other end.",
        "node host = 2 * d over { bandwidth = 12 GB/s } uplink { bandwidth = 10 Gbit/s }",
        "node host = 2 * d over { bandwidth = 12 GB/s } uplink { bandwidth = 10 Gbit/s }\nnetwork 4 * host over { bandwidth = 25 Gbit/s }",
    ),
    "HAP420": Explanation(
        "another number of devices",
        "A program's shares are lists with one entry per device, so its mesh and the cluster it is priced on have equally many.",
    ),
    "HAP421": Explanation("which cluster?", "The file has several clusters: name one, as NAME, FILE or FILE:NAME."),
    "HAP422": Explanation(
        "an unknown cluster",
        "A cluster is named as NAME (declared or imported here), FILE or FILE:NAME; std/NAME.hap comes with hapdsl.",
    ),
    "HAP423": Explanation("no cluster", "The file that should describe the hardware declares no cluster."),
    "HAP424": Explanation(
        "a program on an unknown cluster",
        "Behind `on` stands a cluster that the file declares or imports; it tells how many devices the program has.",
        "program mine for mlp on lba { … }",
        "program mine for mlp on lab { … }",
    ),
    "HAP426": Explanation(
        "nothing to sweep",
        "A sweep names a quantity of the cluster and goes from a smaller to a larger amount of it: network (the nodes' cards), latency, "
        "link (within nodes), or a kind of device (its speed in f32).",
        "hapdsl cost plan.hap --sweep network=100..1",
        "hapdsl cost plan.hap --sweep network=1..100Gbit/s",
    ),
    "HAP427": Explanation(
        "an operator that there isn't",
        "A warning: an efficiency, a tile or a measured table names no operator, or a tile one whose declaration calls no dims `tiled`, so nothing is priced by it. An entry holds for the operator of that name "
        "and for those whose names continue it with `_`: conv2d for conv2d_input_grad, too.",
        "efficiency = { matmull = 0.7 }",
        "efficiency = { matmul = 0.7 }",
    ),
    "HAP428": Explanation(
        "nothing was measured",
        "A profile was broken off before its first operator or collective had been measured, so there is nothing to write.",
    ),
    "HAP429": Explanation(
        "no size of a message",
        "The largest message that a profile measures is an amount of memory with its unit, from 2 KiB (a table needs two sizes) to 8 GiB.",
        "hapdsl profile -o cluster.hap --max-size 16",
        "hapdsl profile -o cluster.hap --max-size 16MiB",
    ),
    "HAP490": Explanation(
        "an unknown unit",
        "Units of memory are B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024) and kbit, Mbit, Gbit; "
        "bandwidths are the same per second; times are s, ms, us, ns, min, h; speeds are FLOP/s, GFLOP/s, TFLOP/s.",
        "bandwidth = 10 Gbps",
        "bandwidth = 10 Gbit/s",
    ),
    "HAP491": Explanation(
        "a unit of another dimension",
        "Each setting measures one thing: memory is an amount, bandwidth is an amount per second, latency is a time, "
        "compute is FLOP/s. 8 Gbit/s are 1 GB/s, and 1 GiB is 1.074 GB.",
        "bandwidth = 12 GB",
        "bandwidth = 12 GB/s",
    ),
    "HAP492": Explanation("a quantity is out of range", "The amount in SI units isn't a finite number."),
}
