"""The best training plan on hardware that is given: degrees, batch, recomputation, sharding,
interleaving and stages."""
