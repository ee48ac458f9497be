"""Plans whose stages differ in devices, degrees, recomputation and sharding: what they are, and
what an iteration costs."""
