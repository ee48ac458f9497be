"""One tower that both inputs go through."""

import towers
from towers import Tower, Towers, loss

__all__ = ["build", "example_inputs", "loss"]


def example_inputs(micro_batch_size, sequence_length=16):
    return towers.example_inputs(micro_batch_size, sequence_length)


def build():
    tower = Tower(64, 6)
    return Towers(tower, tower)
