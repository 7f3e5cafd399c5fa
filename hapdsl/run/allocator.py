"""The C library's allocator, told to keep what is freed.

By default glibc gives large blocks back to the system when they end and asks for them again, zeroed page by page, when the next value is
made: on a CPU that can double the time of an update, whose memory is needed again in every step. Kept, the memory that one value
leaves serves the next, as a program's liveness has it. The process then stays as large as its peak. torch's GPU allocator does so by itself.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of <malloc.h>
_NEVER = 2**31 - 1
_LARGEST = 32 * 2**20  # what glibc takes at most for the second before 2.35


def keep_freed_memory() -> bool:
    """Of this process; false where the C library has no such setting (it isn't glibc)."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    kept = mallopt(_MMAP_THRESHOLD, _NEVER) or mallopt(_MMAP_THRESHOLD, _LARGEST)
    return bool(mallopt(_TRIM_THRESHOLD, _NEVER)) and bool(kept)
