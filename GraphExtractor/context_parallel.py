"""Context parallelism by construction: ``cp`` devices work on parts of the tokens of a sequence.

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

from GraphExtractor.custom_operators import communicate, define
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
    """``devices`` share the tokens of a sequence; how their queries meet all keys and values."""

    devices: int = 1
    exchange: KeyExchange = KeyExchange.GATHER

    @staticmethod
    def of(key: GraphKey) -> "SharedTokens":
        """Those of a graph."""
        return SharedTokens(key.sequence_devices, key.exchange)

    def by(self, exchange: KeyExchange) -> int:
        """Devices that exchange keys and values in this way: 1 where they do it in another one."""
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


def gather_keys(k: torch.Tensor, v: torch.Tensor, cp: int) -> Any:
    """Keys and values of all devices of a group; backward, their gradients are scattered."""
    return communicate(cp, _all_gather_keys, _reduce_scatter_keys, k, v) if cp > 1 else (k, v)


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
