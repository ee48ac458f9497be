"""Models to training graphs. Knows torch; knows no hardware.

``load_or_extract(GraphKey(...), folder)`` is the way in; torch is only imported where something must be traced.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from GraphExtractor.storage import load_or_extract

__all__ = ["load_or_extract"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from GraphExtractor.storage import load_or_extract

    return load_or_extract
