"""Pages of trained plans: what was measured beside what was predicted, and the machine that was
profiled."""
