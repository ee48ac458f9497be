"""Exact placement of a model's layers on the devices of a cluster."""
