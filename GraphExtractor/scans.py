"""Recurrences over the tokens as one operator each, in the place of loops over tokens.

Selective scans (Mamba and its relatives; Gu and Dao 2023) and the weighted sums of RWKV (Peng et
al. 2023) of transformers' models are their fused kernels: operands are read once and results
written once, states stay on the chip but those at the borders of chunks. torch's recurrent modules
are a product over all tokens with the input weights, and a recurrence with the others. Importing
this module registers the operators with torch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import MappingProxyType, ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional

from GraphExtractor.custom_operators import define, differentiable
from GraphExtractor.delta_rule import channel_delta_rule, gated_delta_rule
from phaze_common.errors import InputError

GATES = MappingProxyType({"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1})
# tokens between the states that the kernel of mamba-ssm keeps for its backward pass
# (selective_scan_fwd_kernel.cuh)
CHUNK = 2048
_MODELS = "transformers.models."


def _like(tensor: Any, other: Any) -> Any:
    """A gradient of ``tensor``, or nothing where the model has no such operand."""
    return other.new_empty(0) if tensor is None else _contiguous(tensor)


def _contiguous(tensor: Any) -> Any:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _scan_shapes(x: Any, dt: Any, decay: Any, into: Any, out_of: Any, *optional: Any) -> Any:
    gate = (*optional, None, None)[1]  # behind skip, before bias
    chunks = -(-x.shape[2] // CHUNK)
    states = x.new_empty(x.shape[0], x.shape[1], chunks, 2 * decay.shape[1], dtype=torch.float32)
    return _contiguous(x), _like(gate, x), states  # with a gate, what it multiplies is saved too


# decay, into, out_of and skip are A, B, C and D of Gu and Dao 2023
_selective_scan = define(
    "selective_scan",
    "(Tensor x, Tensor dt, Tensor decay, Tensor into, Tensor out_of, Tensor? skip=None, Tensor? "
    "gate=None, Tensor? bias=None) -> (Tensor, Tensor, Tensor)",
    _scan_shapes,
)
_selective_scan_backward = define(
    "selective_scan_backward",
    "(Tensor gradient, Tensor x, Tensor dt, Tensor decay, Tensor into, Tensor out_of, Tensor "
    "inner, Tensor states, Tensor? skip=None, Tensor? gate=None, Tensor? bias=None) -> (Tensor, "
    "Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda _, x, *others: tuple(
        _like(each, x) for each in (x, *others[:4], *(*others[6:], None, None, None)[:3])
    ),
)
_wkv_forward = define(
    "wkv",
    "(Tensor decay, Tensor first, Tensor key, Tensor value) -> Tensor",
    lambda decay, first, key, value: _contiguous(value),
)
_wkv_backward = define(
    "wkv_backward",
    "(Tensor gradient, Tensor decay, Tensor first, Tensor key, Tensor value, Tensor out) -> "
    "(Tensor, Tensor, Tensor, Tensor)",
    lambda _, decay, first, key, value, out: tuple(
        _like(each, key) for each in (decay, first, key, value)
    ),
)
_wkv = differentiable(_wkv_forward, _wkv_backward, saved=slice(None))


# state by state what went before times a gate, and what comes in (Griffin's RG-LRU; De et al. 2024)
_linear_scan_forward = define(
    "linear_scan", "(Tensor x, Tensor gate) -> Tensor", lambda x, gate: _contiguous(x)
)
_linear_scan_backward = define(
    "linear_scan_backward",
    "(Tensor gradient, Tensor gate, Tensor out) -> (Tensor, Tensor)",
    lambda _, gate, out: (_like(out, out), _like(gate, gate)),
)
_linear_scan = differentiable(_linear_scan_forward, _linear_scan_backward, saved=slice(1, None))


def _recurrence_shapes(gates: Any, weight: Any, h: Any, bias: Any, c: Any, mode: str) -> Any:
    (batch, tokens, _), width = gates.shape, weight.shape[1]
    # what cuDNN reserves: gates, with the state of an LSTM or the recurrent part of a GRU's
    # candidate; an RNN needs its output
    reserved = (GATES[mode] + 1) * width if GATES[mode] > 1 else 0
    out, last = gates.new_empty(batch, tokens, width), gates.new_empty(batch, width)
    return out, last, _like(c, gates), gates.new_empty(batch, tokens, reserved)


_recurrence = define(
    "recurrence",
    "(Tensor gates, Tensor weight, Tensor h, Tensor? bias, Tensor? c, str mode) -> (Tensor, "
    "Tensor, Tensor, Tensor)",
    _recurrence_shapes,
)
_recurrence_backward = define(
    "recurrence_backward",
    "(Tensor gradient, Tensor weight, Tensor out, Tensor reserved, Tensor h, Tensor? c, Tensor? "
    "of_h, Tensor? of_c, str mode, bool to_first) -> (Tensor, Tensor, Tensor)",
    lambda _, weight, out, reserved, h, c, *others: (
        out.new_empty(*out.shape[:2], weight.shape[0]),
        torch.empty_like(h),
        _like(c, h),
    ),
)


class _SelectiveScan(torch.autograd.Function):  # type: ignore[misc]
    """Saves its operands, its output before the gate, and the states between chunks."""

    @staticmethod
    def forward(ctx: Any, *operands: Any) -> Any:
        out, inner, states = _selective_scan(*operands)
        ctx.save_for_backward(*operands, inner, states)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        *first, skip, gate, bias, inner, states = ctx.saved_tensors
        gradients = _selective_scan_backward(gradient, *first, inner, states, skip, gate, bias)
        pairs = zip(gradients, ctx.needs_input_grad, strict=True)
        return tuple(found if needed else None for found, needed in pairs)


class _Recurrence(torch.autograd.Function):  # type: ignore[misc]
    """A recurrent layer in one direction; the gradient of its weights is one product of all."""

    @staticmethod
    def forward(ctx: Any, gates: Any, weight: Any, h: Any, bias: Any, c: Any, mode: str) -> Any:
        out, last, last_c, reserved = _recurrence(gates, weight, h, bias, c, mode)
        ctx.save_for_backward(weight, out, reserved, h, c)
        ctx.mode, ctx.biased = mode, bias is not None
        ctx.set_materialize_grads(False)
        return out, last, last_c

    @staticmethod
    def backward(ctx: Any, gradient: Any, of_h: Any, of_c: Any) -> Any:
        weight, out, reserved, h, c = ctx.saved_tensors
        gradient = torch.zeros_like(out) if gradient is None else gradient
        of_c = of_c if c is not None else None
        to_first = ctx.needs_input_grad[2]
        of_gates, of_first, of_first_c = _recurrence_backward(
            gradient, weight, out, reserved, h, c, of_h, of_c, ctx.mode, to_first
        )
        rows = of_gates.flatten(0, 1)
        of_weight = rows.t().mm(out.flatten(0, 1))  # the states one step back, which are as many
        of_bias = rows.sum(0) if ctx.biased else None
        if not to_first:
            of_first = None
        return of_gates, of_weight, of_first, of_bias, of_first_c if c is not None else None, None


# as transformers calls the operands of a selective scan
_OPERANDS = ("hidden_states", "dt", "A", "B", "C", "D", "z", "delta_bias")


def _scanned(*given: Any, **named: Any) -> Any:
    """In the place of ``mamba_selective_scan``; B and C are (batch, state size, tokens)."""
    operands = (*given, *(named.get(name) for name in _OPERANDS[len(given) :]))
    out = _SelectiveScan.apply(*operands[: len(_OPERANDS)])
    return (out, None) if named.get("return_last_state") else out  # which training never reads


def _weighted(
    time_decay: Any, time_first: Any, key: Any, value: Any, state: Any = None, **_: Any
) -> Any:
    """In the place of ``rwkv_linear_attention``."""
    return _wkv(time_decay, time_first, key, value), state


def _gated(
    _: Any, hidden_states: Any, recurrent_gate: Any, reset: Any, *others: Any, **named: Any
) -> Any:
    """In the place of ``_rnn_scan`` of transformers; resets are (batch, tokens, 1)."""
    out = _linear_scan(hidden_states, recurrent_gate * ~reset)
    return out, out[:, -1]


def _recurrent(module: Any, input: Any, hx: Any = None) -> Any:
    """In the place of the forward pass of torch's ``LSTM``, ``GRU`` and ``RNN``."""
    if module.proj_size:
        raise InputError(
            f"torch.nn.{type(module).__name__} with proj_size is not priced; leave it out and "
            "project its output"
        )
    mode, batched = module.mode.lower(), input.dim() == 3
    x = input if batched else input.unsqueeze(0)
    x = x if module.batch_first or not batched else x.transpose(0, 1)
    directions = 2 if module.bidirectional else 1
    first, first_c = hx if isinstance(hx, tuple) else (hx, None)
    zeros = x.new_zeros(x.shape[0], module.hidden_size)
    lasts, lasts_c = [], []

    def state(given: Any, index: int) -> Any:
        if given is None:
            return zeros
        return given[index] if batched else given[index].unsqueeze(0)

    for layer in range(module.num_layers):
        outputs = []
        for direction in range(directions):
            suffix = f"l{layer}{'_reverse' if direction else ''}"
            bias = getattr(module, f"bias_hh_{suffix}") if module.bias else None
            own = getattr(module, f"bias_ih_{suffix}") if module.bias else None
            gates = functional.linear(x, getattr(module, f"weight_ih_{suffix}"), own)
            index = layer * directions + direction
            c = state(first_c, index) if mode == "lstm" else None
            out, last, last_c = _Recurrence.apply(
                gates, getattr(module, f"weight_hh_{suffix}"), state(first, index), bias, c, mode
            )
            outputs.append(out)
            lasts.append(last)
            lasts_c.append(last_c)
        x = torch.cat(outputs, -1) if directions > 1 else outputs[0]
        if module.dropout and module.training and layer < module.num_layers - 1:
            x = functional.dropout(x, module.dropout)
    join = torch.stack if batched else torch.cat
    h_n = join(lasts)
    if not batched:
        x = x.squeeze(0)
    elif not module.batch_first:
        x = x.transpose(0, 1)
    return x, (h_n, join(lasts_c)) if mode == "lstm" else h_n


_REPLACED = MappingProxyType(
    {
        "mamba_selective_scan": _scanned,
        "rwkv_linear_attention": _weighted,
        "torch_chunk_gated_delta_rule": gated_delta_rule,
        "chunk_kimi_delta_attention": channel_delta_rule,
        "_rnn_scan": _gated,  # of classes
    }
)


@cache
def _recurrences(module: ModuleType) -> tuple[tuple[object, str], ...]:
    """The functions of a module, and of classes in it, that are replaced."""
    kinds = [each for each in vars(module).values() if isinstance(each, type)]
    own = [(module, name) for name in _REPLACED if name != "_rnn_scan" and name in vars(module)]
    return (*own, *((kind, "_rnn_scan") for kind in kinds if "_rnn_scan" in vars(kind)))


@contextmanager
def whole_scans() -> Iterator[None]:
    """While active, recurrences of transformers and of torch stay whole in the trace."""
    with ExitStack() as patches:
        for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            patches.enter_context(patch.object(kind, "forward", _recurrent))
        for name, module in list(sys.modules.items()):
            if name.startswith(_MODELS) and ".modeling_" in name:
                for owner, function in _recurrences(module):
                    patches.enter_context(patch.object(owner, function, _REPLACED[function]))
        yield
