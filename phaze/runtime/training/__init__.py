"""Training a plan with torch.distributed."""
