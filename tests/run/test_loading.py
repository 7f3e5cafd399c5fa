"""Each rank reads its share of a batch, from either kind of file."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hapdsl.lang.diagnostics import HapError
from hapdsl.run.data import open_feed
from hapdsl.run.distributed import Rank
from hapdsl.run.how import How
from hapdsl.run.launch import launch
from hapdsl.run.loading import batches
from hapdsl.run.train import train
from tests.graph.helpers import graph_of
from tests.run.programs import HALF, randomly


def loaded(reporter, programs, data, workers):
    for program in programs:
        rank = Rank(program)
        feed = open_feed(data, program.graph, 3)
        for step, fed in zip(range(1, 4), batches(feed, rank, range(1, 4), workers), strict=True):
            whole = rank.feed(open_feed(data, program.graph, 3).batch(step))
            same = fed.keys() == whole.keys() and all(
                len(fed[v]) == len(whole[v])
                and all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(fed[v], whole[v], strict=True))
                for v in whole
            )
            reporter.send("share", same=same)


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    x, label = torch.randn(50, 16, generator=torch.Generator().manual_seed(1)), torch.arange(50) % 5
    save_file({"x": x, "label": label.to(torch.int32)}, folder / "some.safetensors")
    np.savez(folder / "some.npz", x=x.numpy(), label=label.numpy())
    return folder


@pytest.mark.parametrize("workers", [0, 1])
def test_shares_of_a_batch_are_cut_from_the_same_batch(samples, workers):
    """Whatever the program, its shares (some have none) and its turns: what is read is what a rank keeps of the whole batch."""
    text = HALF.replace("CLIP", "")
    graph = graph_of(text)
    turns = graph_of(
        text.replace("    h = ", "    microbatch 2 {\n    h = ").replace("(z, label)\n", "(z, label)\n    }\n")
    )
    assert turns.turns == 2
    programs = [randomly(g, seed, 3) for g in (graph, turns) for seed in range(3 if not workers else 1)]
    seen = []
    launch(
        loaded,
        3,
        (programs, str(samples / "some.safetensors"), workers),
        lambda rank, header, tensor: seen.append(header),
        method="fork",
    )
    assert len(seen) == 3 * 3 * len(programs) and all(h["same"] for h in seen)


def counted():
    """Batches that end after four, each of a number of its own."""
    for number in range(1, 5):
        yield {"x": torch.full((8, 16), float(number)), "label": torch.full((8,), number)}


def narrows():
    yield {"x": torch.zeros(8, 16), "label": torch.zeros(8, dtype=torch.int64)}
    yield {"x": torch.zeros(8, 15), "label": torch.zeros(8, dtype=torch.int64)}


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_gives_each_step_its_batch_whoever_loads_it(workers):
    """Each process that loads data has an iterator of its own, and is asked for some of the steps."""
    program, seen = randomly(graph_of(HALF.replace("CLIP", "")), 1, 2), []
    launch(
        loaded,
        2,
        ([program], f"{__name__}:counted", workers),
        lambda rank, header, _: seen.append(header),
        method="fork",
    )
    assert len(seen) == 6 and all(h["same"] for h in seen)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_wrong_with_a_batch_is_said_whoever_loads_it(workers):
    program = randomly(graph_of(HALF.replace("CLIP", "")), 1, 2)
    with pytest.raises(HapError, match=r"'x' of .*narrows has shape \[8, 15\], expected \[8, 16\]") as stop:
        train(program, 2, 3, f"{__name__}:narrows", how=How(workers=workers))
    assert [d.code for d in stop.value.diagnostics] == ["HAP711"]


def test_safetensors_are_data_as_npz_is(samples):
    graph = graph_of(HALF.replace("CLIP", ""))
    one, other = (open_feed(str(samples / f"some.{end}"), graph, 2) for end in ("safetensors", "npz"))
    for step in (1, 7):
        a, b = one.batch(step), other.batch(step)
        assert all(torch.equal(a[n], b[n]) and a[n].dtype == b[n].dtype for n in b) and a["label"].dtype == torch.int64


@pytest.mark.parametrize(("content", "words"), [(None, "there is no file"), (b"\xff" * 100, "can't be read")])
def test_a_file_that_is_no_safetensors(tmp_path, content, words):
    if content is not None:
        (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(HapError, match=words) as stop:
        open_feed(str(tmp_path / "x.safetensors"), graph_of(HALF.replace("CLIP", "")))
    assert stop.value.diagnostics[0].code == "HAP710"
