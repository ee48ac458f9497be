"""Weights of a stage in one flat tensor per process, with values that depend on nothing but their
names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from phaze.runtime.training.divided_weights import Division

WIDTH = 0.02  # standard deviation of matrices (Radford et al. 2019's released code)


@dataclass(frozen=True)
class Weight:
    """A parameter of the model as one process holds it, and how that is a part of the whole (None:
    it is all of it)."""

    name: str
    whole: torch.Size
    part: torch.Size
    division: Division | None


@dataclass(frozen=True)
class FlatWeights:
    """Weights and their gradients, one behind the other and padded so that replicas can divide
    them.

    ``parameters`` are views of ``values`` that gradients are taken of; these are added up in
    ``gradients``.
    """

    weights: tuple[Weight, ...]
    values: torch.Tensor
    gradients: torch.Tensor
    parameters: Mapping[str, torch.Tensor]
    places: Mapping[str, range]

    def gradient(self, name: str) -> torch.Tensor:
        """The gradient of one parameter, flat."""
        place = self.places[name]
        return self.gradients[place.start : place.stop]


def initial(weight: Weight, seed: int, dtype: torch.dtype, parts: int, index: int) -> torch.Tensor:
    """The first values of a weight's part: drawn by its name, so that every layout starts alike."""
    digest = hashlib.blake2b(f"{seed}:{weight.name}".encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "big"))
    fan_in = weight.whole[1:].numel() if len(weight.whole) > 2 else 0
    drawn = torch.randn(weight.whole, generator=generator, dtype=torch.float64) * (
        fan_in**-0.5 if fan_in else WIDTH
    )
    if len(weight.whole) < 2 and weight.name.endswith("weight"):  # of norms
        drawn += 1.0
    return (drawn if weight.division is None else weight.division.part(drawn, parts, index)).to(
        dtype
    )


def flat_weights(
    weights: tuple[Weight, ...],
    seed: int,
    dtype: torch.dtype,
    parts: int,
    index: int,
    replicas: int,
) -> FlatWeights:
    """The weights of one process of ``parts``, padded to a multiple of ``replicas``."""
    places, end = {}, 0
    for weight in weights:
        places[weight.name] = range(end, end + weight.part.numel())
        end += weight.part.numel()
    size = -(-max(end, 1) // replicas) * replicas
    values, gradients = torch.zeros(size, dtype=dtype), torch.zeros(size, dtype=dtype)
    parameters = {}
    for weight in weights:
        place = places[weight.name]
        values[place.start : place.stop] = initial(weight, seed, dtype, parts, index).flatten()
        view = values[place.start : place.stop].view(weight.part).detach().requires_grad_()
        view.grad = gradients[place.start : place.stop].view(weight.part)
        parameters[weight.name] = view
    return FlatWeights(weights, values, gradients, parameters, places)
