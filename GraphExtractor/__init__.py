"""Models to training graphs. Knows torch; knows no hardware."""
