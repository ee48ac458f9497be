"""The run directory: what a run writes, and the reader of it."""
