"""Collectives of one tensor, under the name that the installed torch has for them: before 2.13 they
were called otherwise."""

from typing import Any

import torch
import torch.distributed as dist


def all_gather(whole: torch.Tensor, part: torch.Tensor, group: Any) -> None:
    """Write the ``part`` of every member of ``group``, in their order, into ``whole``."""
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(whole, part, group=group)


def reduce_scatter(part: torch.Tensor, whole: torch.Tensor, group: Any) -> None:
    """Add ``whole`` over ``group`` and write the own part of the sum into ``part``."""
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    scatter(part, whole, group=group)
