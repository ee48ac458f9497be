"""Pages of trained plans: measured beside predicted, and the machine that was profiled."""
