"""Models of transformers and timm, made small by their own configurations; each function is a factory for `hapdsl import`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

try:  # the wheels of torchvision hold operators for one build of torch; what timm and transformers import of it needs only their names
    import torchvision  # noqa: F401 (whether it can be imported is what is asked)
except RuntimeError:
    LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


import timm
import torch
import transformers as hf
from torch import Tensor

hf.logging.set_verbosity_error()
TOKENS = "input_ids : i64[batch = 2, seq = 8]; labels : i64[batch, seq]"
IMAGES = "x : f32[batch = 2, 3, 64, 64]; label : i64[batch]"
SMALL: dict[str, Any] = {"vocab_size": 50, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
LLAMA: dict[str, Any] = SMALL | {
    "hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 32,
    "num_hidden_layers": 2,
}  # fmt: skip
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def gpt2(layers: int = 2) -> nn.Module:
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=layers, n_embd=24, n_head=3, n_positions=32, **SMALL, **none))


def bert() -> nn.Module:
    sizes = {
        "num_hidden_layers": 2,
        "hidden_size": 24,
        "num_attention_heads": 3,
        "intermediate_size": 48,
        "max_position_embeddings": 32,
    }
    return hf.BertForMaskedLM(hf.BertConfig(vocab_size=50, **sizes, **NO_DROPOUT))


def bert_base() -> nn.Module:
    return hf.BertForMaskedLM(hf.BertConfig(**NO_DROPOUT))


def llama() -> nn.Module:
    return hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA))


def mixtral() -> nn.Module:
    return hf.MixtralForCausalLM(hf.MixtralConfig(num_local_experts=4, **LLAMA))


def bart() -> nn.Module:
    """Makes the decoder's inputs of the labels, part by part of a new tensor."""
    sizes = {
        f"{side}_{what}": n
        for side in ("encoder", "decoder")
        for what, n in (("layers", 1), ("attention_heads", 3), ("ffn_dim", 48))
    }
    return hf.BartForConditionalGeneration(
        hf.BartConfig(
            vocab_size=50,
            d_model=24,
            max_position_embeddings=32,
            dropout=0.0,
            pad_token_id=1,
            decoder_start_token_id=2,
            **sizes,
        )
    )


def mamba() -> nn.Module:
    """A scan over positions, with convolutions along them."""
    return hf.MambaForCausalLM(hf.MambaConfig(vocab_size=50, hidden_size=24, num_hidden_layers=1, state_size=4))


def vit() -> nn.Module:
    sizes = {
        "num_hidden_layers": 2,
        "hidden_size": 24,
        "num_attention_heads": 3,
        "intermediate_size": 48,
        "image_size": 16,
        "patch_size": 4,
    }
    return hf.ViTForImageClassification(hf.ViTConfig(num_labels=5, **sizes, **NO_DROPOUT))


def t5_encoder() -> nn.Module:
    return hf.T5EncoderModel(
        hf.T5Config(num_layers=3, d_model=24, num_heads=3, d_kv=8, vocab_size=50, d_ff=48, dropout_rate=0.0)
    )


def resnet50() -> nn.Module:
    return timm.create_model("resnet50", num_classes=5)


def vgg19() -> nn.Module:
    """With 32 hidden units in its classifier, which have 4096 in the original."""
    net = timm.create_model("vgg19", num_classes=5)
    net.pre_logits.fc1, net.pre_logits.fc2, net.head.fc = nn.Conv2d(512, 32, 7), nn.Conv2d(32, 32, 1), nn.Linear(32, 5)
    return net


def convnext() -> nn.Module:
    return timm.create_model("convnext_atto", num_classes=5)


def mixer() -> nn.Module:
    return timm.create_model("mixer_s32_224", num_classes=5, img_size=64)


# The same nets with few channels and a block a stage, for plans and runs.
TINY = "x : f32[batch = 2, 3, 32, 32]; label : i64[batch]"


def tiny_resnet() -> nn.Module:
    """ResNet-50's bottleneck blocks."""
    return timm.models.resnet.ResNet(
        timm.models.resnet.Bottleneck, (1, 1, 1, 1), num_classes=5, channels=(8, 8, 8, 8), stem_width=8
    )


def tiny_vgg() -> nn.Module:
    return timm.models.vgg.VGG(cfg=[8, "M", 8, "M", 8, "M"], num_classes=5)


def tiny_convnext() -> nn.Module:
    return timm.models.convnext.ConvNeXt(depths=(1, 1, 1, 1), dims=(8, 8, 16, 16), num_classes=5)


# Models that users will try next: positions by distance (ALiBi, tables of relative positions), windows that are shifted.
def bloom() -> nn.Module:
    return hf.BloomForCausalLM(
        hf.BloomConfig(vocab_size=50, hidden_size=24, n_layer=2, n_head=3, hidden_dropout=0.0, attention_dropout=0.0)
    )


def falcon() -> nn.Module:
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    return hf.FalconForCausalLM(hf.FalconConfig(vocab_size=50, hidden_dropout=0.0, attention_dropout=0.0, **sizes))


def xlnet() -> nn.Module:
    return hf.XLNetLMHeadModel(hf.XLNetConfig(vocab_size=50, d_model=24, n_layer=2, n_head=3, d_inner=48, dropout=0.0))


def swin() -> nn.Module:
    sizes = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4}
    return hf.SwinForImageClassification(hf.SwinConfig(num_labels=5, drop_path_rate=0.0, **sizes))


def beit() -> nn.Module:
    sizes = {
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 48,
        "image_size": 32,
        "patch_size": 8,
    }
    return hf.BeitForImageClassification(
        hf.BeitConfig(num_labels=5, drop_path_rate=0.0, use_relative_position_bias=True, **sizes, **NO_DROPOUT)
    )


def timm_swin() -> nn.Module:
    sizes = {"img_size": 32, "patch_size": 2, "window_size": 4, "embed_dim": 8, "depths": (2, 2), "num_heads": (2, 2)}
    return timm.models.swin_transformer.SwinTransformer(num_classes=5, drop_path_rate=0.0, **sizes)


def tiny_mixer() -> nn.Module:
    return timm.models.mlp_mixer.MlpMixer(num_classes=5, img_size=32, patch_size=8, num_blocks=2, embed_dim=16)


def tokens(batch: int = 2, seq: int = 8) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    found = {n: torch.randint(50, (batch, seq), generator=draw) for n in ("input_ids", "labels")}
    found["labels"][0, 2] = -100  # a token that doesn't count
    found["input_ids"][1, 1:3] = torch.tensor([0, 1])  # padding of some models, whose row isn't trained
    return found


def images(size: int = 64) -> dict[str, Tensor]:
    return {"x": torch.randn(2, 3, size, size), "label": torch.randint(5, (2,))}


CACHED = TOKENS + "; use_cache = false"
