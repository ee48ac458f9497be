"""Whether the best design survives what is not known exactly."""
