"""Pipeline schedules (GPipe, 1F1B, interleaved 1F1B) of unequal stages: exact times, and what
stages hold."""
