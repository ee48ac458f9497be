"""Experts of transformers' own modules over the devices of an expert-parallel group.

transformers asks an interface how its stacked experts run. This way is that of ``experts``: each
device gathers its tokens by expert, as many rows for each of them, exchanges them so that it has
those of its own experts, multiplies, and all the way back. What a module does between its products
(its gate, its biases) is its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from GraphExtractor.experts import exchanged, gathered_rows, summed_rows, tokens_by_expert
from GraphExtractor.graph import GraphKey
from phaze_common.errors import InputError

_NAME = "phaze_shares"


def share_experts(model: torch.nn.Module, name: str) -> None:
    """Let the experts of ``model``, called ``name``, divide themselves when they are sharded.

    Raises: InputError: its experts are none that transformers stacks.
    """
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(_NAME, _run)
    holders = [module for module in model.modules() if hasattr(module, "_is_expert_parallel")]
    if not holders:
        raise InputError(
            f"{name} keeps its experts in modules of their own, which are not divided; use ep 1"
        )
    for module in holders:
        module.config._experts_implementation = _NAME
        module.shard = partial(_shrink, module)


def _shrink(module: torch.nn.Module, key: GraphKey) -> None:
    """Keep 1/ep of the experts, and of what there is of each."""
    for name, parameter in list(module.named_parameters(recurse=False)):
        if parameter.shape[0] == module.num_experts:
            shape = parameter.shape[0] // key.ep, *parameter.shape[1:]
            part = torch.empty(shape, dtype=parameter.dtype)
            setattr(module, name, torch.nn.Parameter(part))


def _run(module: Any, tokens: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> Any:
    """Tokens (token, width) to the weighted sums of those of the experts (token, choice)."""
    first = module.gate_up_proj if module.has_gate else module.up_proj
    experts, own, width = module.num_experts, first.shape[0], tokens.shape[-1]
    ep = experts // own
    index = tokens_by_expert(chosen, experts)
    rows = exchanged(gathered_rows(tokens, index), ep)
    rows = rows.view(ep, own, -1, width).transpose(0, 1).reshape(own, -1, width)
    inner = _product(module, rows, "gate_up_proj" if module.has_gate else "up_proj")
    inner = module._apply_gate(inner) if module.has_gate else module.act_fn(inner)
    out = _product(module, inner, "down_proj")
    if module.has_post_expert_norm:
        out = module.post_expert_norm(out)
    rows = out.view(own, ep, -1, width).transpose(0, 1).reshape(-1, width)
    return summed_rows(exchanged(rows, ep), index, weights.to(rows.dtype))


def _product(module: Any, rows: torch.Tensor, name: str) -> torch.Tensor:
    weight = getattr(module, name)
    out = torch.bmm(rows, weight if module.is_transposed else weight.transpose(1, 2))
    return out + getattr(module, f"{name}_bias").unsqueeze(1) if module.has_bias else out
