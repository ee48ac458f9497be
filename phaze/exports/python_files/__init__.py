"""Configurations in Python, read without running them: the values of names and calls."""
