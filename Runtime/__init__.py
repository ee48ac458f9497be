"""What runs for real: layers that are measured, and plans that are trained."""
