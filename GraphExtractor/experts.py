"""A mixture of experts as trainers run it on many devices: route, permute, exchange, multiply in
groups, and all the way back.

Tokens are gathered by expert, exchanged over the expert-parallel group so that every device holds
the rows of its own experts, multiplied in one batched product per projection, exchanged back and
summed (Lepikhin et al. 2021; the all-to-all dispatcher of Megatron-LM). Routing weights travel with
the rows, which costs next to nothing, and multiply what the gate makes, so that what experts give
need not be kept (Megatron-Core since 2025: ``moe_permute_fusion``, ``permuted_probs``).
Routing is balanced, which is what balancing losses and biases train for, or the device is the
busiest of its group, whose experts get a multiple of the mean (``GraphKey.expert_load``): each
expert gets an equal part of every device's choices, rounded up to whole rows. Neither losses nor
dropped tokens are modelled. Indices are bookkeeping, except where a kernel reads them beside the
rows.

Under tensor parallelism the experts' inner width is split like that of any gated MLP and the router
is replicated. Without sequence parallelism the block has one all-reduce at its end and one, in
backward, at its entrance. With it the router works on the device's own part of the tokens; routed
rows are gathered behind the first exchange and reduced and scattered before the second; what a
shared expert reads is gathered, what it writes scattered (Megatron-LM,
``MoEAlltoAllTokenDispatcher``). Where tensor-parallel devices hold whole experts (its
``expert_tensor_parallel_size`` 1), no rows are gathered: the exchange reaches them too.

Stacked experts of transformers, which asks an interface how they run, do the same; what a module
does between its products (its gate, its biases) is its own.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from GraphExtractor import custom_operators
from GraphExtractor.graph import GraphKey
from phaze_common.errors import InputError

_gather_rows = custom_operators.define(
    "gather_rows",
    "(Tensor x, Tensor index) -> Tensor",
    lambda x, index: x.new_empty(*index.shape, x.shape[-1]),
)
_sum_rows = custom_operators.define(
    "sum_rows",
    "(Tensor rows, Tensor index, int tokens, Tensor? weights=None) -> Tensor",
    lambda rows, index, tokens, weights=None: rows.new_empty(tokens, rows.shape[-1]),
)
_sum_rows_backward = custom_operators.define(
    "sum_rows_backward",
    "(Tensor gradient, Tensor rows, Tensor index, Tensor weights) -> (Tensor, Tensor)",
    lambda gradient, rows, index, weights: (torch.empty_like(rows), torch.empty_like(weights)),
)
_route = custom_operators.define(
    "route",
    "(Tensor logits, int chosen) -> (Tensor, Tensor, Tensor)",
    lambda logits, chosen: (
        logits.new_empty(logits.shape[0], chosen),
        logits.new_empty(logits.shape[0], chosen, dtype=torch.int64),
        logits.new_empty(logits.shape, dtype=torch.float32),
    ),
)
_route_backward = custom_operators.define(
    "route_backward",
    "(Tensor gradient, Tensor scores, Tensor indices, ScalarType dtype) -> Tensor",
    lambda gradient, scores, indices, dtype: scores.new_empty(scores.shape, dtype=dtype),
)
# silu(gate) · up of both side by side, in one kernel that keeps its input
_swiglu = custom_operators.define(
    "swiglu", "(Tensor x) -> Tensor", lambda x: x.new_empty(*x.shape[:-1], x.shape[-1] // 2)
)
_swiglu_backward = custom_operators.define(
    "swiglu_backward", "(Tensor gradient, Tensor x) -> Tensor", lambda _, x: torch.empty_like(x)
)
_gate = custom_operators.differentiable(_swiglu, _swiglu_backward)
# the same, times the routing weight of each row
_weighted_swiglu = custom_operators.define(
    "weighted_swiglu",
    "(Tensor x, Tensor weights) -> Tensor",
    lambda x, _: x.new_empty(*x.shape[:-1], x.shape[-1] // 2),
)
_weighted_swiglu_backward = custom_operators.define(
    "weighted_swiglu_backward",
    "(Tensor gradient, Tensor x, Tensor weights) -> (Tensor, Tensor)",
    lambda _, x, weights: (torch.empty_like(x), torch.empty_like(weights)),
)
_all_to_all = custom_operators.define_collective("all_to_all")
# rows of other devices: saved for the weight gradients, while a sequence is gathered again
_all_gather_rows = custom_operators.define_collective("all_gather_rows", grows=0)
_reduce_scatter_rows = custom_operators.define_collective("reduce_scatter_rows", shrinks=0)


class _GatherRows(torch.autograd.Function):  # type: ignore[misc]
    """Rows (row, width) of the tokens (token, width) that ``index`` (row,) names."""

    @staticmethod
    def forward(ctx: Any, tokens: Any, index: Any) -> Any:
        ctx.save_for_backward(index)
        ctx.tokens = tokens.shape[0]
        return _gather_rows(tokens, index)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _sum_rows(gradient, *ctx.saved_tensors, ctx.tokens), None


class _SumRows(torch.autograd.Function):  # type: ignore[misc]
    """Weighted sum of each token's rows, (token, width); ``weights`` are (token, choice)."""

    @staticmethod
    def forward(ctx: Any, rows: Any, index: Any, weights: Any) -> Any:
        ctx.save_for_backward(rows, index, weights)
        return _sum_rows(rows, index, weights.shape[0], weights)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        rows, weights = _sum_rows_backward(gradient, *ctx.saved_tensors)
        return rows, None, weights


class _Route(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, logits: Any, chosen: int) -> Any:
        weights, indices, scores = _route(logits, chosen)
        ctx.save_for_backward(scores, indices)
        ctx.mark_non_differentiable(indices)
        ctx.dtype = logits.dtype
        return weights, indices

    @staticmethod
    def backward(ctx: Any, gradient: Any, _: Any) -> Any:
        return _route_backward(gradient, *ctx.saved_tensors, ctx.dtype), None


class _AddRows(torch.autograd.Function):  # type: ignore[misc]
    """Sum of each token's rows, (token, width), of as many ``tokens``."""

    @staticmethod
    def forward(ctx: Any, rows: Any, index: Any, tokens: int) -> Any:
        ctx.save_for_backward(index)
        return _sum_rows(rows, index, tokens)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _gather_rows(gradient, *ctx.saved_tensors), None, None


gathered_rows = _GatherRows.apply
added_rows = _AddRows.apply
summed_rows = _SumRows.apply
weighted_swiglu = custom_operators.differentiable(_weighted_swiglu, _weighted_swiglu_backward)


def exchanged(rows: torch.Tensor, ep: int) -> Any:
    """All-to-all over the expert-parallel group, in backward too."""
    if ep == 1:
        return rows
    return custom_operators.communicate(ep, _all_to_all, _all_to_all, rows)


def tokens_by_expert(chosen: torch.Tensor, experts: int, load: float = 1.0) -> torch.Tensor:
    """Token of every row, expert by expert, equally many; ``chosen`` is (token, choice).

    A device whose experts get ``load`` times the mean of rows gets so many times as many from every
    other, which the rows of its own stand for.
    """
    rows = math.ceil(chosen.numel() * load / experts) * experts
    tokens = chosen.flatten().argsort() // chosen.shape[-1]
    return functional.pad(tokens, (0, rows - chosen.numel()))


class Router(torch.nn.Module):  # type: ignore[misc]
    """Routing weights (token, choice) and the experts they belong to.

    Scores by softmax, or by sigmoid with a bias that balances them and groups of experts that limit
    them (DeepSeek-V3): either way one kernel reads all logits, keeps the scores in fp32 and writes
    the chosen ones, normalised (the fused router of Megatron-LM).
    """

    def __init__(self, hidden: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.experts, self.chosen = experts, chosen
        self.weight = torch.nn.Parameter(torch.empty(experts, hidden))
        self.bias: torch.nn.Parameter | None = None

    def forward(self, tokens: torch.Tensor) -> Any:
        """Route ``tokens`` (token, hidden)."""
        return _Route.apply(functional.linear(tokens, self.weight, self.bias), self.chosen)


class Experts(torch.nn.Module):  # type: ignore[misc]
    """Gated MLPs with their weights stacked, each applied to the rows of its own."""

    def __init__(self, experts: int, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(torch.empty(experts, 2 * ffn, hidden))
        self.down_proj = torch.nn.Parameter(torch.empty(experts, hidden, ffn))

    def shrink(self, tp: int, ep: int) -> None:
        """Keep 1/ep of the experts and 1/tp of their inner width."""
        experts, hidden, ffn = self.down_proj.shape
        self.gate_up_proj = torch.nn.Parameter(torch.empty(experts // ep, 2 * ffn // tp, hidden))
        self.down_proj = torch.nn.Parameter(torch.empty(experts // ep, hidden, ffn // tp))

    def forward(self, rows: torch.Tensor, weights: torch.Tensor, sources: int) -> Any:
        """Rows (row, hidden) of ``sources`` devices, each with a part for every expert in order,
        and the ``weights`` of as many."""
        experts, hidden, _ = self.down_proj.shape
        rows = rows.view(sources, experts, -1, hidden).transpose(0, 1)
        sorted_rows = rows.reshape(experts, -1, hidden)
        out = self.second(self.gated(self.first(sorted_rows), weights), weights)
        return out.view(experts, sources, -1, hidden).transpose(0, 1).reshape(-1, hidden)

    def first(self, rows: torch.Tensor) -> Any:
        """What enters the gates, of rows (expert, row, hidden)."""
        return torch.bmm(rows, self.gate_up_proj.transpose(1, 2))

    def gated(self, inner: torch.Tensor, weights: torch.Tensor) -> Any:
        """What the gates let through, times the ``weights`` of the rows."""
        return weighted_swiglu(inner, weights)

    def second(self, inner: torch.Tensor, weights: torch.Tensor) -> Any:
        """What leaves the experts, of rows that are weighted already."""
        return torch.bmm(inner, self.down_proj.transpose(1, 2))


class SharedExpert(torch.nn.Module):  # type: ignore[misc]
    """A gated MLP that every token meets."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.tp, self.sequence_parallel = 1, False
        self._build(hidden, ffn)

    def _build(self, hidden: int, ffn: int) -> None:
        self.gate_up_proj = torch.nn.Linear(hidden, 2 * ffn, bias=False)
        self.down_proj = torch.nn.Linear(ffn, hidden, bias=False)

    def shrink(self, key: GraphKey) -> None:
        """Keep 1/tp of the inner width."""
        self.tp, self.sequence_parallel = key.tp, key.sequence_parallel
        self._build(self.down_proj.out_features, self.down_proj.in_features // key.tp)

    def forward(self, x: torch.Tensor) -> Any:
        """Without sequence parallelism the result is a summand of the group's."""
        if self.sequence_parallel:
            x = custom_operators.gather_sequence(x, self.tp)
        x = self.inner(x)
        return custom_operators.reduce_scatter_sequence(x, self.tp) if self.sequence_parallel else x

    def inner(self, x: torch.Tensor) -> Any:
        """The expert itself."""
        return self.down_proj(_gate(self.gate_up_proj(x)))


class MixtureOfExperts(torch.nn.Module):  # type: ignore[misc]
    """A block's MLP: ``experts`` of width ``ffn``, ``chosen`` by each token, and a shared one."""

    def __init__(
        self, hidden: int, ffn: int, experts: int, chosen: int, shared_ffn: int = 0
    ) -> None:
        super().__init__()
        self.tp, self.etp, self.ep, self.sequence_parallel = 1, 1, 1, False
        self.load = 1.0
        self.router = Router(hidden, experts, chosen)
        self.experts = Experts(experts, hidden, ffn)
        self.shared_expert = SharedExpert(hidden, shared_ffn) if shared_ffn else None

    def shard(self, key: GraphKey) -> None:
        """Shrink to one device's part; other devices of its expert group have their own tokens."""
        self.tp, self.etp, self.ep = key.tp, key.expert_tp, key.ep
        self.sequence_parallel = key.sequence_parallel and key.tp > 1
        self.load = key.expert_load
        self.experts.shrink(key.expert_tp, key.ep)
        if self.shared_expert is not None:
            self.shared_expert.shrink(key)

    def narrowed(self, tokens: torch.Tensor) -> Any:
        """What experts read of ``tokens`` (token, hidden)."""
        return tokens

    def summed(self, rows: Any, index: Any, weights: Any) -> Any:
        """Sums of the ``rows`` of each token, whose ``weights`` (token, choice) are in them."""
        return added_rows(rows, index, weights.shape[0])

    def widened(self, tokens: torch.Tensor) -> Any:
        """What the block makes of sums of experts (token, width)."""
        return tokens

    def forward(self, x: torch.Tensor) -> Any:
        """Tokens (batch, sequence, hidden) to their weighted sums of experts."""
        alone = self.tp > 1 and not self.sequence_parallel
        if alone:
            x = custom_operators.copy_to_group(x, self.tp)
        tokens = x.flatten(0, -2)
        weights, chosen = self.router(tokens)
        index = tokens_by_expert(chosen, self.router.experts, self.load)
        rows = exchanged(gathered_rows(self.narrowed(tokens), index), self.ep)
        gather, scatter = _all_gather_rows, _reduce_scatter_rows
        divided = self.sequence_parallel and self.etp > 1
        if divided:
            rows = custom_operators.communicate(self.tp, gather, scatter, rows)
        rows = self.experts(rows, weights, self.ep * (self.tp if divided else 1))
        if divided:
            rows = custom_operators.communicate(self.tp, scatter, gather, rows)
        out = self.summed(exchanged(rows, self.ep), index, weights)
        out = self.widened(out).view_as(x)
        if self.shared_expert is not None:
            out = out + self.shared_expert(x)
        return custom_operators.reduce_from_group(out, self.tp) if alone else out


def put_experts(model: torch.nn.Module, block: type[torch.nn.Module], *sizes: int) -> None:
    """Put a ``MixtureOfExperts`` of these sizes in the place of all modules of class ``block``."""
    for path, module in list(model.named_modules()):
        if isinstance(module, block):
            model.set_submodule(path, MixtureOfExperts(*sizes))


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
    module.expert_load = key.expert_load
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
    index = tokens_by_expert(chosen, experts, getattr(module, "expert_load", 1.0))
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
