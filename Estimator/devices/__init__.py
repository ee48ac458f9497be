"""Chips that exist, as operator cost models: what a device is, and what an operator costs on it."""
