"""Models that users bring: a module in a Python file of theirs, or a Hugging Face configuration."""
