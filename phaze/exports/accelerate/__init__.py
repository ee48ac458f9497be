"""accelerate: configurations, written and read."""
