"""Measuring a case in a process of its own. (`benchmarks.process`, which the measured process imports first, is kept bare.)"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.process import Watch

ROOT = Path(__file__).resolve().parents[1]


def measured(module: str, case: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """What `python -m MODULE CASE` has `found`, and its `process_s`; or why it `failed`."""
    command = [sys.executable, "-m", module, json.dumps(case)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    watch = Watch()
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {seconds:.0f} s"}
    row: dict[str, Any] = {"process_s": watch.wall}
    if done.returncode != 0:
        return row | {
            "failed": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}"
        }
    return row | {"found": json.loads(done.stdout.strip().splitlines()[-1])}
