"""The page of many points, of sweeps or runs: curves, bars, heat maps, fronts, a table, and the
best in sentences."""
