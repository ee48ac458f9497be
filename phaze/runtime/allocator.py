"""Memory of this process as a caching allocator has it: what was freed is kept for what comes next.

The C library gives large blocks back to the system when they are freed, and clears their pages when
they are asked for again, or does not, depending on what else the process did before: the same
operator takes once, twice or four times as long. With its memory kept, as torch keeps that of GPUs,
seconds repeat. Whatever is measured, and whatever is compared with it, runs so.
"""

from __future__ import annotations

import ctypes
import logging

logger = logging.getLogger(__name__)

TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4  # of mallopt (glibc, malloc.h)
NEVER = -1  # as the unsigned number that it is read as
PAD_BYTES = 64 * 2**20  # asked for beyond what is needed, so that it is asked for seldom


def keep_freed_memory() -> bool:
    """Keep what is freed from now on; False where the C library knows no such settings."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        logger.info(
            "the C library cannot be told to keep freed memory, so that seconds of large "
            "operators may vary more"
        )
        return False
    return all([mallopt(MMAP_MAX, 0), mallopt(TRIM_THRESHOLD, NEVER), mallopt(TOP_PAD, PAD_BYTES)])
