"""Layers of one graph of which some are recomputed: their seconds and sizes, and what stages of
them add up to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from operator import add

import numpy as np
from numpy.typing import NDArray

from Estimator.pass_parts import PassParts
from Estimator.plans.layer_costs import LayerCosts, LayerSizes, PassCosts, summed_parts
from Estimator.plans.stage_totals import time_columns
from GraphExtractor.graph import Recompute
from phaze_common.recompute_modules import Recomputation

FloatArray = NDArray[np.float64]
Members = NDArray[np.bool_]

# sizes that recomputation changes
OF_MODE = ("saved_bytes", "workspace_bytes", "repeated_flops", "recomputed_flops")


@dataclass(frozen=True, eq=False)
class RecomputableLayers:
    """What layers of a graph cost: ``stored`` as they are, ``recomputing`` with its mode."""

    stored: LayerCosts
    recomputing: LayerCosts
    configuration: int = 0

    @property
    def mode(self) -> Recomputation:
        """What is recomputed of a layer that is."""
        return self.recomputing.mode

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return len(self.stored.sizes.sequence)

    @cached_property
    def stored_columns(self) -> FloatArray:
        """Columns of ``StageTimes`` of every layer that is not recomputed, shape (layers, 19)."""
        return time_columns(self.stored, self.configuration)

    @cached_property
    def recomputing_columns(self) -> FloatArray:
        """The same of every layer that is."""
        return time_columns(self.recomputing, self.configuration)

    def columns(self, recomputed: Members) -> FloatArray:
        """The same where the layers ``recomputed`` (layers,) are."""
        return np.where(recomputed[:, None], self.recomputing_columns, self.stored_columns)

    def sizes(self, recomputed: Members) -> LayerSizes:
        """Sizes where the layers ``recomputed`` (layers,) are, each layer as a distinct one."""
        stored, other = self.stored.sizes, self.recomputing.sizes
        if not recomputed.any() or stored is other:
            return stored
        if recomputed.all():
            return other
        names = ("parameters", "expert_parameters", "wide_parameters", "tied_parameters")
        own = {name: getattr(stored, name)[stored.distinct] for name in names}
        mixed = {
            name: np.where(
                recomputed,
                getattr(other, name)[other.distinct],
                getattr(stored, name)[stored.distinct],
            )
            for name in OF_MODE
        }
        return replace(
            stored,
            sequence=tuple(range(self.layers)),
            **own,
            **mixed,
            shared_by=np.where(recomputed[:, None], other.shared_by, stored.shared_by),
            forward_flops=stored.forward_flops[stored.distinct],
            masked_flops=stored.masked_flops[stored.distinct],
            computed_flops=stored.computed_flops[stored.distinct],
            tables=stored.tables[stored.distinct],
            matrices_s=stored.matrices_s[stored.distinct],
        )

    def parts(
        self, layers: tuple[int, ...], recomputed: Members, straggler_excess: float
    ) -> tuple[PassParts, PassParts, PassParts]:
        """Forward, what is recomputed, and backward, of a micro-batch on ``layers``, by cause."""
        stored = [layer for layer in layers if not recomputed[layer]]
        others = [layer for layer in layers if recomputed[layer]]

        def part(costs: LayerCosts, name: str, chosen: list[int]) -> PassParts:
            distinct = costs.sizes.distinct[chosen]
            passes: PassCosts = getattr(costs, name)
            return summed_parts(passes, self.configuration, distinct, straggler_excess)

        def summed(name: str) -> PassParts:
            ours, theirs = part(self.stored, name, stored), part(self.recomputing, name, others)
            return PassParts(*map(add, vars(ours).values(), vars(theirs).values()))

        return summed("forward"), summed("recompute"), summed("backward")

    def first_of(self, layers: tuple[int, ...], count: int | None) -> Members:
        """Which layers are recomputed where a stage recomputes its first ``count`` or all."""
        recomputed = np.zeros(self.layers, np.bool_)
        recomputed[list(layers[:count])] = self.mode is not Recompute.NONE
        return recomputed
