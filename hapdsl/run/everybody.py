"""What every rank says, known to all. Texts go as plain bytes: nothing that comes from another machine is unpickled."""

from __future__ import annotations

import torch
import torch.distributed as dist


def texts(own: str) -> list[str]:
    """Every rank's text, by rank. All ranks must call it."""
    raw = list(own.encode())
    size = torch.tensor([len(raw)])
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, size)
    longest = max(int(n) for n in sizes)
    padded = torch.tensor(raw + [0] * (longest - len(raw)), dtype=torch.uint8)
    every = [torch.empty_like(padded) for _ in sizes]
    if longest:
        dist.all_gather(every, padded)
    return [bytes(found[: int(n)].tolist()).decode() for found, n in zip(every, sizes, strict=True)]
