"""Context parallelism by construction: ``cp`` devices work on parts of the tokens of a sequence.

A step is traced on s/cp tokens. Where attention runs, the device's queries meet the keys and values
of all tokens, in one of three ways. They are gathered before it, both in one exchange, as Llama 3
was trained (Grattafiori et al. 2024): only the device's own are saved, backward gathers again
(``run_again``), and reduces and scatters the gradients. Or they pass around a ring of the devices
while fused attention runs on what is there (Liu et al. 2023): backward passes them once more, and
their gradients with them; no device ever holds more than two parts. In both ways each device has an
early and a late part of the sequence, so that causal attention gives all of them equal work.

Or heads are exchanged for tokens (DeepSpeed-Ulysses, Jacobs et al. 2023): before attention an
all-to-all turns queries, keys and values of all heads of a part of the tokens into those of a part
of the heads of all tokens, behind it another one turns the output back. Grouped keys and values
that are fewer than the devices are repeated as often as makes them enough.

Fused attention exchanges the keys and values of grouped queries as they are, eager attention
repeated. This module refuses the models in which tokens meet elsewhere.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch

from GraphExtractor.custom_operators import communicate, define, define_collective, own_part
from GraphExtractor.graph import (
    CollectiveGroup,
    GraphKey,
    KeyExchange,
    ModelGraph,
    OperandRole,
    Operator,
    OperatorKind,
)
from phaze_common.errors import InputError


def of_size(x: torch.Tensor, heads: int, length: int) -> torch.Tensor:
    """Queries, keys or values (batch, heads, sequence, width) of another size in the same order."""
    batch, width = x.shape[0], x.shape[-1]
    if x.is_contiguous():
        return x.new_empty(batch, heads, length, width)
    return x.new_empty(batch, length, heads, width).transpose(1, 2)


# queries, keys and values in one exchange, (batch, heads, sequence, width) each
_THREE = "(Tensor q, Tensor k, Tensor v, int cp) -> (Tensor, Tensor, Tensor)"
_scatter_heads = define(
    "all_to_all_heads",
    _THREE,
    lambda q, k, v, cp: tuple(of_size(x, x.shape[1] // cp, x.shape[2] * cp) for x in (q, k, v)),
)
_gather_heads = define(
    "all_to_all_head_gradients",
    _THREE,
    lambda q, k, v, cp: tuple(of_size(x, x.shape[1] * cp, x.shape[2] // cp) for x in (q, k, v)),
)
# attention's output is (batch, sequence, heads, width)
_scatter_tokens = define_collective("all_to_all_outputs", grows=2, shrinks=1)
_gather_tokens = define_collective("all_to_all_output_gradients", grows=1, shrinks=2)


def heads_for_tokens(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, devices: int) -> Any:
    """Queries, keys and values: some heads of all tokens, for all heads of some tokens.

    Raises: InputError: the heads of a device are not divisible by ``devices``.
    """
    heads, grouped = q.shape[1], k.shape[1]
    if heads % devices:
        raise InputError(
            f"ulysses divides the {heads} attention heads of a tensor-parallel device among "
            f"{devices} devices that share a "
            f"sequence; let these be a divisor of {heads}, or use exchange gather or ring"
        )
    repeats = devices // math.gcd(grouped, devices)
    if repeats > 1:
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    return communicate(devices, _scatter_heads, _gather_heads, q, k, v)


def tokens_for_heads(out: torch.Tensor, devices: int) -> Any:
    """Attention's output: all heads of some tokens, for some heads of all tokens."""
    return communicate(devices, _scatter_tokens, _gather_tokens, out)


def own_heads(of_heads: Any, dimension: int, devices: int) -> Any:
    """The part of biases or sinks, which heads have by themselves, of a part of the heads."""
    if of_heads is None or of_heads.dim() < -dimension or of_heads.shape[dimension] == 1:
        return of_heads
    return own_part(of_heads, dimension, devices, CollectiveGroup.CONTEXT)


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
