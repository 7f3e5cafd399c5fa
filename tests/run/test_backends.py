"""The adapter's table: what it says of gloo is so on this torch, and what it can't serve is a coded error."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from hapdsl.lang.diagnostics import HapError
from hapdsl.run.backends import BACKENDS, GLOO, NCCL, choose, require
from hapdsl.run.context import DTYPES
from hapdsl.run.launch import launch


def cannot(reporter):
    """Each of the calls that the adapter keeps away from."""
    me, n = dist.get_rank(), dist.get_world_size()
    uneven = [torch.zeros(r + 1) for r in range(n)]
    calls = {
        "all_gather": lambda: dist.all_gather(uneven, torch.zeros(me + 1)),
        "send to oneself": lambda: dist.isend(torch.zeros(1), me).wait(),
    }
    for name, call in calls.items():
        try:
            call()
        except (RuntimeError, ValueError):
            reporter.send("refused", name=name)


def test_what_gloo_is_said_to_refuse_it_refuses():
    found = []
    launch(cannot, 3, receive=lambda rank, header, tensor: found.append((header["name"], rank)), method="fork")
    assert sorted(found) == sorted((n, r) for n in ("all_gather", "send to oneself") for r in range(3))


def every_call(reporter, dtypes):
    me, n = dist.get_rank(), dist.get_world_size()
    for name in dtypes:
        dtype = DTYPES[name]
        ones = torch.ones(4, dtype=dtype)
        said = {}
        started = []  # all at once, waited for in another order
        if dtype in GLOO.adds:
            for call in ("all_reduce", "reduce"):
                said[call] = ones.clone()
                rest = (None,) if call == "all_reduce" else (0, None)
                started.append(getattr(GLOO, call)(said[call], *rest))
            said["reduce_scatter"] = torch.empty(2, dtype=dtype)
            started.append(GLOO.reduce_scatter(said["reduce_scatter"], torch.ones(2 * n, dtype=dtype), None))
        gathered = torch.zeros(4 * n, dtype=dtype)
        started.append(GLOO.all_gather(list(gathered.split(4)), ones * me if name != "bool" else ones, None))
        said["broadcast"] = ones.clone() if me == 1 else torch.zeros(4, dtype=dtype)
        started.append(GLOO.broadcast(said["broadcast"], 1, None))
        sizes = [[0, 3, 1], [2, 0, 0], [0, 1, 0]]
        receives = [sizes[r][me] for r in range(n)]
        said["all_to_all"] = torch.zeros(sum(receives), dtype=dtype)
        started.append(
            GLOO.all_to_all(said["all_to_all"], torch.ones(sum(sizes[me]), dtype=dtype), receives, sizes[me], None)
        )
        for handle in reversed(started):
            handle.wait()
        said["all_gather"] = gathered
        for call, value in said.items():
            reporter.send("made", value.double(), sent=name, call=call)


@pytest.fixture(scope="module")
def made():
    found = {}
    launch(
        every_call,
        3,
        (list(DTYPES),),
        lambda rank, header, t: found.update({(header["sent"], header["call"], rank): t.tolist()}),
        method="fork",
    )
    return found


@pytest.mark.parametrize("name", DTYPES)
def test_gloo_carries_every_dtype(name, made):
    for rank in range(3):
        assert made[name, "broadcast", rank] == [1] * 4
        assert made[name, "all_to_all", rank] == [1] * [2, 4, 1][rank]
        assert made[name, "all_gather", rank] == ([1] * 12 if name == "bool" else [0] * 4 + [1] * 4 + [2] * 4)
        if name != "bool":
            assert made[name, "all_reduce", rank] == [3] * 4 and made[name, "reduce_scatter", rank] == [3] * 2
    if name != "bool":
        assert made[name, "reduce", 0] == [3] * 4


@pytest.mark.parametrize(
    ("backend", "device", "words"),
    [
        ("mpi", None, "no backend 'mpi'"),
        (None, "tpu", "no device type 'tpu'"),
        ("gloo", "cuda", "on cpu, not on cuda"),
        ("nccl", "cpu", "on cuda, not on cpu"),
        ("nccl", None, "no GPU"),
        (None, "cuda", "no GPU"),
    ],
)
def test_what_is_not_here(backend, device, words, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(HapError) as stop:
        choose(backend, device)
    (found,) = stop.value.diagnostics
    assert found.code == "HAP721" and words in found.message


def test_which_is_chosen(monkeypatch):
    assert choose() is choose("gloo") is choose(None, "cpu") is GLOO and GLOO.device() == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    assert choose("nccl") is choose(None, "cuda") is NCCL and not NCCL.tested


def test_a_rank_takes_the_gpu_of_its_place_on_its_machine(monkeypatch):
    current = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert NCCL.device() == torch.device("cuda:1") == current[0]
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(HapError, match=r"rank 5 .* has 2 GPUs") as stop:
        NCCL.device()
    assert stop.value.diagnostics[0].code == "HAP721"


def test_a_dtype_that_a_device_lacks(monkeypatch):
    for backend in BACKENDS.values():
        require(backend, torch.device("cpu"), DTYPES.values())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    require(NCCL, torch.device("cuda:0"), [torch.float16])
    with pytest.raises(HapError, match="cuda:0 with nccl has no bf16") as stop:
        require(NCCL, torch.device("cuda:0"), [torch.float32, torch.bfloat16])
    assert stop.value.diagnostics[0].code == "HAP722"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    require(NCCL, torch.device("cuda:0"), [torch.bfloat16])
