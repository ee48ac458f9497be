"""Parts of a model that its own code checkpoints (``torch.utils.checkpoint``), as a trace notices
them while they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

CHECKPOINTS = "checkpoints"  # among what a trace notes of a node: those it runs in, outermost first


@dataclass(frozen=True)
class Checkpoint:
    """One call of ``torch.utils.checkpoint``, by number; one that ``stops_early`` runs no further
    than it is needed."""

    number: int
    stops_early: bool


class CheckpointedPart(torch.nn.Module):  # type: ignore[misc]
    """A function that is checkpointed, as a module, so that whoever watches modules run sees it
    run."""

    def __init__(self, function: Callable[..., Any], stops_early: bool) -> None:
        super().__init__()
        self.stops_early = stops_early
        self._function = (function,)  # not registered: its modules are the model's

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Run it."""
        return self._function[0](*arguments, **named)


def checkpointed(
    function: Callable[..., Any],
    *arguments: Any,
    use_reentrant: bool | None = None,
    early_stop: bool = True,
    context_fn: Any = None,
    determinism_check: Any = None,
    debug: Any = None,
    preserve_rng_state: Any = None,
    **named: Any,
) -> Any:
    """In the place of ``torch.utils.checkpoint.checkpoint``; what ``context_fn`` would keep all the
    same is not kept."""
    return CheckpointedPart(function, stops_early=early_stop and not use_reentrant)(
        *arguments, **named
    )
