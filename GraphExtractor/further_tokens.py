"""Modules that predict further tokens (MTP; DeepSeek-AI 2024, section 2.2) behind a model's last
block.

Each joins what the model, or the module before, made of a token with the embedding of a later one,
runs blocks on it, and has the model's head predict from that. Modules may have the same weights
(Nemotron 3: ``mtp_use_repeated_layer``). All of it is part of the layer of the head, with which
Megatron-LM keeps it on the last stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from GraphExtractor.custom_operators import FusedRmsNorm


class FurtherTokens(torch.nn.Module):  # type: ignore[misc]
    """One module, of ``mixers`` with norms and sums around them, that runs ``times`` times."""

    def __init__(self, hidden: int, mixers: Sequence[torch.nn.Module], times: int) -> None:
        super().__init__()
        self.times = times
        self.token_norm, self.hidden_norm, self.last_norm = (_norm(hidden) for _ in range(3))
        self.join = torch.nn.Linear(2 * hidden, hidden, bias=False)
        self.norms = torch.nn.ModuleList([_norm(hidden) for _ in mixers])
        self.mixers = torch.nn.ModuleList(mixers)

    def forward(self, hidden: torch.Tensor) -> Any:
        """What the head reads of ``hidden`` (batch, sequence, hidden), and what the next module
        does.

        Tokens that are looked up again would be a layer that is fed by none before it; in their
        place stands what is joined with them.
        """
        x = self.join(torch.cat((self.token_norm(hidden), self.hidden_norm(hidden)), -1))
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            made = mixer(norm(x))
            x = x + (made[0] if isinstance(made, tuple) else made)
        return self.last_norm(x), x


def _norm(hidden: int) -> Any:
    return FusedRmsNorm(torch.nn.Parameter(torch.empty(hidden)))
