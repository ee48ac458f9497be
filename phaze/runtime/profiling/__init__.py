"""Profiles of the machine at hand: every distinct operator of training graphs, exchanges between
processes, whole passes."""
