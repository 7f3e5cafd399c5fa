"""Batches, first values and random inputs: what they are, and that they depend on nothing but the seed."""

from __future__ import annotations

import io
import math
import zipfile

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from hapdsl.importing.weights import load_tables
from hapdsl.lang.diagnostics import HapError
from hapdsl.run.data import batch_size, open_feed, remark
from hapdsl.run.initial import Initial, initial, random_inputs
from hapdsl.run.train import train
from hapdsl.search.planner import plan
from hapdsl.workbench import Workbench
from tests.graph.helpers import graph_of

CLASSIFIER = """
model m(batch = 12) {
    input image : f32[SHAPE]
    input label : i64[batch]
    param w : f32[64, 10] init normal(std = 0.1)
    x = reshape(image, shape = [batch, 64])
    z = matmul(x, w)
    loss = cross_entropy(z, label)
    output z
    train loss with sgd(lr = 0.1)
}
"""

CLUSTER = """
cluster two {
    device d { compute = 8 GFLOP/s, memory = 2 GiB, bandwidth = 8 GB/s }
    node host = 2 * d over { bandwidth = 90 GB/s, latency = 1 us }
}
"""


def classifier(shape="batch, 8, 8"):
    return graph_of(CLASSIFIER.replace("SHAPE", shape))


@pytest.mark.parametrize("shape", ["batch, 8, 8", "batch, 1, 8, 8", "batch, 64"])
def test_digits_fit_images_of_64_numbers(shape):
    graph = classifier(shape)
    feed = open_feed("digits", graph)
    batch = feed.batch(1)
    assert tuple(batch["image"].shape) == graph.tensors["image"].shape
    assert batch["image"].dtype == torch.float32 and 0 <= batch["image"].min() and batch["image"].max() == 1
    assert feed.test is not None and len(feed.test["label"]) == 359


def test_digits_are_not_trained_on_what_is_tested():
    feed = open_feed("digits", classifier())
    assert feed.test is not None
    held_back = {t.numpy().tobytes() for t in feed.test["image"]}
    trained = [t.numpy().tobytes() for step in range(1, 200) for t in feed.batch(step)["image"]]

    images = (load_digits().images / 16).astype(np.float32)
    every = {i.tobytes() for i in images}
    assert held_back | set(trained) == every
    twins = len(images) - len(every)  # the data set itself has a few equal images
    assert len(held_back & set(trained)) <= twins


def test_an_epoch_is_every_sample_once(tmp_path):
    """Batches of 12 out of 30 samples: epochs follow one another without a gap."""
    graph = classifier()
    image = np.arange(30, dtype=np.float32)[:, None, None] + np.zeros((30, 8, 8), dtype=np.float32)
    np.savez(tmp_path / "d.npz", image=image, label=np.arange(30) % 10)
    feed = open_feed(str(tmp_path / "d.npz"), graph, 3)
    drawn = torch.cat([feed.batch(step)["image"][:, 0, 0] for step in range(1, 6)])
    assert sorted(drawn[:30].tolist()) == list(range(30)) and sorted(drawn[30:].tolist()) == list(range(30))
    assert drawn[:30].tolist() != drawn[30:].tolist()
    again = open_feed(str(tmp_path / "d.npz"), graph, 3)
    assert torch.equal(again.batch(4)["image"], feed.batch(4)["image"]), "a batch depends on the step alone"
    other = open_feed(str(tmp_path / "d.npz"), graph, 4)
    assert not torch.equal(other.batch(1)["image"], open_feed(str(tmp_path / "d.npz"), graph, 3).batch(1)["image"])


@pytest.mark.parametrize(
    ("count", "steps", "trains", "words"),
    [
        (5, 4, True, "5 samples, fewer than a batch of 12: every batch has each of them 2 or 3 times"),
        (6, 4, True, "6 samples, fewer than a batch of 12: every batch has each of them 2 times"),
        (30, 4, True, None),
        (30, 2, False, None),  # a part of the samples, each once
        (30, 4, False, "48 samples are taken of the 30"),
        (30, 5, False, None),
    ],
)
def test_what_a_file_has_too_few_of_is_said(tmp_path, count, steps, trains, words):
    """What is said is what happens: counted over the batches."""
    graph, file = classifier(), str(tmp_path / "d.npz")
    image = np.arange(count, dtype=np.float32)[:, None, None] + np.zeros((count, 8, 8), dtype=np.float32)
    np.savez(file, image=image, label=np.arange(count) % 10)
    feed = open_feed(file, graph)
    said = remark(feed, "d.npz", range(1, steps + 1), trains)
    assert (said is None) == (words is None) and (words or "") in (said or "")
    for step in range(1, 5):
        times = {feed.batch(step)["image"][:, 0, 0].tolist().count(k) for k in range(count)}
        assert count >= 12 or times == ({2, 3} if count == 5 else {2})
    if said is not None and not trains:
        enough = int(said.split("--steps ")[1].split()[0])
        drawn = [k for step in range(1, enough + 1) for k in feed.batch(step)["image"][:, 0, 0].tolist()]
        assert len({drawn.count(k) for k in range(count)}) == 1


def test_a_run_says_it_before_its_processes_start(tmp_path):
    class Heard(Exception):
        pass

    def heard(words: str) -> None:
        raise Heard(words)

    bench = Workbench("digits.hap", CLASSIFIER.replace("SHAPE", "batch, 64") + CLUSTER)
    program = plan(bench.graph(), bench.cluster(), gap=1.0, baselines=False).program
    np.savez(tmp_path / "d.npz", image=np.zeros((5, 64), dtype=np.float32), label=np.arange(5))
    with pytest.raises(Heard, match="5 samples, fewer than a batch of 12"):
        train(program, program.layout.devices, 4, str(tmp_path / "d.npz"), noted=heard)


GOOD = {"image": np.zeros((5, 8, 8), dtype=np.float32), "label": np.zeros(5, dtype=np.int64)}


@pytest.mark.parametrize(
    ("arrays", "code", "words"),
    [
        ({"image": GOOD["image"]}, "HAP711", "no array 'label'"),
        ({**GOOD, "image": np.zeros((5, 8, 7))}, "HAP711", "[samples, 8, 8]"),
        ({**GOOD, "image": np.zeros((5, 64))}, "HAP711", "[samples, 8, 8]"),
        ({**GOOD, "label": np.zeros(4, dtype=np.int64)}, "HAP711", "different numbers of samples"),
        ({**GOOD, "label": np.zeros(5)}, "HAP711", "holds float64, expected i64"),
        ({**GOOD, "image": np.full((5, 8, 8), "a")}, "HAP711", "holds <U1"),
        ({n: a[:0] for n, a in GOOD.items()}, "HAP711", "or none"),
        ({**GOOD, "label": np.array([{}] * 5, dtype=object)}, "HAP710", "pickle"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, arrays, code, words):
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(HapError) as stop:
        open_feed(str(tmp_path / "d.npz"), classifier())
    (found,) = stop.value.diagnostics
    assert found.code == code and words in found.message


def test_files_that_are_no_archives_are_refused(tmp_path):
    np.save(tmp_path / "one.npy", GOOD["image"])
    for content in (b"", b"PK\x03\x04 broken", b"\x80\x04K\x01.", (tmp_path / "one.npy").read_bytes()):
        (tmp_path / "d.npz").write_bytes(content)
        for read in (lambda: open_feed(str(tmp_path / "d.npz"), classifier()), lambda: load_tables(tmp_path / "d")):
            with pytest.raises(HapError) as stop:
                read()
            (found,) = stop.value.diagnostics
            assert found.code == "HAP710" and "no .npz file" in found.message


def npy(shape):
    """A file of numpy's that says it holds so many numbers, and holds two."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return content.getvalue() + bytes(8)


def test_archives_that_are_not_what_they_say(tmp_path):
    """Each is refused with a code, and nothing is as large as a header claims."""
    path = tmp_path / "d.npz"
    np.savez_compressed(path, **GOOD)
    with zipfile.ZipFile(path) as whole:
        start = whole.getinfo("image.npy").header_offset
    raw = bytearray(path.read_bytes())
    raw[start + 60 : start + 90] = b"\xff" * 30  # in the middle of what is compressed
    broken = [bytes(raw)]
    for content in (npy((2**60,)), npy((2**70,)), npy((5, 8, 8))):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("image.npy", content)
        broken.append(path.read_bytes())
    for content in broken:
        path.write_bytes(content)
        with pytest.raises(HapError) as stop:
            open_feed(str(path), classifier())
        assert [d.code for d in stop.value.diagnostics] == ["HAP710"]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("image", "no array at all")
    with pytest.raises(HapError, match="no array 'image'") as stop:
        open_feed(str(path), classifier())
    assert [d.code for d in stop.value.diagnostics] == ["HAP711"]


def test_digits_need_an_image_and_a_label():
    with pytest.raises(HapError) as stop:
        open_feed(
            "digits", graph_of(CLASSIFIER.replace("SHAPE", "batch, 8, 8").replace("64", "32").replace("8, 8", "4, 8"))
        )
    assert [d.code for d in stop.value.diagnostics] == ["HAP711"]


def test_inputs_without_a_common_batch():
    graph = graph_of(
        """model m { input a : f32[4, 3]
        input b : f32[5, 3]
        s = sum(a, dims = [0, 1])
        t = sum(b, dims = [0, 1])
        y = add(s, t)
        output y }"""
    )
    with pytest.raises(HapError) as stop:
        batch_size(graph)
    assert [d.code for d in stop.value.diagnostics] == ["HAP711"]


FACTORY = """
import numpy, torch

def batches():
    for k in range(2):
        yield {"image": torch.full((12, 8, 8), float(k)), "label": numpy.zeros(12, dtype=numpy.int64)}

def forgets():
    yield {"image": torch.zeros(12, 8, 8)}

def misshapen():
    yield {"image": torch.zeros(11, 8, 8), "label": torch.zeros(12)}

def strange():
    yield {"image": object(), "label": torch.zeros(12, dtype=torch.int64)}

def fractions():
    yield {"image": torch.zeros(12, 8, 8), "label": torch.full((12,), 0.5)}

def breaks():
    raise RuntimeError("no network")

def nothing():
    return []

number = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "own_data.py").write_text(FACTORY, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_factory_is_started_again_when_it_ends(module):
    feed = open_feed("own_data:batches", classifier())
    assert [float(feed.batch(step)["image"][0, 0, 0]) for step in range(1, 6)] == [0, 1, 0, 1, 0]
    assert feed.test is None


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("forgets", "HAP711"), ("misshapen", "HAP711"), ("strange", "HAP711"), ("fractions", "HAP711"), ("breaks", "HAP710"), ("nothing", "HAP710"), ("number", "HAP710"),
        ("absent", "HAP710"),
    ],
)  # fmt: skip
def test_factories_that_do_not_fit(module, name, code):
    with pytest.raises(HapError) as stop:
        open_feed(f"own_data:{name}", classifier()).batch(1)
    assert [d.code for d in stop.value.diagnostics] == [code]


# -- first values -------------------------------------------------------------------

INITS = """
model m(batch = 4) {
    input x : f32[batch, 200]
    param a : f32[200, 300] init normal(std = 0.5)
    param b : f32[300]      init zeros
    param c : f32[300]      init ones
    param d : f32[300, 300] init uniform(bound = 0.25)
    frozen e : f32[300]     init constant(value = 1.5)
    y = matmul(x, a)
    y2 = add(y, b)
    y3 = mul(y2, c)
    y4 = matmul(y3, d)
    y5 = mul(y4, e)
    loss = mean(y5, dims = [0, 1])
    train loss with adam(lr = 0.1)
}
"""


def test_first_values_follow_their_initialisers():
    made = initial(graph_of(INITS), 1)
    assert abs(made["a"].std() - 0.5) < 0.01 and abs(made["a"].mean()) < 0.01
    assert not made["b"].any() and bool((made["c"] == 1).all()) and bool((made["e"] == 1.5).all())
    assert made["d"].abs().max() <= 0.25 and abs(made["d"].std() - 0.25 / math.sqrt(3)) < 0.005
    assert not made["a.m"].any() and made["a.m"].shape == (200, 300) and made["a"].dtype == torch.float32


def test_first_values_depend_on_the_seed_and_the_name_alone():
    graph = graph_of(INITS)
    shorter = graph_of(
        INITS.replace("    param c : f32[300]      init ones\n", "").replace("y3 = mul(y2, c)", "y3 = relu(y2)")
    )
    a, b, other = initial(graph, 1), initial(shorter, 1), initial(graph, 2)
    assert torch.equal(a["a"], b["a"]) and torch.equal(a["d"], b["d"])
    assert not torch.equal(a["a"], other["a"]) and not torch.equal(a["a"].flatten()[:100], a["d"].flatten()[:100])
    assert torch.equal(a["a"], initial(graph, 1, torch.float64)["a"].float())
    lazy = Initial(graph, 1)
    assert set(lazy) == set(a) and all(torch.equal(lazy[n], a[n]) for n in a)


def test_a_table_of_something_else_than_numbers(tmp_path):
    path = tmp_path / "m.hap"
    path.write_text("model m { input x : f32[4, 3]; frozen t : f32[3] init table; y = mul(x, t); output y }")
    np.savez(f"{path}.npz", t=np.array(["a", "b", "c"]))
    with pytest.raises(HapError, match=r"'t' of .* holds <U1, expected numbers") as stop:
        initial(Workbench(path).graph(train=False))
    assert [d.code for d in stop.value.diagnostics] == ["HAP711"]
    np.savez(f"{path}.npz", t=np.array([1, 2, 3]))
    assert initial(Workbench(path).graph(train=False))["t"].tolist() == [1, 2, 3]


def test_random_integers_stay_below_what_their_readers_take():
    graph = graph_of(
        """model m(batch = 300, vocab = 7) {
            input ids, target : i64[batch]
            param table : f32[vocab, 5] init normal(std = 1)
            z = embedding(ids, table)
            loss = cross_entropy(z, target)
            train loss with sgd()
        }"""
    )
    made = random_inputs(graph)
    assert set(made["ids"].tolist()) == set(range(7)) and set(made["target"].tolist()) == set(range(5))


def test_an_input_without_dims_has_a_value_a_step(tmp_path):
    text = CLASSIFIER.replace("SHAPE", "batch, 64").replace("    param", "    input rate : f32[]\n    param", 1)
    graph = graph_of(text.replace("sgd(lr = 0.1)", "sgd(lr = rate)"))
    arrays = {"image": np.zeros((30, 64), dtype=np.float32), "label": np.zeros(30, dtype=np.int64)}
    np.savez(tmp_path / "d.npz", **arrays, rate=np.array([0.5, 0.25, 0.125], dtype=np.float32))
    feed = open_feed(str(tmp_path / "d.npz"), graph)
    assert [feed.batch(step)["rate"].item() for step in range(1, 6)] == [0.5, 0.25, 0.125, 0.125, 0.125]
    assert feed.batch(1)["rate"].shape == () and feed.batch(1)["image"].shape == (12, 64)
    for wrong in (np.zeros((3, 1), dtype=np.float32), np.zeros(0, dtype=np.float32)):
        np.savez(tmp_path / "e.npz", **arrays, rate=wrong)
        with pytest.raises(HapError) as stop:
            open_feed(str(tmp_path / "e.npz"), graph)
        assert stop.value.diagnostics[0].code == "HAP711"
    with pytest.raises(HapError):
        open_feed("digits", graph)
