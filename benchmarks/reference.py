"""What others published, to be read beside our figures."""

from __future__ import annotations

# Seconds of HAP's synthesizer (Rust) by layers of ViT, read from the vector figure of the paper (EuroSys '24, Zhang et al.; +-1 %).
# Forward pass only; the authors' machine.
PUBLISHED_VIT = {1: 0.06, 2: 0.11, 4: 0.23, 6: 0.42, 8: 0.65, 10: 1.02, 12: 1.49, 16: 2.76, 20: 4.55, 24: 6.81}

# HAP's released synthesizer (github.com/alibaba/hap, Rust), built and run on a machine like ours: two cores, 8 devices, batch 256. CPU seconds, median of
# three, for devices alike and not; forward pass only, no bound. (model, layers, calls, iterations of A* a round, seconds alike, seconds unlike)
RELEASED = (
    ("BERT-like", 12, 175, 2199, 2.8, 2.2),
    ("BERT-like", 24, 343, 4359, 10.3, 15.3),
    ("ViT", 24, 345, 4274, 7.8, 7.1),
    ("MoE", 12, 193, 2710, 5.4, 5.0),
    ("MoE", 24, 379, 5404, 20.8, 19.8),
    ("VGG19", None, 48, 137, 0.07, 0.07),
)
# Which of ours stands beside which of theirs.
BESIDE = {"bert": ("BERT-like", 24), "bert_moe": ("MoE", 24), "vit": ("ViT", 24), "vgg19": ("VGG19", None)}
