"""The fuzzer behind ``scripts/fuzz.py``: base inputs, their mutations, a fork server that runs
them, and what it judges."""
