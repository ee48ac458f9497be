"""NeMo and Megatron Bridge: configurations, read, and recipes of the latter, written."""
