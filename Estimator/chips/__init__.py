"""Chips that are designed: accelerators as arrays, their area, and what operators cost on thousands
of them at once."""
