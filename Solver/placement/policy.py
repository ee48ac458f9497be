"""Optimizers: bytes per parameter and traffic of a step."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from Common.records import read_yaml, to_record
from Solver.placement.problem import TrainingPolicy


@cache  # of the file that ships; a search asks for every plan
def training_policy(optimizer: str, zero_stage: int) -> TrainingPolicy:
    """The entry of ``optimizer`` in ``policies.yaml``, sharded as ``zero_stage`` says."""
    path = Path(__file__).with_name("policies.yaml")
    entry = {**read_yaml(path)[optimizer], "optimizer": optimizer, "zero_stage": zero_stage}
    return to_record(TrainingPolicy, entry, f"{path} ({optimizer})")
