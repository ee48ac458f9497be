"""What each mode does: search, sweep, explain, robust, limits, training time."""
