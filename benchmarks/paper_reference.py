"""What the paper's evaluation shows (EuroSys '24, section 8), read from its vector figures (+-1 %). Seconds a step unless said otherwise."""

from __future__ import annotations

NONE = None  # not run, or out of memory

# Testbed, model: what ran, and its seconds at the sizes of `paper_cases.SIZES`.
FIGURES: dict[tuple[str, str], dict[str, tuple[float | None, ...]]] = {
    ("paper_hetero", "vgg19"): {
        "HAP": (0.204, 0.298, 0.401, 0.664),
        "DP-EV": (1.238, 1.286, 1.383, 1.584),
        "DP-CP": (1.047, 1.163, 1.385, 1.506),
        "DeepSpeed": (1.202, 1.367, 1.490, 1.563),
        "TAG": (0.660, 1.131, 1.369, 1.592),
    },
    ("paper_hetero", "vit"): {
        "HAP": (0.444, 0.467, 0.490, 0.519),
        "DP-EV": (0.557, 0.555, 0.602, 0.630),
        "DP-CP": (0.453, 0.459, 0.528, 0.528),
        "DeepSpeed": (0.565, 0.608, 0.642, 0.689),
    },
    ("paper_hetero", "bert"): {
        "HAP": (0.871, 0.922, 0.962, 0.994),
        "DP-EV": (0.907, 1.037, 1.305, 1.334),
        "DP-CP": (0.921, 0.966, 1.040, 1.272),
        "DeepSpeed": (0.972, 1.106, 1.293, 1.362),
        "TAG": (1.150, 1.321, 1.548, 1.912),
    },
    ("paper_hetero", "bert_moe"): {
        "HAP": (1.348, 1.762, 2.332, 3.788),
        "DP-EV": (NONE, NONE, NONE, NONE),
        "DP-CP": (NONE, NONE, NONE, NONE),
        "DeepSpeed": (1.377, 1.875, 2.455, 3.820),
    },
    ("paper_homo", "vgg19"): {
        "HAP": (0.178, 0.258, 0.349, 0.426),
        "DP-EV": (0.871, 1.074, 1.197, 1.201),
        "DeepSpeed": (0.985, 1.097, 1.213, 1.312),
        "TAG": (0.969, 1.021, 1.108, 1.229),
    },
    ("paper_homo", "vit"): {
        "HAP": (0.459, 0.463, 0.570, 0.618),
        "DP-EV": (0.523, 0.602, 0.620, 0.736),
        "DeepSpeed": (0.490, 0.551, 0.619, 0.684),
    },
    ("paper_homo", "bert"): {
        "HAP": (0.805, 0.893, 0.911, 0.999),
        "DP-EV": (0.909, 1.030, 1.109, 1.141),
        "DeepSpeed": (1.078, 1.184, 1.210, 1.230),
        "TAG": (1.166, 1.263, 1.500, 1.639),
    },
    ("paper_homo", "bert_moe"): {
        "HAP": (1.492, 1.962, 2.460, 3.031),
        "DP-EV": (NONE, NONE, NONE, NONE),
        "DeepSpeed": (1.810, 2.157, 2.783, 3.166),
    },
}
# Testbed, model, size, and by how many times the paper's text says that HAP is faster than the best of the others there. (Its "2.41 x" is base/HAP - 1.)
CLAIMS: tuple[tuple[str, str, int, float], ...] = (
    ("paper_hetero", "vgg19", 32, 3.41),
    ("paper_hetero", "bert", 64, 1.28),
    ("paper_homo", "vgg19", 24, 3.17),
    ("paper_homo", "vit", 16, 1.19),
    ("paper_homo", "bert", 24, 1.22),
    ("paper_homo", "bert_moe", 24, 1.13),
)
# Parts of the full throughput at 64 devices, in %: even data parallelism, then what the program (Q), shares (B) and collectives (C) add.
ABLATION = {"vgg19": (42, 51, 7, 0), "vit": (82, 12, 5, 0), "bert": (75, 12, 14, 0), "bert_moe": (NONE, 90, 10, 0)}
# One job on everything, in % of what a job on the V100s and one on the P100s do together.
CONCURRENT = {"vgg19": 64, "vit": 96, "bert": 91, "bert_moe": 78}
# Experts: HAP, DeepSpeed (padded to a multiple of four).
EXPERTS: dict[int, tuple[float, float]] = {
    4: (0.295, 0.394),
    8: (0.370, 0.471),
    16: (0.499, 0.645),
    24: (0.653, 0.956),
    32: (0.819, 1.226),
}
EXPERTS_MOST = (1.64, 29)  # the largest ratio, and at how many experts
# 4 MB on four A100 in two machines: GB/s by the largest part.
PADDED = {0.25: 6.7, 0.43: 4.3, 1.0: 2.0}
GROUPED, CROSSING = (3.7, 4.8), (0.44, 0.46)
# A transformer on 2 A100 and 2 P100: seconds computing for a second communicating, ms with shares by speed and even ones. They tie near .83.
SHARES = ((0.22, 52, 43), (0.37, 58, 49), (0.83, 65, 65), (1.29, 73, 74), (2.42, 88, 98), (2.74, 95, 113))
SHARES_TIE = 0.83
