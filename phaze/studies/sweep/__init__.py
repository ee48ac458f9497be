"""A study for every combination of the values it lists: points found by their content, computed
once, gathered in one table."""
