"""A 2D layout by construction: parameters and activations over ``tp`` columns and ``tp2`` rows.

Between operators a device has (batch, sequence/(tp2·cp), hidden/tp): products run in panels
and norms with a small all-reduce (``divided_operators``), attention on the heads of its
column, its keys and values exchanged with all devices of that column that share the sequence,
dropout and residuals on what is there. What is learned by column alone (norms, biases, positions)
is the same on all rows. Xu & You (Optimus, arXiv 2104.05343) divide transformers so; that the
sequence lies along the rows, and attention with it, is the 2D layout of arXiv 2410.00273.
"""

from fnmatch import fnmatch
from typing import Any

import torch
from torch.nn import functional

from GraphExtractor.custom_operators import FusedRmsNorm, communicate, define_collective
from GraphExtractor.divided_operators import DividedNorm, SummaLinear
from GraphExtractor.graph import GraphKey
from GraphExtractor.models.base import TensorParallelPlan
from GraphExtractor.tensor_parallel import DividedParameters, ShardsItself, divide_widths
from phaze_common.errors import PhazeError

_gather_ids = define_collective("gather_ids", grows=-1)
_reduce_scatter_columns = define_collective("reduce_scatter_columns", shrinks=-1)
_all_gather_columns = define_collective("all_gather_columns", grows=-1)
# tokens of all rows with a part of the columns, for the row's own tokens with all columns of the
# device's column; and back
_tokens_for_columns = define_collective("all_to_all_columns", grows=-1, shrinks=-2)
_columns_for_tokens = define_collective("all_to_all_tokens", grows=-2, shrinks=-1)


class DividedEmbedding(torch.nn.Module):  # type: ignore[misc]
    """Lookup in a table of (vocabulary/tp, hidden/tp2), as the tied head's product needs it.

    A device looks up the tokens of all rows in its part (ids of other parts give zeros). The parts
    of the vocabulary are summed over the columns while hidden is scattered among them; then rows
    exchange tokens for hidden. Backward the same, reversed, so that the table's gradient is that of
    the tokens of all rows.
    """

    def __init__(self, weight: torch.nn.Parameter, tp: int, tp2: int) -> None:
        super().__init__()
        self.weight, self.tp, self.tp2 = weight, tp, tp2

    def forward(self, ids: torch.Tensor) -> Any:
        """Ids (batch, tokens of the row) to (batch, tokens of the row, hidden/tp)."""
        x = functional.embedding(_gather_ids(ids, self.tp2) if self.tp2 > 1 else ids, self.weight)
        if self.tp > 1:
            x = communicate(self.tp, _reduce_scatter_columns, _all_gather_columns, x)
        if self.tp2 > 1:
            x = communicate(self.tp2, _tokens_for_columns, _columns_for_tokens, x)
        return x


def shard_twice(
    model: torch.nn.Module, plan: TensorParallelPlan, hidden: int, key: GraphKey
) -> None:
    """Shrink ``model``, with ``hidden`` columns between blocks, in place; call under its fake mode.

    Raises: PhazeError: a module has parameters that nobody knows how to divide.
    """
    parts = DividedParameters(key.tp)
    for module in list(model.modules()):
        if isinstance(module, ShardsItself):
            module.shard(key)
    for path, module in list(model.named_modules()):
        replacement = _part_of(path, module, plan, hidden, key, parts)
        if replacement is not None:
            model.set_submodule(path, replacement)
        divide_widths(path, module, plan, key.tp)
    parts.retie(model)


def _part_of(
    path: str,
    module: torch.nn.Module,
    plan: TensorParallelPlan,
    hidden: int,
    key: GraphKey,
    parts: DividedParameters,
) -> torch.nn.Module | None:
    """What takes the place of a module; None where it stays, parts of its parameters aside."""
    tp, tp2 = key.tp, key.tp2

    def vector(parameter: torch.nn.Parameter | None) -> torch.nn.Parameter | None:
        return None if parameter is None else parts.of(parameter, tp)

    if isinstance(module, torch.nn.Embedding):
        if fnmatch(path, plan.embedding):
            return DividedEmbedding(parts.of(module.weight, tp, tp2), tp, tp2)
        module.weight = parts.of(module.weight, 1, tp)
        return None
    if isinstance(module, torch.nn.LayerNorm | FusedRmsNorm):
        if module.weight.numel() != hidden or tp == 1:
            return None  # of heads, which are whole on a device
        centred = isinstance(module, torch.nn.LayerNorm)
        bias = vector(module.bias) if centred else None
        epsilon = module.eps if centred else module.epsilon
        return DividedNorm(parts.of(module.weight, tp), bias, tp, epsilon, centred=centred)
    if type(module).__name__ == "Conv1D":  # GPT-2's, which keeps (in, out)
        weight = parts.of(module.weight, tp2, tp).t().contiguous()
        return SummaLinear(torch.nn.Parameter(weight), vector(module.bias), tp, tp2)
    if isinstance(module, torch.nn.Linear):
        return SummaLinear(parts.of(module.weight, tp, tp2), vector(module.bias), tp, tp2)
    if any(True for _ in module.parameters(recurse=False)):
        raise PhazeError(
            f"{path} has parameters that a 2d layout does not know how to divide; give its "
            "family a way"
        )
    return None


def looks_up_tokens_of_all(node: torch.fx.Node) -> bool:
    """Whether a node looks up the tokens of all rows, in a table divided along both axes."""
    ids = node.args[1] if len(node.args) > 1 else None
    return isinstance(ids, torch.fx.Node) and ids.target is torch.ops.phaze.gather_ids.default
