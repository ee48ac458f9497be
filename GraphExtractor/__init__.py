"""Models to training graphs. Knows torch; knows no hardware.

``load_or_extract(GraphKey(...), folder)`` is the way in; torch is only imported where something must be traced.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from GraphExtractor.check import check_invariants, check_structure
    from GraphExtractor.depth import with_layers
    from GraphExtractor.extract import extract_graph
    from GraphExtractor.graph import GraphKey, ModelGraph
    from GraphExtractor.models.registry import canonical_name, find_model
    from GraphExtractor.storage import graph_path, load, load_or_extract, store
    from GraphExtractor.widths import allowed_widths, check_key

_HOMES = {
    "check_invariants": "check",
    "check_structure": "check",
    "with_layers": "depth",
    "extract_graph": "extract",
    "GraphKey": "graph",
    "ModelGraph": "graph",
    "canonical_name": "models.registry",
    "find_model": "models.registry",
    "graph_path": "storage",
    "load": "storage",
    "load_or_extract": "storage",
    "store": "storage",
    "allowed_widths": "widths",
    "check_key": "widths",
}

__all__ = [
    "GraphKey",
    "ModelGraph",
    "allowed_widths",
    "canonical_name",
    "check_invariants",
    "check_key",
    "check_structure",
    "extract_graph",
    "find_model",
    "graph_path",
    "load",
    "load_or_extract",
    "store",
    "with_layers",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
