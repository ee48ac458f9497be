"""Hugging Face's Trainer: its arguments, written and read."""
