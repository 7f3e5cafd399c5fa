"""Checkpoints whose files were changed, and their checksums with them."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib

import pytest
import torch
from safetensors.torch import load_file, save_file

from hapdsl.lang.diagnostics import HapError
from hapdsl.run import (
    checkpoint,
    checkpoint_read,
)
from hapdsl.run.checkpoint_state import write_whole
from hapdsl.run.context import Range
from hapdsl.run.initial import initial
from tests.run.damage import forged
from tests.run.programs import FED, model


def saved(folder, graph):
    return write_whole(folder, graph, initial(graph)).folder


def test_a_checkpoint_of_another_kind_of_numbers(tmp_path):
    floats = model("input x : f32[batch, 2]\nparam w : f32[2, 3]\nfrozen b : f32[3]\nloss = sum(add(matmul(x, w), b), [0, 1])\ntrain loss with sgd(lr = 0.1)")  # fmt: skip
    whole = model("input x : f32[batch, 2]\nparam w : f32[2, 3]\nfrozen b : i64[3]\nloss = sum(add(matmul(x, w), cast(b, to = f32)), [0, 1])\ntrain loss with sgd(lr = 0.1)")  # fmt: skip
    found = checkpoint.find(saved(tmp_path, floats))
    checkpoint_read.fits(found, floats)
    with pytest.raises(HapError, match=r"'b' of .* holds f32, model 'm' says i64") as stop:
        checkpoint_read.fits(found, whole)
    assert stop.value.diagnostics[0].code == "HAP753"


def replaced(folder, tensors):
    """Put other tensors into the first rank's file, and its size and checksum into the manifest."""
    path = folder / checkpoint.file_name(0)
    save_file(tensors, path)
    content = path.read_bytes()
    file = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    forged(folder, lambda manifest: manifest["files"][0].update(file))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: {n: x for n, x in t.items() if n != "w@R"} | {"v@R": t["w@R"]}, "'w@R' is missing"),
        (lambda t: t | {"w@R": t["w@R"].to(torch.int32)}, "'w@R' holds torch.int32, f32 was written"),
        (lambda t: t | {"w@R": t["w@R"].T.contiguous()}, r"'w@R' has shape \[3, 2\], \[2, 3\] was written"),
    ],
    ids=["a name", "numbers", "a shape"],
)
def test_a_file_that_the_manifest_knows_but_doesn_t_describe(tmp_path, change, words):
    graph = model(FED)
    folder = saved(tmp_path, graph)
    replaced(folder, change(load_file(folder / checkpoint.file_name(0))))
    found = checkpoint.find(folder)
    found.verify()
    with pytest.raises(HapError, match=words) as stop:
        dict(checkpoint_read.tensors(found))
    assert stop.value.diagnostics[0].code == "HAP751"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1" * 400, '"7"', "true", "[]"])
def test_numbers_that_are_none(tmp_path, number):
    folder = saved(tmp_path, model(FED))
    forged(folder, lambda manifest: manifest["extra"].update(skipped=json.loads(number)))
    with pytest.raises(HapError, match="is no number") as stop:
        checkpoint.find(folder)
    assert stop.value.diagnostics[0].code == "HAP751"


def test_a_manifest_of_any_depth():
    """One depth can be read and not be written again."""
    codes = set()
    for depth in range(700, 1100):
        raw = f'{{"format": "{checkpoint.FORMAT}", "version": 1, "extra": {"[" * depth}{"]" * depth}}}'
        with pytest.raises(HapError) as stop:
            checkpoint.parse(raw.encode(), pathlib.Path("manifest.json"))
        codes.add(stop.value.diagnostics[0].code)
    assert codes == {"HAP751"}


def test_a_tensor_that_is_larger_than_its_pieces(tmp_path):
    """It is refused before there is anything as large as that, though every piece lies within."""
    folder = saved(tmp_path, model(FED))
    forged(folder, lambda manifest: manifest["tensors"]["w"].update(shape=[2**50, 3]))
    found = checkpoint.find(folder)
    with pytest.raises(HapError, match="the pieces of 'w' don't make it up") as stop:
        dict(checkpoint_read.tensors(found))
    assert stop.value.diagnostics[0].code == "HAP751"


def test_pieces_that_lie_on_one_another(tmp_path):
    """Each lies within, and together they are as large as the tensor; but of its two rows one is there twice, the other isn't."""
    folder = saved(tmp_path, model(FED))
    tensors = load_file(folder / checkpoint.file_name(0))
    replaced(folder, tensors | {"w@R": tensors["w@R"][:1]})
    row = {"rank": 0, "offsets": [0, 0], "lengths": [1, 3]}
    forged(folder, lambda manifest: manifest["tensors"]["w"]["copies"][0].update(pieces=[row, row]))
    source = checkpoint_read.Source(checkpoint.find(folder))
    w = source.checkpoint.manifest.tensors["w"]
    for rows in (Range(2, 0, 2), Range(2, 0, 1), Range(2, 1, 1)):  # all of it, what is twice there, what isn't
        with pytest.raises(HapError, match="the pieces of 'w' don't make it up") as stop:
            source.gather(w, (rows, Range(3, 0, 3)))
        assert stop.value.diagnostics[0].code == "HAP751"


def test_a_manifest_that_is_no_manifest(tmp_path):
    folder = saved(tmp_path, model(FED))
    forged(folder, lambda manifest: manifest["tensors"]["w"].update(dtype="f33"))
    with pytest.raises(HapError, match="tensor 'w'") as stop:
        checkpoint.find(folder)
    assert stop.value.diagnostics[0].code == "HAP751"
    os.truncate(folder / "manifest.json", checkpoint.LARGEST_MANIFEST + 1)  # takes no room on the disk
    with pytest.raises(HapError, match="too many for a manifest") as stop:
        checkpoint.find(folder)
    assert stop.value.diagnostics[0].code == "HAP751"
