"""Checkpoints that were tampered with."""

from __future__ import annotations

import hashlib
import json


def forged(folder, change):
    """Change the manifest, and its checksum with it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    del manifest["checksum"]
    compact = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    whole = manifest | {"checksum": hashlib.sha256(compact.encode()).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(whole))
