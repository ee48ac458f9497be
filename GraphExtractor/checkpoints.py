"""Parts of a model that its own code checkpoints, as a trace notices them while they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

CHECKPOINTS = "checkpoints"  # among what a trace notes of a node: those it runs in, outermost first
_IGNORED = ("context_fn", "determinism_check", "debug", "preserve_rng_state")


@dataclass(frozen=True)
class Checkpoint:
    """One call of ``torch.utils.checkpoint``; ``stops_early``: it runs no further than needed."""

    number: int
    stops_early: bool


class CheckpointedPart(torch.nn.Module):  # type: ignore[misc]
    """A checkpointed function as a module, so that whoever watches modules run sees it run."""

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
    **named: Any,
) -> Any:
    """In the place of ``torch.utils.checkpoint.checkpoint``; ``context_fn`` saves nothing."""
    part = CheckpointedPart(function, stops_early=early_stop and not use_reentrant)
    return part(*arguments, **{key: each for key, each in named.items() if key not in _IGNORED})
