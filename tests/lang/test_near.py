"""Which name is proposed for one that isn't there, and how fast among the tensors of a deep model."""

import time

from hapdsl.lang.near import closest, near

DEEP = [f"layer.{k}.block.{name}" for k in range(96) for name in ("wq", "wk", "wv", "norm.scale", "mlp.w1", "mlp.w2")]


def test_a_question_or_what_there_is():
    assert near("bach", ["batch", "heads"], "it has: batch, heads") == "did you mean 'batch'?"
    assert near("zzz", ["batch", "heads"], "it has: batch, heads") == "it has: batch, heads"
    assert near("mpl", ["mlp", "gpt"]) == "did you mean 'mlp'?"
    assert near("batch", []) == ""
    assert closest("HAP55", ["HAP551", "HAP552", "HAP553", "HAP554", "HAP101"], 3) == ["HAP554", "HAP553", "HAP552"]


def test_a_dotted_name_differs_in_one_part():
    assert closest("layer.95.blok.mlp.w2", DEEP) == ["layer.95.block.mlp.w2"]
    assert closest("layer.3.block.mlp.w3", DEEP)[0] in ("layer.3.block.mlp.w1", "layer.3.block.mlp.w2")


def test_many_names_take_no_time():
    begun = time.process_time()
    assert closest("layer.95.blok.mlp.w22", DEEP * 20, 1)
    assert time.process_time() - begun < 1
