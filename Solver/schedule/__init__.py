"""Exact schedules of one layer's operators on the cores of one accelerator."""
