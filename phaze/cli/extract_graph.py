"""``phaze extract_graph``: the training graphs of a study, and what is in them."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from phaze.cli import mode, study
from phaze.cli.exit_status import DONE
from phaze.cli.printing import print_rows

if TYPE_CHECKING:
    from GraphExtractor.graph import ModelGraph
    from phaze.settings.request import Request

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ExtractGraph(study.StudyCommand):
    """Extract the training graphs of the models and stop."""


def run(command: ExtractGraph) -> int:
    """Extract the graphs of the study, or find them on disk, and print what is in them."""
    request = study.request_of(command)
    if command.dry_run:
        return study.print_size(request, command)
    progress = command.progress
    rows = [
        _described(graph) | _by_bytes(graph, request)
        for graph in study.graphs_of(request, progress)
    ]
    unused = () if any(row["sparse_parameters"] for row in rows) else ("sparse_parameters",)
    spared = (*unused, "saved_bytes", "distinct_layers", "operators", "tp")
    json_only = [*study.equal_columns(rows), "priced_by_bytes"]
    print_rows("training graphs, per device", rows, command, spared, json_only)
    logger.info("graphs are in %s", request.folders.graphs)
    return DONE


def _described(graph: ModelGraph) -> dict[str, object]:
    """The FLOPs are those of all products; the ``masked`` ones among them belong to scores that
    masks leave out.

    ``sparse_parameters`` are those of tables whose gradient is that of the rows that were read.
    """
    from Estimator.plans.layer_costs import layer_sizes
    from GraphExtractor.graph import Recompute
    from GraphExtractor.score_mask import masked_flops, masked_scores

    length = graph.key.sequence_length
    layers = [graph.layers[index] for index in graph.sequence]
    passes = {"forward": [each.forward for each in layers]}
    passes["backward"] = [each.backward for each in layers]
    operators = {name: [each.operators for each in mine] for name, mine in passes.items()}
    return {
        **study.graph_row(graph.key),
        "layers": len(layers),
        "distinct_layers": len(graph.layers),
        "operators": sum(len(each) for mine in operators.values() for each in mine),
        "parameters": sum(layer.parameter_count - layer.tied_count for layer in layers),
        "sparse_parameters": sum(layer.sparse_parameter_count for layer in layers),
        **{
            f"{name}_gflops": sum(each.flops for each in mine) / 1e9
            for name, mine in passes.items()
        },
        **{
            f"masked_{name}_gflops": sum(masked_flops(each, length) for each in mine) / 1e9
            for name, mine in operators.items()
        },
        "masked_scores": masked_scores(layers),
        "saved_bytes": layer_sizes(graph, Recompute.NONE).all_saved_bytes,
    }


def _by_bytes(graph: ModelGraph, request: Request) -> dict[str, object]:
    """The operators that no formula describes, with their share of the time."""
    from GraphExtractor.graph import Recompute
    from phaze.settings.problem import hardware_of

    found = hardware_of(request).by_bytes(graph, Recompute.NONE)
    return {"priced_by_bytes": [asdict(each) for each in found]}


MODE = mode.Mode(
    "extract_graph", mode.SEARCH_AND_PRICE, ExtractGraph, run, study.STUDY_USAGES, mode.OF_STUDIES
)
