"""Megatron-LM: launch scripts, written and read."""
