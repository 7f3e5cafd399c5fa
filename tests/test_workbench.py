"""A file on the bench, with all that it reads elsewhere."""

from __future__ import annotations

from pathlib import Path

from hapdsl.workbench import Workbench
from tests.texts import TINY_CLUSTER, TINY_MODEL


def test_the_text_of_every_file_that_was_read_is_at_hand(tmp_path: Path) -> None:
    """By the names that positions carry: its own, what it imports, and a cluster's file, which imports its devices."""
    devices, hall = TINY_CLUSTER.split("    node")
    (tmp_path / "model.hap").write_text(TINY_MODEL)
    (tmp_path / "devices.hap").write_text(devices.split("{", 1)[1])
    (tmp_path / "hall.hap").write_text(f'import "devices.hap"\ncluster pair {{\n    node{hall}')
    (tmp_path / "main.hap").write_text('import "model.hap"\n')
    bench = Workbench(tmp_path / "main.hap")
    assert {Path(name).name for name in bench.files} == {"main.hap", "model.hap"}
    made, block = (ask(str(tmp_path / "hall.hap")) for ask in (bench.cluster, bench.cluster_block))
    assert len(made) == 2 and {Path(name).name for name in bench.files} == {p.name for p in tmp_path.iterdir()}
    assert bench.files[block.span.file].split("\n")[block.span.line - 1] == "cluster pair {"
    assert {p.name for p in bench.others} == {"model.hap", "devices.hap", "hall.hap"}
