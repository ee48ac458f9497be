"""torchtitan: configurations, written and read."""
