"""Every code that this room raises is explained."""

from __future__ import annotations

import re
from pathlib import Path

import hapdsl.run
from hapdsl.lang.codes import CODES


def test_codes_are_explained():
    (folder,) = hapdsl.run.__path__
    raised = {
        c for path in Path(folder).rglob("*.py") for c in re.findall(r"HAP7\d{2}", path.read_text(encoding="utf-8"))
    }
    assert len(raised) > 20
    assert raised <= CODES.keys(), sorted(raised - CODES.keys())
