"""Sizes in bytes of the units that people write."""

from __future__ import annotations

MIB = 2**20
GIB = 2**30
GB = 1e9
