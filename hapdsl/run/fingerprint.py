"""What two ranks, or a program and a checkpoint, compare to know that they mean the same."""

from __future__ import annotations

import hashlib

from hapdsl.graph.program import Program


def fingerprint(program: Program) -> str:
    """Sixteen hex digits that two programs share only if they have the same model, shares and instructions."""
    digest = hashlib.blake2b(program.graph.fingerprint.encode(), digest_size=8)
    for cls, cuts in sorted(program.layout.shares.items()):
        digest.update(f"{cls}{sorted((axes, list(map(int, shares))) for axes, shares in cuts.items())}".encode())
    for i in program.instructions:
        digest.update(f"{i.op}{i.method}{i.axis}{i.dtype}{[*map(str, i.inputs)]}{[*map(str, i.outputs)]}".encode())
    return digest.hexdigest()
