"""DeepSpeed: configurations, written and read."""
