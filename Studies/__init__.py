"""What is asked and what a run leaves: requests, run directories, sweeps, explanations, the
library."""
