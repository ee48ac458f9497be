"""Sizes of the units that people write: in bytes, and of thousands."""

MIB = 2**20
GIB = 2**30
GB = 1e9
GIGA = 1e9
