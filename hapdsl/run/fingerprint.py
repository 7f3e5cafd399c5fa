"""What two ranks, or a program and a checkpoint, compare to know that they mean the same."""

from __future__ import annotations

import hashlib

import torch
import torch.distributed as dist

from hapdsl.graph.program import Program


def fingerprint(program: Program) -> str:
    """Sixteen hex digits that two programs share only if they have the same model, mesh, shares and instructions."""
    digest = hashlib.blake2b(program.graph.fingerprint.encode(), digest_size=8)
    digest.update(f"{[int(size) for _, size in program.layout.mesh]}".encode())
    for cls, cuts in sorted(program.layout.shares.items()):
        digest.update(f"{cls}{sorted((axes, list(map(int, shares))) for axes, shares in cuts.items())}".encode())
    for i in program.instructions:
        digest.update(
            f"{i.section}{i.op}{i.method}{i.axis}{i.dtype}{[*map(str, i.inputs)]}{[*map(str, i.outputs)]}".encode()
        )
    return digest.hexdigest()


def differing(said: str) -> list[int]:
    """The ranks that say something else than the first one. All ranks must call it."""
    digest = hashlib.blake2b(said.encode(), digest_size=8).digest()
    own = torch.tensor([int.from_bytes(digest, "little", signed=True)])
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    return [rank for rank, other in enumerate(every) if not torch.equal(other, every[0])]
