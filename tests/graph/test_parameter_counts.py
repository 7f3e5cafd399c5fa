"""The paper's workloads have the parameters that the paper counts, and torchvision's where it has the model."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from tests.graph.helpers import example

MI = 2**20  # the paper's "million"


def parameters(name: str, **settings: int) -> int:
    return sum(t.elements for t in example(name, **settings).of_kind("param"))


@pytest.mark.parametrize(("name", "millions"), [("vgg19", 133), ("vit", 54), ("bert", 102)])
def test_the_paper_s_counts(name: str, millions: int) -> None:
    """Zhang et al., EuroSys '24, table 1: in units of 2^20, cut to whole ones."""
    assert parameters(name) // MI == millions


def test_the_paper_s_bert_moe_grows_with_the_cluster() -> None:
    """84 + 36 m million on m devices, which have two experts each."""
    few, many = (parameters("bert_moe", experts=2 * devices) for devices in (8, 64))
    each = (many - few) // (64 - 8)
    assert each // MI == 36 and (few - 8 * each) // MI == 84


def test_bert_base_but_for_its_head() -> None:
    """transformers.BertModel(BertConfig(), add_pooling_layer=False): 108,891,648 parameters."""
    bert = example("bert", layers=12, vocab=30522, seq=512)
    encoder = [t for t in bert.of_kind("param") if not t.name.startswith("masked_loss.")]
    assert sum(t.elements for t in encoder) == 108_891_648


@pytest.mark.parametrize(
    ("name", "count"), [("gpt2", 124_439_808), ("llama", 8_030_261_248), ("mixtral", 46_702_792_704)]
)
def test_the_models_as_they_are_published(name: str, count: int) -> None:
    """The sums of elements of huggingface.co's gpt2, meta-llama/Meta-Llama-3-8B and mistralai/Mixtral-8x7B-v0.1."""
    assert parameters(name) == count


def test_torchvision_s_vgg19() -> None:
    """https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.vgg19.html: num_params."""
    assert parameters("vgg19", classes=1000) == 143_667_240


def test_torchvision_s_vit_b_16() -> None:
    """The same model at ViT-B/16's sizes. torchvision.models.vit_b_16: num_params."""
    assert parameters("vit", layers=12, size=224, patch=16, classes=1000) == 86_567_656


def test_torchvision_s_resnet50() -> None:
    """torchvision.models.resnet50: num_params."""
    assert parameters("resnet") == 25_557_032


def test_a_unet_of_torch_s_modules() -> None:
    def block(inside: int, outside: int) -> list[nn.Module]:
        pairs = ((inside, outside), (outside, outside))
        return [m for a, b in pairs for m in (nn.Conv2d(a, b, 3, bias=False), nn.GroupNorm(32, b))]

    with torch.device("meta"):
        widths = (64, 128, 256, 512, 1024)
        ups = [m for b, a in itertools.pairwise(widths) for m in (nn.ConvTranspose2d(a, b, 2), *block(a, b))]
        downs = [m for a, b in itertools.pairwise((3, *widths)) for m in block(a, b)]
        net = nn.ModuleList([*downs, *ups, nn.Conv2d(64, 2, 1)])
    assert parameters("unet") == sum(p.numel() for p in net.parameters())


def test_a_dlrm_by_hand() -> None:
    rows = 2_000_000 + 1_000_000 + 500_000 + 200_000 + 50_000 + 10_000 + 1_000 + 100
    bottom = (13 + 1) * 512 + (512 + 1) * 256 + (256 + 1) * 64
    top = (64 + 9 * 8 // 2 + 1) * 512 + (512 + 1) * 256 + 256 + 1
    assert parameters("dlrm") == rows * 64 + bottom + top


@pytest.mark.parametrize("name", ["vgg19", "vit", "bert", "bert_moe", "resnet", "unet", "dlrm"])
def test_weak_scaling_leaves_the_parameters(name: str) -> None:
    assert parameters(name, batch=4096) == parameters(name)
