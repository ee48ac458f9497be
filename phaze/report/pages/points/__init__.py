"""The page of many points: curves, bars, heat maps, fronts, a table, and the best in sentences."""
