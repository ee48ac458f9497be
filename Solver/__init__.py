"""Schedules operators on cores, places layers on devices, searches. Knows no torch."""
