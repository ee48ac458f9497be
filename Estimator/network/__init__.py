"""Clusters as tiers of links, and seconds of transfers and collectives on them."""
