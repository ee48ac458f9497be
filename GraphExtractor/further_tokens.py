"""Modules that predict further tokens (MTP; DeepSeek-AI 2024, section 2.2) behind a model's last
block.

Each joins what the model, or the module before, made of a token with the embedding of a later one,
runs blocks on it, and has the model's head predict from that. Modules may have the same weights
(Nemotron 3: ``mtp_use_repeated_layer``). All of it is part of the layer of the head, with which
Megatron-LM keeps it on the last stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from GraphExtractor.custom_operators import FusedRmsNorm

if TYPE_CHECKING:
    from GraphExtractor.models.base import CrossEntropy, Inputs


class FurtherTokens(torch.nn.Module):  # type: ignore[misc]
    """One module, of ``mixers`` with norms and sums around them, that runs ``times`` times."""

    def __init__(self, hidden: int, mixers: Sequence[torch.nn.Module], times: int) -> None:
        super().__init__()
        self.times = times
        self.token_norm, self.hidden_norm, self.last_norm = (_norm(hidden) for _ in range(3))
        self.join = torch.nn.Linear(2 * hidden, hidden, bias=False)
        self.norms = torch.nn.ModuleList([_norm(hidden) for _ in mixers])
        self.mixers = torch.nn.ModuleList(mixers)

    def forward(self, hidden: torch.Tensor, **given: Any) -> Any:
        """What the head reads of ``hidden`` (batch, sequence, hidden), and what the next module
        does; ``given`` is for its mixers.

        Tokens that are looked up again would be a layer that is fed by none before it; in their
        place stands what is joined with them.
        """
        x = self.join(torch.cat((self.token_norm(hidden), self.hidden_norm(hidden)), -1))
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            read = norm(x)
            made = mixer(read, **given) if _attends(mixer) else mixer(read)
            x = x + (made[0] if isinstance(made, tuple) else made)
        return self.last_norm(x), x


def loss_of_further(model: Any, inputs: Inputs, cross_entropy: CrossEntropy, **given: Any) -> Any:
    """Losses of the next token and of those after it, added."""
    labels = inputs["labels"]
    hidden = model.model(input_ids=inputs["input_ids"]).last_hidden_state
    total = cross_entropy(model.lm_head(hidden), labels)
    for _ in range(model.further.times):
        read, hidden = model.further(hidden, **given)
        total = total + cross_entropy(model.lm_head(read), labels)
    return total


def _attends(mixer: torch.nn.Module) -> bool:
    return hasattr(mixer, "o_proj")


def _norm(hidden: int) -> Any:
    return FusedRmsNorm(torch.nn.Parameter(torch.empty(hidden)))
