"""The one place that knows what the present searches cannot do yet."""

from __future__ import annotations

CHIPS_DIVIDE_EXPERTS = False  # whether a search of accelerators tries expert parallel degrees by default
