"""Measures operators and collectives on the machine at hand; trains a plan with
torch.distributed."""
