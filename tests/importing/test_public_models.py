"""transformers and timm: the same loss and updated weights as the module itself, from the module's own weights."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapdsl.importing.convert import import_module
from tests.importing import public
from tests.importing.helpers import classify, own_loss, round_trip
from tests.importing.public import CACHED, images, tokens
from tests.texts import REPOSITORY


def next_token(logits: Tensor, label: Tensor) -> Tensor:
    """The language models' loss without their cast to float32, to compare in float64."""
    return F.cross_entropy(logits.flatten(0, 1), label.flatten())


def by_logits(module: nn.Module, batch) -> Tensor:
    return next_token(module(input_ids=batch["input_ids"], use_cache=False).logits, batch["labels"])


def exact_norms(module: nn.Module) -> nn.Module:
    """Norms, routers and rotary tables without the detour over float32 that transformers take, to compare in float64."""

    def norm(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    def tables(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        half = len(self.inv_freq)
        base = self.config.rope_parameters["rope_theta"]
        angles = position_ids[..., None].to(x) * base ** (-torch.arange(half).to(x) / half)
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()

    def route(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = F.linear(x.reshape(-1, self.hidden_dim), self.weight)
        scores, chosen = torch.topk(torch.softmax(logits, -1), self.top_k, -1)
        return logits, scores / scores.sum(-1, keepdim=True), chosen

    for part in module.modules():
        if type(part).__name__ == "MixtralTopKRouter":
            part.forward = route.__get__(part)
        if type(part).__name__ in ("LlamaRMSNorm", "MixtralRMSNorm", "T5LayerNorm"):
            part.forward = norm.__get__(part)
        if type(part).__name__ in ("LlamaRotaryEmbedding", "MixtralRotaryEmbedding"):
            part.forward = tables.__get__(part)
    return module


@pytest.mark.parametrize(
    ("make", "example", "distributed"),
    [
        (public.bert, public.TOKENS, True),
        (public.gpt2, CACHED, True),
        (public.llama, CACHED, False),
        (public.mixtral, CACHED, False),
        (public.bart, CACHED, False),
        (public.mamba, CACHED, False),
    ],
)
def test_language_models(make: Callable[[], nn.Module], example: str, distributed: bool):
    trip = round_trip(make(), example, tokens(), dtype=torch.float32, distributed=distributed)
    assert trip.loss_diff < 1e-5 and trip.weight_diff < 1e-5


@pytest.mark.parametrize(("make", "causal"), [(public.bert, False), (public.gpt2, True)])
def test_padded_batches(make: Callable[[], nn.Module], causal: bool):
    """An attention mask among the inputs; padding doesn't count."""
    batch = tokens() | {"attention_mask": torch.ones(2, 8, dtype=torch.int64)}
    batch["attention_mask"][1, 5:] = 0
    batch["labels"][1, 5:] = -100
    example = public.TOKENS + "; attention_mask : i64[batch, seq]" + ("; use_cache = false" if causal else "")
    trip = round_trip(make(), example, batch, dtype=torch.float32, distributed=False)
    assert trip.loss_diff < 1e-5 and trip.weight_diff < 1e-5
    assert ("causal = true" in trip.imported.text) == causal


@pytest.mark.parametrize("make", [public.bert, public.gpt2, public.llama])
def test_language_models_in_double(make: Callable[[], nn.Module]):
    """On three devices, one of them without a part of the batch."""
    module = exact_norms(make())
    example = "input_ids : i64[batch = 2, seq = 8]; labels : i64[batch, seq]" + (
        "" if make is public.bert else "; use_cache = false"
    )

    def loss(own: nn.Module, batch) -> Tensor:
        wishes = {} if make is public.bert else {"use_cache": False}
        return next_token(own(input_ids=batch["input_ids"], **wishes).logits, batch["labels"])

    trip = round_trip(module, example, tokens(), loss, loss=next_token, target="labels", by_batch=True)
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10


def test_experts_in_double():
    """Imported as transformers exports it, compared with its loop over experts."""
    module = exact_norms(public.mixtral())
    imported_as = module.config._experts_implementation

    def loss(own: nn.Module, batch) -> Tensor:
        own.set_experts_implementation("eager")
        return by_logits(own, batch)

    trip = round_trip(module, CACHED, tokens(), loss, loss=next_token, target="labels", distributed=True)
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10
    assert imported_as == "grouped_mm"
    assert trip.graph.classes["experts"].units == 4
    assert "mlp.experts.gate_up_proj : f32[experts, 2, ffn, d]" in trip.imported.text


PATCHES = "pixel_values : f32[batch = 2, 3, 16, 16]; labels : i64[batch]"


def patches() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.randint(5, (2,))}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_vit(dtype, tolerance):
    trip = round_trip(public.vit(), PATCHES, patches(), dtype=dtype)
    assert trip.loss_diff < tolerance and trip.weight_diff < tolerance


ENCODED = "input_ids : i64[batch = 2, seq = 8]; label : i64[batch]"


def first_state(states: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(states[:, 0], label)


def encoded(own: nn.Module, batch) -> Tensor:
    return first_state(own(input_ids=batch["input_ids"]).last_hidden_state, batch["label"])


def test_t5_encoder():
    batch = {"input_ids": tokens()["input_ids"], "label": torch.randint(24, (2,))}
    trip = round_trip(exact_norms(public.t5_encoder()), ENCODED, batch, encoded, loss=first_state, distributed=False)
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10
    assert list(trip.imported.tables) != []  # the buckets of relative positions


def _eager_experts(own: nn.Module, batch) -> Tensor:
    if hasattr(own, "set_experts_implementation"):
        own.set_experts_implementation("eager")
    return by_logits(own, batch)


@pytest.mark.parametrize(
    ("make", "dtype", "tolerance"),
    [
        (public.t5_encoder, torch.float64, 1e-10),
        (public.llama, torch.float64, 1e-10),
        (public.mixtral, torch.float64, 1e-10),
        (public.tiny_resnet, torch.float64, 1e-10),
        (public.tiny_convnext, torch.float64, 1e-10),
        (public.tiny_convnext, torch.float32, 1e-5),
        (public.tiny_vgg, torch.float64, 1e-10),
        (public.tiny_mixer, torch.float64, 1e-10),
        (public.vit, torch.float64, 1e-10),
    ],
)
def test_planned_for_three_devices_one_of_them_without_a_part(
    make: Callable[[], nn.Module], dtype: torch.dtype, tolerance: float
):
    """Planned from the text, run from the module's own weights: loss and updated weights of eager PyTorch."""
    module = exact_norms(make())
    if make is public.t5_encoder:
        batch = {"input_ids": tokens()["input_ids"], "label": torch.randint(24, (2,))}
        trip = round_trip(module, ENCODED, batch, encoded, dtype, loss=first_state, by_batch=True, steps=1)
    elif make in (public.llama, public.mixtral):
        trip = round_trip(
            module, CACHED, tokens(), _eager_experts, dtype, loss=next_token, target="labels", by_batch=True, steps=1
        )
    elif make is public.vit:
        trip = round_trip(module, PATCHES, patches(), dtype=dtype, by_batch=True, steps=1)
    else:
        trip = round_trip(
            module, public.TINY, images(32), classify, dtype, loss="cross_entropy", by_batch=True, steps=1
        )
    assert trip.loss_diff < tolerance and trip.weight_diff < tolerance


@pytest.mark.parametrize("make", [public.resnet50, public.vgg19, public.convnext, public.mixer])
def test_images(make: Callable[[], nn.Module]):
    small = make in (public.resnet50, public.convnext)
    example, size = (public.TINY, 32) if small else (public.IMAGES, 64)
    trip = round_trip(make(), example, images(size), classify, loss="cross_entropy", distributed=False, steps=1)
    assert trip.loss_diff < 1e-10 and trip.weight_diff < 1e-10


def test_gpt2_at_5_and_11_layers():
    """With one digit and with two, it is one text."""
    five, more = (import_module(public.gpt2(n), CACHED).text for n in (5, 11))
    assert five.replace("layers = 5", "layers = 11") == more


def test_gpt2_at_another_batch_and_length():
    trip = round_trip(
        public.gpt2(), CACHED, tokens(3, 13), own_loss, torch.float32, {"batch": 3, "seq": 13}, distributed=False
    )
    assert trip.loss_diff < 1e-5 and trip.weight_diff < 1e-5


def test_alike_layers_that_are_no_repeat_become_defs():
    """ResNet's stages differ in their channels, T5's first block has the bias of positions: one def, called for each."""
    text = import_module(public.resnet50(), public.IMAGES, loss="cross_entropy").text
    assert "def bottleneck(x, n1, n2, by) {" in text  # two widths, and the factor of running variances
    assert "layer3.5 = bottleneck(layer3.4, 256, 1024, " in text
    assert text.count("\n") < 200
    t5 = import_module(public.t5_encoder(), "input_ids : i64[batch = 2, seq = 8]").text
    assert "encoder.block.1 = t5block(" in t5 and "encoder.block.2 = t5block(encoder.block.1," in t5
    assert "encoder.block.0.layer.0.SelfAttention.q.weight" in t5 and "encoder.block.1.layer.0" not in t5


def test_fused_projections_are_apart():
    text = import_module(public.gpt2(), CACHED).text
    assert "param attn.c_attn.weight : f32[d, 3, heads, head_dim]" in text
    assert "# in the state_dict [24, 72]" in text
    llama = import_module(public.llama(), CACHED).text
    assert "self_attn.q_proj.weight : f32[kv_heads, group, head_dim, d]" in llama


def test_bert_base_at_full_size(tmp_path: Path):
    """110 million parameters: in 30 s and 3 GiB, without its weights, in 150 lines."""
    out = tmp_path / "bert.hap"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    example = "input_ids : i64[batch = 8, seq = 512]; labels : i64[batch, seq]"
    call = ["import", "tests.importing.public:bert_base", "--example", example, "-o", str(out)]
    script = f"from hapdsl.cli import main; assert main({call!r}) == 0; print(open('/proc/self/status').read())"
    said = subprocess.run(
        [sys.executable, "-c", script], check=True, cwd=REPOSITORY, capture_output=True, text=True
    ).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Of processors: what else runs doesn't count.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 30
    peak = next(int(line.split()[1]) for line in said.splitlines() if line.startswith("VmHWM"))
    assert peak < 3 * 2**20  # KiB
    text = out.read_text(encoding="utf-8")
    assert text.count("\n") < 150 and "layers = 12" in text
