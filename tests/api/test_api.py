"""plan, compile, step, save, load: beside plain PyTorch."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import hapdsl
from hapdsl.lang.diagnostics import HapError
from hapdsl.lang.resources import programs_folder
from hapdsl.run import heartbeat
from hapdsl.run.initial import random_inputs
from tests.api.custom import OPS, Net
from tests.importing import modules, public
from tests.importing.helpers import CLUSTER
from tests.processes import free_port
from tests.run.ranks import as_torchrun_does
from tests.texts import PROGRAM, REPOSITORY, TINY_CLUSTER, TINY_MODEL


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    (tmp_path / "three.hap").write_text(CLUSTER)
    return str(tmp_path / "three.hap")


def loader() -> DataLoader:
    torch.manual_seed(3)
    return DataLoader(TensorDataset(torch.randn(40, 8), torch.randint(4, (40,))), batch_size=8)


def eager(module: torch.nn.Module, lr: float) -> list[float]:
    optimizer = torch.optim.Adam(module.parameters(), lr=lr)
    losses = []
    for x, label in loader():
        optimizer.zero_grad()
        loss = F.cross_entropy(module(x), label)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def test_a_training_script(cluster: str):
    """DataLoader, five steps of Adam, weights back into the module."""
    module = modules.mlp()
    other = copy.deepcopy(module)
    x, label = next(iter(loader()))
    plan = hapdsl.plan(module, {"x": x, "label": label}, cluster, loss="cross_entropy", optimizer="adam(lr = 0.01)")
    step = plan.compile(module)
    losses = [float(step(batch)) for batch in loader()]
    assert losses == pytest.approx(eager(other, 0.01), abs=1e-5)
    step.write_back(module)
    for a, b in zip(module.parameters(), other.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    assert step.state_dict().keys() == module.state_dict().keys()
    assert plan.cost_s is not None and plan.bound_s is not None and 0 < plan.bound_s <= plan.cost_s


def test_save_and_load(cluster: str, tmp_path: Path):
    module = modules.transformer()
    batch = {n: torch.randint(50, (4, 8)) for n in ("tokens", "labels")}
    plan = hapdsl.plan(module, batch, cluster, gap=1.0, time_limit=0.3)
    plan.save(tmp_path / "plan.hap")
    again = hapdsl.load(tmp_path / "plan.hap")
    assert again.text == plan.text
    first, second = (float(p.compile(module)(batch)) for p in (plan, again))
    assert first == second == pytest.approx(float(module(**batch)["loss"].detach()), abs=1e-5)


def test_constants_are_saved_beside_the_text(cluster: str, tmp_path: Path):
    """T5's buckets of relative positions are numbers that the text can't say."""
    module = public.t5_encoder()
    ids, label = torch.randint(50, (2, 8)), torch.randint(24, (2,))
    plan = hapdsl.plan(
        module,
        {"input_ids": ids, "label": label},
        cluster,
        loss=lambda z, y: F.cross_entropy(z[:, 0], y),
        gap=1.0,
        time_limit=0.3,
    )
    plan.save(tmp_path / "t5.hap")
    assert (tmp_path / "t5.hap.npz").is_file()
    loss = hapdsl.load(tmp_path / "t5.hap").compile(module)({"input_ids": ids, "label": label})
    with torch.no_grad():
        wanted = F.cross_entropy(module(ids).last_hidden_state[:, 0], label)
    assert float(loss) == pytest.approx(float(wanted), abs=1e-5)


def test_a_custom_op(cluster: str, tmp_path: Path):
    """A function of the user's own, declared in a file of the user's own."""
    (tmp_path / "ops.hap").write_text(OPS)
    module = Net()
    other = copy.deepcopy(module)
    x, label = next(iter(loader()))
    wishes = {"loss": "cross_entropy", "optimizer": "adam(lr = 0.01)", "ops": tmp_path / "ops.hap"}
    plan = hapdsl.plan(module, {"x": x, "label": label}, cluster, **wishes)
    assert "op softsign(" in plan.text and "op softsign_grad(" in plan.text
    step = plan.compile(module, allow=["tests.api.custom"])
    assert [float(step(batch)) for batch in loader()] == pytest.approx(eager(other, 0.01), abs=1e-5)


def test_without_the_declaration_the_function_is_named(cluster: str):
    with pytest.raises(HapError) as stop:
        hapdsl.plan(Net(), "x : f32[batch = 8, 8]; label : i64[batch]", cluster, loss="cross_entropy")
    assert [d.code for d in stop.value.diagnostics] == ["HAP874"]
    assert "hapdsl_tests.softsign" in str(stop.value)


def test_a_class_may_have_any_name(cluster: str):
    class Réseau(Net):
        def forward(self, x):
            return self.fc2(torch.relu(self.fc1(x)))

    x, label = next(iter(loader()))
    plan = hapdsl.plan(Réseau(), {"x": x, "label": label}, cluster, loss="cross_entropy", gap=1.0)
    assert plan.program.graph.model == "r_seau"


def test_a_program_beside_others_and_with_imports_stands_alone(tmp_path: Path):
    """Loaded from a file that needs its neighbours: saved elsewhere, and cut for a smaller batch, it doesn't."""
    (tmp_path / "model.hap").write_text(TINY_MODEL)
    (tmp_path / "plans.hap").write_text(
        'import "model.hap"\n'
        + TINY_CLUSTER
        + PROGRAM
        + PROGRAM.replace("by_batch", "again").replace("[12, 4]", "[8, 8]")
    )
    plan = hapdsl.load(tmp_path / "plans.hap", "again")
    (tmp_path / "elsewhere").mkdir()
    plan.save(tmp_path / "elsewhere" / "plan.hap")
    other = hapdsl.load(tmp_path / "elsewhere" / "plan.hap")
    assert other.text == plan.text and other.program.graph.fingerprint == plan.program.graph.fingerprint
    assert other.program.layout.shares["batch"][(0,)].tolist() == [8, 8]
    x, label = torch.randn(16, 6), torch.randint(4, (16,))
    for one in (plan, other):
        step = one.compile()
        assert float(step(x, label)) > 0 and float(step(x[:8], label[:8])) > 0


def test_a_batch_that_does_not_fit(cluster: str):
    module = modules.mlp()
    x, label = next(iter(loader()))
    step = hapdsl.plan(module, {"x": x, "label": label}, cluster, loss="cross_entropy", gap=1.0).compile(module)
    wrong = [
        (x,),
        (x[:4], label),
        (x[:4], label[:3]),
        (x.repeat(2, 1), label.repeat(2)),
        (x[:, :7], label),
        (x, label.float()),
        (x + 0j, label),
        x,
        "x",
        {"x": x},
        (x[0], label[0]),
        (x[:0], label[:0]),
    ]
    for batch in wrong:
        with pytest.raises(HapError) as stop:
            step(batch)
        assert [d.code for d in stop.value.diagnostics] == ["HAP706"], batch
    with pytest.raises(HapError) as stop:
        step((x, label + 4))
    assert [d.code for d in stop.value.diagnostics] == ["HAP702"]


def test_on_what_it_runs(cluster: str, monkeypatch: pytest.MonkeyPatch):
    """Where the module lies, or where `device` says; in one dtype, if `dtype` says so."""
    module = modules.mlp()
    x, label = next(iter(loader()))
    plan = hapdsl.plan(module, {"x": x, "label": label}, cluster, loss="cross_entropy", gap=1.0)
    wanted = F.cross_entropy(module.double()(x.double()), label)
    for step in (
        plan.compile(module, device="cpu", dtype=torch.float64),
        plan.compile(module, device=torch.device("cpu"), dtype=torch.float64),
    ):
        loss = step(x, label)
        assert loss.dtype == torch.float64 and float(loss) == pytest.approx(float(wanted.detach()), abs=1e-12)
    assert {t.dtype for t in step.state_dict().values()} == {torch.float64}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for wishes, code in (
        ({"device": "cuda"}, "HAP721"),
        ({"device": torch.device("cuda:1")}, "HAP721"),
        ({"device": "mps"}, "HAP721"),
        ({"dtype": torch.int64}, "HAP722"),
        ({"dtype": torch.complex64}, "HAP722"),
        ({"dtype": torch.float16}, "HAP722"),  # Adam's state would be lost to rounding
    ):
        with pytest.raises(HapError) as stop:
            plan.compile(module, **wishes)
        assert [d.code for d in stop.value.diagnostics] == [code], wishes


def test_what_is_left_over_at_the_end(cluster: str):
    """The last batch of a data set is smaller: cut in the same proportions, over the same parameters and state."""
    module = modules.mlp()
    other = copy.deepcopy(module)
    data = TensorDataset(*(t[:21] for t in loader().dataset.tensors))
    # 8, 8, 5, and two for three devices.
    batches = list(DataLoader(data, batch_size=8)) + list(DataLoader(data, batch_size=2))[:1]
    step = hapdsl.plan(
        module, dict(zip(("x", "label"), batches[0], strict=True)), cluster, loss="cross_entropy", gap=1.0
    ).compile(module)
    optimizer = torch.optim.Adam(other.parameters(), lr=0.001)
    for x, label in [*batches, *batches]:
        optimizer.zero_grad()
        loss = F.cross_entropy(other(x), label)
        loss.backward()
        optimizer.step()
        assert float(step(x, label)) == pytest.approx(loss.item(), abs=1e-5)
    step.write_back(module)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(module.parameters(), other.parameters(), strict=True))
    assert sorted(step.smaller) == [2, 5]
    with pytest.raises(HapError, match="a batch of 1: "):  # which isn't cut
        step(x[:1], label[:1])


def test_importing_hapdsl_is_light():
    script = "import sys, hapdsl; hapdsl.__version__; assert not {'torch', 'numpy', 'lark'} & set(sys.modules); hapdsl.plan; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=REPOSITORY)


def test_under_torchrun(cluster: str, tmp_path: Path):
    """Three processes, one a device: the same losses as one process, and what a model without a loss gives on the first of them."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, hapdsl\n"
        f"sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from tests.importing import modules\n"
        "torch.manual_seed(0)\n"
        "module = modules.mlp()\n"
        "batch = {'x': torch.randn(8, 8), 'label': torch.randint(4, (8,))}\n"
        f"step = hapdsl.load({str(tmp_path / 'plan.hap')!r}).compile(module)\n"
        "losses = [float(step(batch)) for _ in range(3)]\n"
        "held = step.state_dict()\n"
        f"shown = hapdsl.load({str(tmp_path / 'shown.hap')!r}).compile(module)({{'x': batch['x']}})\n"
        "first = torch.distributed.get_rank() == 0\n"
        "assert shown.shape == ((8, 4) if first else (0,)), shown.shape\n"
        "if first: print('losses', *losses, len(held), float(shown.sum()))\n"
    )
    torch.manual_seed(0)
    module = modules.mlp()
    batch = {"x": torch.randn(8, 8), "label": torch.randint(4, (8,))}
    plan = hapdsl.plan(module, batch, cluster, loss="cross_entropy", gap=1.0)
    plan.save(tmp_path / "plan.hap")
    hapdsl.plan(module, {"x": batch["x"]}, cluster, gap=1.0, evaluate=True).save(tmp_path / "shown.hap")
    shown = float(module(batch["x"]).detach().sum())
    step = plan.compile(module)
    wanted = [float(step(batch)) for _ in range(3)]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", str(script)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=110, check=True)
    said = next(line for line in ran.stdout.splitlines() if line.startswith("losses")).split()
    assert [float(x) for x in said[1:4]] == pytest.approx(wanted, abs=1e-6)
    assert said[4] == "4" and float(said[5]) == pytest.approx(shown, abs=1e-5)


def test_a_rank_of_a_script_that_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The others would wait for it until torch's patience is at an end."""
    monkeypatch.setattr(heartbeat, "SILENT_S", 6.0)  # a third of it is more than a beat
    pids: list[int] = []

    def script() -> int:
        torch.set_num_threads(1)
        plan = hapdsl.load(programs_folder() / "plans" / "mlp_zero.hap")
        step, batch = plan.compile(), random_inputs(plan.program.graph, 0)
        for number in range(20):
            if number == 3 and dist.get_rank() == 2:
                os.kill(os.getpid(), signal.SIGSTOP)
            try:
                step(batch)
            except RuntimeError:  # the one that has said it is gone as well
                return 7
        return 0

    def torchrun() -> None:
        """It ends who is left when the first rank has ended."""
        (tmp_path / "said.0").touch()
        until = time.monotonic() + 60
        while time.monotonic() < until and not (tmp_path / "said.0").read_text().strip():
            time.sleep(0.1)
        time.sleep(1)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    helper = threading.Thread(target=torchrun)
    helper.start()
    statuses = as_torchrun_does(script, [(0, k) for k in range(4)], free_port(), tmp_path / "said", pids)
    helper.join()
    said = [(tmp_path / f"said.{rank}").read_text() for rank in range(4)]
    assert statuses[0] == 1 and statuses[2] == -signal.SIGKILL, (statuses, said)
    assert "HAP760" in said[0] and "process 2" in said[0], said


@pytest.mark.long
def test_a_rank_of_a_script_that_ends_before_the_others_isn_t_missed(cluster: str, tmp_path: Path):
    """The first one, say, still writes down what has come of it; or it is the first to go."""
    module = modules.mlp()
    batch = {"x": torch.randn(8, 8), "label": torch.randint(4, (8,))}
    hapdsl.plan(module, batch, cluster, loss="cross_entropy", gap=1.0).save(tmp_path / "plan.hap")
    script = tmp_path / "script.py"
    script.write_text(
        "import time, torch, hapdsl\n"
        "from hapdsl.run import heartbeat\n"
        "heartbeat.SILENT_S = 6.0\n"
        f"step = hapdsl.load({str(tmp_path / 'plan.hap')!r}).compile()\n"
        "step({'x': torch.zeros(8, 8), 'label': torch.zeros(8, dtype=torch.int64)})\n"
        "rank = torch.distributed.get_rank()\n"
        "time.sleep((8, 16, 0)[rank])\n"
        "print(rank, 'has ended')\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", str(script)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=110, check=False)
    assert ran.returncode == 0, ran.stderr
    assert [line for line in ran.stdout.splitlines() if "has ended" in line] == [f"{k} has ended" for k in (2, 0, 1)]
