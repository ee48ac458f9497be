"""Context parallelism by construction: each of ``cp`` devices works on a part of the tokens of
every sequence.

A step is traced on s/cp tokens. Where attention runs, the device's queries meet the keys and values
of all tokens, in one of three ways. They are gathered before it, both in one exchange, as Llama 3
was trained (Grattafiori et al. 2024): only the device's own are kept, backward gathers again
(``regather``), and reduces and scatters the gradients. Or they pass around a ring of the devices
while fused attention runs on what is there (Liu et al. 2023): backward passes them once more, and
their gradients with them; no device ever holds more than two parts. Or heads are exchanged for
tokens (``head_exchange``). But for the last, each device has an early and a late part of the
sequence, so that causal attention gives all of them equal work. Fused attention exchanges the keys
and values of grouped queries as they are, eager attention repeated. This module refuses the models
in which tokens meet elsewhere.
"""

from dataclasses import dataclass
from typing import Any

import torch

from GraphExtractor.custom_operators import define
from GraphExtractor.graph import (
    GraphKey,
    KeyExchange,
    ModelGraph,
    OperandRole,
    Operator,
    OperatorKind,
)
from GraphExtractor.head_exchange import of_size
from phaze_common.errors import InputError


@dataclass(frozen=True)
class SharedTokens:
    """How many ``devices`` share the tokens of every sequence, and how their queries meet all keys
    and values."""

    devices: int = 1
    exchange: KeyExchange = KeyExchange.GATHER

    @staticmethod
    def of(key: GraphKey) -> "SharedTokens":
        """Those of a graph."""
        return SharedTokens(key.sequence_devices, key.exchange)

    def by(self, exchange: KeyExchange) -> int:
        """Devices among which keys and values are exchanged in this way: 1 where it is done in
        another one."""
        return self.devices if self.exchange is exchange else 1


UNSHARED = SharedTokens()


# keys and values in one exchange
_all_gather_keys = define(
    "all_gather_keys",
    "(Tensor k, Tensor v, int cp) -> (Tensor, Tensor)",
    lambda k, v, cp: tuple(of_size(x, x.shape[1], x.shape[-2] * cp) for x in (k, v)),
)
_reduce_scatter_keys = define(
    "reduce_scatter_keys",
    "(Tensor k, Tensor v, int cp) -> (Tensor, Tensor)",
    lambda k, v, cp: tuple(of_size(x, x.shape[1], x.shape[-2] // cp) for x in (k, v)),
)


class _GatheredKeys(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, k: Any, v: Any, cp: int) -> Any:
        ctx.cp = cp
        return _all_gather_keys(k, v, cp)

    @staticmethod
    def backward(ctx: Any, d_k: Any, d_v: Any) -> Any:
        return *_reduce_scatter_keys(d_k, d_v, ctx.cp), None


def gather_keys(k: torch.Tensor, v: torch.Tensor, cp: int) -> Any:
    """Keys and values of all devices of a context-parallel group; backward, their gradients are
    reduced and scattered."""
    return (k, v) if cp == 1 else _GatheredKeys.apply(k, v, cp)


def check_tokens_apart(graph: ModelGraph) -> None:
    """Refuse the graph of a part of a sequence whose tokens meet in a product outside attention."""
    if graph.key.sequence_devices == 1:
        return
    for layer in graph.layers:
        for operator in layer.forward.operators:
            if _mixes_tokens(operator):
                raise InputError(
                    f"{operator.name} in layer {layer.name} of {graph.key.model} mixes tokens "
                    "outside attention, so that a "
                    "sequence cannot be cut; use context parallel degree 1"
                )


def _mixes_tokens(operator: Operator) -> bool:
    """Convolutions, and products of activations with each other that are not attention's."""
    if operator.core_attention or operator.kind is not OperatorKind.GEMM:
        return operator.kind is OperatorKind.CONV
    return all(operand.role is not OperandRole.PARAMETER for operand in operator.reads)
