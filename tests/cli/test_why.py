"""`hapdsl why`: one tensor, the whole plan, and what it refuses."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran, Run
from tests.texts import TINY

SKETCH = """
program open_one for tiny on pair {
    forward { ... }
}
"""
ON_TWO_AXES = """
program crossed for wide {
    mesh nodes = 2, devices = 2
    shares batch over nodes = [8, 8]
    forward {
        x@(S(0), R) = input()
        w@(R, R) = param()
        y@(S(0), R) = matmul(x@(S(0), R), w@(R, R))
        loss@(P, R) = sum(y@(S(0), R), [0, 1])
    }
}
"""
WIDE = """
model wide(batch = 16, d = 6, hidden = 8) {
    input x : f32[batch, d]
    param w : f32[d, hidden]
    y = matmul(x, w)
    loss = sum(y, [0, 1])
    train loss with sgd(lr = 0.1)
}
cluster four {
    device quick { compute = 3 GFLOP/s, memory = 1 GiB, bandwidth = 8 GB/s }
    node host = 4 * quick over { bandwidth = 1 GB/s, latency = 1 us }
}
"""
KEYS = {
    "placement",
    "instruction",
    "cost_s",
    "delta_s",
    "bound_s",
    "bound_delta_s",
    "communication_s",
    "compute_s",
    "changes",
}


@pytest.fixture
def plan(hapdsl: Run, model: Path, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    out = tmp_path / "plan.hap"
    return out, hapdsl("plan", model, "--all-devices", "-o", out, "--json").object


def code(found: Ran) -> tuple[int, list[str]]:
    return found.status, found.codes


def test_one_tensor(hapdsl: Run, plan: tuple[Path, dict[str, Any]]) -> None:
    path, said = plan
    found = hapdsl("why", path, "h", "--json")
    assert found.status == 0
    o = found.object
    assert o["tensor"] == "h"
    assert o["cost_s"] == pytest.approx(said["cost_s"], rel=1e-9)
    assert o["chosen"]["delta_s"] == 0 and o["chosen"]["cost_s"] == o["cost_s"]
    assert o["chosen"]["instruction"] in " ".join(path.read_text(encoding="utf-8").split())
    assert {a["choice"] for a in o["alternatives"]} == {"call", "offered"}
    assert all(a.keys() >= KEYS for a in (o["chosen"], *o["alternatives"]))
    costs = [a["cost_s"] for a in o["alternatives"]]
    assert costs == sorted(costs) and len(costs) > 2
    for a in o["alternatives"]:
        assert a["delta_s"] == pytest.approx(a["cost_s"] - o["cost_s"], abs=1e-12)
        assert a["communication_s"] + a["compute_s"] == pytest.approx(a["delta_s"], abs=1e-12)
        assert a["bound_s"] <= a["cost_s"] * (1 + 1e-9)


def test_in_words(hapdsl: Run, plan: tuple[Path, dict[str, Any]]) -> None:
    path, _ = plan
    found = hapdsl("why", path, "w1")
    assert found.status == 0
    assert "w1 is held as" in found.out and "w1 is offered to readers as" in found.out
    head, chosen = next(
        pair for pair in itertools.pairwise(found.out.split("\n")) if pair[0].startswith("w1 is held as")
    )
    assert "difference" in head and "communication" in head and "by the bound" in head
    assert "+0 s" in chosen
    assert "all_gather" in found.out or "all_reduce" in found.out


def test_a_plan_is_explained_as_well_before_it_is_written(
    hapdsl: Run, model: Path, plan: tuple[Path, dict[str, Any]]
) -> None:
    """From a model and a cluster it is planned first, and the answers are the same."""
    first = hapdsl("why", model, "h", "--all-devices", "--json").object
    assert first == hapdsl("why", plan[0], "h", "--json").object


def test_a_plan_for_fewer_devices(hapdsl: Run, model: Path) -> None:
    """What `plan` leaves out, `why` leaves out: on one device nothing is cut, and no unit has a price."""
    said, o = hapdsl("plan", model, "--json").object, hapdsl("why", model, "--json").object
    assert said["left_out"] and o["cluster"] == said["cluster"]
    assert o["cost_s"] == pytest.approx(said["cost_s"], rel=1e-9)
    assert o["unit_prices"] == []


def test_settings_and_clusters(hapdsl: Run, plan: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path, said = plan
    (tmp_path / "other.hap").write_text(
        TINY.replace("cluster pair", "cluster two").replace("1 GB/s", "10 MB/s").split("}\n", 1)[1]
    )
    slow = hapdsl("why", path, "h", "--cluster", tmp_path / "other.hap", "--json").object
    assert slow["cluster"] == "two" and slow["cost_s"] > said["cost_s"]
    bigger = hapdsl("why", path, "h", "--set", "batch=64", "--all-devices", "--json").object
    assert bigger["cost_s"] > said["cost_s"]
    overlap = hapdsl("why", path, "h", "--objective", "overlap", "--json").object
    assert overlap["cost_s"] == pytest.approx(said["overlap_s"], rel=1e-9)


def test_a_hand_written_program(hapdsl: Run, tiny: Path) -> None:
    """Its own cost stands beside that of its choices in the search's order; better programs have negative differences."""
    o = hapdsl("why", tiny, "h", "--json").object
    assert o["program"] == "by_batch"
    cost = hapdsl("cost", tiny, "--json").object
    assert o["written_s"] == pytest.approx(cost["sync_s"], rel=1e-9)
    assert o["bound_s"] <= o["cost_s"]
    assert o["chosen"]["instruction"] == "h@S(0) = relu(u@S(0))"


def test_a_value(hapdsl: Run, tiny: Path) -> None:
    """One that the program has: all others. One that it lacks: what would bring it about."""
    every = hapdsl("why", tiny, "h@S(0)", "--json").object
    assert every["alternatives"] == hapdsl("why", tiny, "h", "--json").object["alternatives"]
    some = hapdsl("why", tiny, "h@S(1)", "--json").object
    assert some["alternatives"] and all("S(1)" in a["placement"] for a in some["alternatives"])
    assert len(some["alternatives"]) < len(every["alternatives"])


def test_the_whole_plan(hapdsl: Run, plan: tuple[Path, dict[str, Any]]) -> None:
    path, said = plan
    o = hapdsl("why", path, "--json").object
    assert o["tensor"] is None
    assert o["close"] and len(o["close"]) <= 10
    assert [c["cost_s"] for c in o["close"]] == sorted(c["cost_s"] for c in o["close"])
    assert {p["class"] for p in o["unit_prices"]} == set(said["classes"])
    for p in o["unit_prices"]:
        assert set(p["devices"]) <= set(said["devices"])
        assert (p["more_s"] is None) == (p["more_from"] is None)
    words = hapdsl("why", path).out
    assert "close calls" in words and "one more" in words


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hh", "HAP611"),
        ("w*", "HAP611"),
        ("h@Q", "HAP850"),
        ("@R", "HAP850"),
        ("h@S(2)", "HAP521"),
        ("h@S(9999)", "HAP850"),
        ("", "HAP611"),
    ],
)
def test_names_that_are_no_tensors(hapdsl: Run, tiny: Path, name: str, expected: str) -> None:
    assert code(hapdsl("why", tiny, name, "--json")) == (2, [expected])


def test_a_wrong_name_is_said_before_the_search(hapdsl: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hapdsl.search.fewer.plan_or_fewer", lambda *_, **__: pytest.fail("planned"))
    found = hapdsl("why", model, "hidden_", "--json")
    assert code(found) == (2, ["HAP611"])


def test_what_cannot_be_explained(hapdsl: Run, tiny: Path, tmp_path: Path) -> None:
    sketch = tmp_path / "sketch.hap"
    sketch.write_text(TINY + SKETCH, encoding="utf-8")
    assert code(hapdsl("why", sketch, "h", "--json")) == (2, ["HAP584"])
    two = tmp_path / "two.hap"
    two.write_text(WIDE + ON_TWO_AXES, encoding="utf-8")
    assert code(hapdsl("why", two, "y", "--json")) == (1, ["HAP604"])
    virtual = tmp_path / "virtual.hap"
    node = "1 GB/s, latency = 1 us }\n"
    network = "    network 2 * host virtual over { bandwidth = 0.1 GB/s, latency = 10 us }\n"
    virtual.write_text(TINY.replace(node, node + network), encoding="utf-8")
    assert code(hapdsl("why", virtual, "h", "--json")) == (1, ["HAP604"])  # as of the plan that `plan` makes there
    wrong = tmp_path / "wrong.hap"
    wrong.write_text(tiny.read_text(encoding="utf-8").replace("relu(u@S(0))", "relu(u@S(1))"), encoding="utf-8")
    assert hapdsl("why", wrong, "h", "--json").status != 0
    assert code(hapdsl("why", tiny, "h", "--program", "by_batch", "--set", "batch=4", "--json")) == (2, ["HAP850"])
    assert code(hapdsl("why", tiny, "h", "--program", "nothing", "--json")) == (2, ["HAP582"])
    assert code(hapdsl("why", tmp_path / "nowhere.hap", "h", "--json"))[0] == 2


def test_no_plan_at_all(hapdsl: Run, tmp_path: Path) -> None:
    small = tmp_path / "small.hap"
    small.write_text(TINY.replace("1 GiB", "64 B"), encoding="utf-8")
    assert code(hapdsl("why", small, "h", "--time-limit", "1", "--json")) == (1, ["HAP601"])


def test_lines_that_no_searched_program_has(hapdsl: Run, tiny: Path, tmp_path: Path) -> None:
    """A scalar's sum with a weight as partial sums is legal, and nothing that a search would write."""
    text = tiny.read_text(encoding="utf-8")
    odd = text.replace(
        "z@S(0)      = matmul(h@S(0), w2@R)", "z@P = matmul(h@R, w2@P)\n        z@S(0) = reduce_scatter(z@P)"
    )
    odd = odd.replace(
        "h@S(0)      = relu(u@S(0))",
        "h@S(0)      = relu(u@S(0))\n        h@R = all_gather(h@S(0))\n        w2@P = partial(w2@R)",
    )
    path = tmp_path / "odd.hap"
    path.write_text(odd, encoding="utf-8")
    assert hapdsl("check", path, "--json").status == 0
    assert code(hapdsl("why", path, "h", "--json")) == (1, ["HAP605"])


def test_options_that_leave_the_program_as_it_is_are_told(hapdsl: Run, tmp_path: Path) -> None:
    """Frozen weights that are read in pieces may lie in these pieces, or whole and be cut: no call and no message is another one."""
    path = tmp_path / "frozen.hap"
    path.write_text(
        """
model adapted(d = 64, hidden = 64) {
    input x  : f32[1, d]
    frozen w : f32[d, hidden]
    param v  : f32[hidden, 1]
    loss = sum(matmul(matmul(x, w), v), [0, 1])
    train loss with sgd(lr = 0.1)
}
cluster two {
    device d { compute = 8 MFLOP/s, memory = 1 GiB, bandwidth = 100 MB/s, launch = 1 us }
    node host = 2 * d over { bandwidth = 20 MB/s, latency = 0 us }
}
""",
        encoding="utf-8",
    )
    found = hapdsl("why", path, "w", "--all-devices")
    rows = [line for line in found.out.splitlines() if line.strip().endswith("the same lines")]
    assert found.status == 0 and rows and all("+0 s" in row for row in rows)
