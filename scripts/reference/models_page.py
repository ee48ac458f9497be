"""docs/reference/models.md: every listed model with its sizes, what a forward pass takes, and where
the sizes are from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.reference.markdown import plain, table

if TYPE_CHECKING:
    from GraphExtractor.graph import GraphKey, ModelGraph
    from GraphExtractor.models.base import ModelFamily

HEAD = """# Listed models

The {count} models that `--model` takes by name (`phaze models` prints them, `phaze list models` their names). Other models
are given by [dimensions, a configuration or a file of your own](../models.md).

- **Parameters** are those of the traced model, tied ones counted once and the vocabulary not padded; **active** are those
  that a token meets where there are experts.
- **GFLOP** are floating-point operations of the matrix products of one forward pass at the stated sequence length, two per
  multiply-accumulate, all scores of attention counted, the vocabulary padded to a multiple of 128: the sum over the
  operators of the traced graph (`--attention flash`, micro-batch 1, tp 1). A training step takes three times as many,
  without recomputation.
- **tp** are the tensor parallel widths that divide heads, key/value heads and feed-forward columns; `1` alone where the
  family has no tensor parallel plan.
- **Layers** are repeated blocks, of encoder and decoder together; embedding and head are layers besides.

`scripts/reference_pages.py models` writes this page; it traces every model.
"""
HEADS = (
    "model",
    "parameters",
    "active",
    "layers",
    "hidden",
    "sequence",
    "GFLOP per sample",
    "GFLOP per token",
    "tp",
    "sizes from",
)


@dataclass(frozen=True)
class ModelFacts:
    """What a trace tells of a model: ``forward_flops`` are those of a sample."""

    parameters: int
    forward_flops: int


def facts(graph: ModelGraph) -> ModelFacts:
    """The facts of a graph of micro-batch 1 and tp 1."""
    flops = [sum(operator.flops for operator in layer.forward.operators) for layer in graph.layers]
    return ModelFacts(graph.total_parameter_count, sum(flops[index] for index in graph.sequence))


def graph_key(name: str) -> GraphKey:
    """What is traced of a model."""
    from GraphExtractor.graph import GraphKey
    from GraphExtractor.models.registry import find_model

    return GraphKey(name, 1, find_model(name).sequence_length, 1)


def page(folder: Path) -> str:
    """The page; graphs are kept in ``folder``."""
    from GraphExtractor.models.registry import listed_models
    from GraphExtractor.storage import load_or_extract

    return page_of(
        lambda name: facts(load_or_extract(graph_key(name), folder)), len(listed_models())
    )


def page_of(facts_of: Callable[[str], ModelFacts], count: int) -> str:
    """The page with the facts of each model."""
    from GraphExtractor.models.registry import listed_models

    parts = [HEAD.format(count=count)]
    for family in dict.fromkeys(map(type, listed_models().values())):
        rows = [
            row(name, each, facts_of(name))
            for name, each in listed_models().items()
            if type(each) is family
        ]
        parts.append(f"\n## {family.__name__}\n\n{_what(family)}\n\n{table(HEADS, rows)}")
    return "".join(parts)


def row(name: str, family: ModelFamily, traced: ModelFacts) -> tuple[str, ...]:
    """The row of a model."""
    from GraphExtractor.models.registry import listed_aliases
    from GraphExtractor.widths import allowed_widths

    others = "".join(f", `{alias}`" for alias, model in listed_aliases().items() if model == name)
    length = family.sequence_length if family.has_sequence else 0
    return (
        f"`{name}`{others}",
        f"{traced.parameters:,}",
        f"{family.published_active_count:,}" if family.published_active_count else "all",
        f"{family.layers}",
        str(getattr(family, "hidden", "")),
        f"{length:,}" if length else "",
        f"{traced.forward_flops / 1e9:,.3f}",
        f"{traced.forward_flops / length / 1e9:,.4f}" if length else "",
        ", ".join(map(str, allowed_widths(family))),
        plain(family.source),
    )


def _what(family: type[ModelFamily]) -> str:
    return plain((family.__doc__ or "").partition("\n\n")[0])
