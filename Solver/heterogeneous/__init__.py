"""The search for plans whose stages differ in devices, degrees, micro-batch size, recomputation and
sharding, with a bound."""
