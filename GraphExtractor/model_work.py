"""What part of the work of a traced device is the model's, of the work of all devices.

FLOPs of a model are those of its own matrix products (Chowdhery et al. 2022, appendix B). A product
that tensor parallelism leaves whole (a router, the down-projections of latent attention) runs on
every device of the group, once of which is the model's; rows that fill up the vocabulary, or what
experts get, are none of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch

import torch
from torch.fx import Node

from GraphExtractor.custom_operators import OWN_PART
from GraphExtractor.graph import CollectiveGroup
from GraphExtractor.models.base import TensorParallelPlan

# of the tensor-parallel group
_MAKES_ALIKE = ("all_reduce", "all_gather", "all_gather_rows", "all_gather_columns")
_MAKES_PARTS = ("reduce_scatter", "reduce_scatter_rows", "reduce_scatter_columns")


@dataclass(frozen=True)
class Division:
    """How the parameters of a traced device differ from the model's.

    By name: those that the ``tp`` devices of its group have parts of, and the ``padded`` tables, of
    whose rows ``words`` is the part that the model has.
    """

    tp: int = 1
    divided: frozenset[str] = field(default_factory=frozenset)
    padded: frozenset[str] = field(default_factory=frozenset)
    words: float = 1.0


WHOLE = Division()


def padded_tables(
    parameters: Iterable[tuple[str, torch.Tensor]], plan: TensorParallelPlan, padded: int
) -> frozenset[str]:
    """Names of the whole model's ``parameters`` with a row for each of ``padded`` words (0: none).

    They are those of the embedding and the head where a ``plan`` names these: any matrix may have
    as many rows.
    """
    if not padded:
        return frozenset()
    ends = {plan.head, plan.head.rpartition(".")[0]} - {""}

    def of_words(name: str) -> bool:
        module = name.rpartition(".")[0]
        return not plan.embedding or fnmatch(module, plan.embedding) or module in ends

    return frozenset(
        name for name, parameter in parameters if padded in parameter.shape and of_words(name)
    )


def division_of(
    whole: Mapping[str, int],
    parts: Iterable[tuple[str, torch.Tensor]],
    tp: int,
    tables: frozenset[str],
    words: float,
) -> Division:
    """The division of parameters of ``whole`` elements, of which a device has ``parts``."""
    divided = frozenset(name for name, parameter in parts if whole.get(name) != parameter.numel())
    return Division(tp, divided, tables, words)


def model_shares(
    graph: torch.fx.Graph, parameters: Mapping[Node, str], division: Division
) -> Mapping[Node, float]:
    """Part of the work of every node that is the model's, where those of the group are added up.

    A node differs from device to device where anything that it reads does: parts of parameters, own
    parts of tensors, sums that nobody has taken yet. Of one token that is picked out of parts of a
    sequence a single device has it.
    """
    differs: dict[Node, bool] = {}
    filled: dict[Node, float] = {}  # part of the rows of a tensor that tokens fill
    shares: dict[Node, float] = {}
    tables: dict[Node, bool] = {}  # whether it is a padded table, transposed or otherwise seen
    names = {node: _name(node) for node in graph.nodes}
    sequence_parallel = "reduce_scatter" in names.values()
    for node, name in names.items():
        sources, parameter = node.all_input_nodes, parameters.get(node)
        own = name in _MAKES_PARTS or _is_own_part(node) or parameter in division.divided
        read = any(differs[each] for each in sources)
        alike = name in _MAKES_ALIKE or _picks_token(node, name, sequence_parallel)
        differs[node] = own or (read and not alike)
        filled[node] = _filled(node, name, filled)
        seen = getattr(node.target, "is_view", False) and sources
        tables[node] = tables[sources[0]] if seen else parameter in division.padded
        padded = any(tables[each] for each in sources)
        copies = 1.0 if differs[node] else 1.0 / division.tp
        shares[node] = filled[node] * (division.words if padded else 1.0) * copies
    return shares


def _filled(node: Node, name: str, filled: Mapping[Node, float]) -> float:
    """Rows for experts are filled up to as many for each, until they are summed by tokens."""
    if name == "gather_rows":
        index = node.args[1]
        while _name(index) != "constant_pad_nd" and index.all_input_nodes:
            index = index.all_input_nodes[0]
        if not index.all_input_nodes:
            return 1.0
        return float(index.args[0].meta["val"].numel() / index.meta["val"].numel())
    if name == "sum_rows":
        return 1.0
    return min((filled[each] for each in node.all_input_nodes), default=1.0)


def _picks_token(node: Node, name: str, sequence_parallel: bool) -> bool:
    """Whether it is one position of (batch, sequence, hidden), whose sequence is in parts."""
    if name != "select" or not sequence_parallel:
        return False
    return node.args[0].meta["val"].dim() == 3 and node.args[1] in (1, -2)


def _name(node: Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else str(schema.name).split("::")[1]


def _is_own_part(node: Node) -> bool:
    """Whether it is another slice on each device: as our code notes it, or a derived division."""
    noted = node.meta.get("custom", {}).get(OWN_PART)
    return noted == CollectiveGroup.TENSOR.value or bool(node.meta.get(OWN_PART))
