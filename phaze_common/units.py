"""Sizes in bytes of the units that people write."""

MIB = 2**20
GIB = 2**30
GB = 1e9
