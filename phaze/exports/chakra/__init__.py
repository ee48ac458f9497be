"""Chakra execution traces of an iteration, and the files with which ASTRA-sim simulates them."""
