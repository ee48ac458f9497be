"""Layers of one graph of which some are recomputed: their seconds and sizes, and what stages of
them add up to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from Estimator.pass_parts import PassParts
from Estimator.plans.layer_costs import LayerCosts, LayerSizes, summed_parts
from Estimator.plans.stage_totals import time_columns
from GraphExtractor.graph import Recompute

FloatArray = NDArray[np.float64]
Members = NDArray[np.bool_]

OF_MODE = (
    "saved_bytes",
    "workspace_bytes",
    "repeated_flops",
    "recomputed_flops",
)  # sizes that recomputation changes


@dataclass(frozen=True, eq=False)
class RecomputableLayers:
    """What the layers of one graph cost on one ``configuration``: ``kept`` without recomputation,
    ``again`` with a mode of it."""

    kept: LayerCosts
    again: LayerCosts
    configuration: int = 0

    @property
    def mode(self) -> Recompute:
        """What is recomputed of a layer that is."""
        return self.again.mode

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return len(self.kept.sizes.sequence)

    @cached_property
    def kept_columns(self) -> FloatArray:
        """Columns of ``StageTimes`` of every layer that is not recomputed, shape (layers, 16)."""
        return time_columns(self.kept, self.configuration)

    @cached_property
    def again_columns(self) -> FloatArray:
        """The same of every layer that is."""
        return time_columns(self.again, self.configuration)

    def columns(self, recomputed: Members) -> FloatArray:
        """The same where the layers ``recomputed`` (layers,) are."""
        return np.where(recomputed[:, None], self.again_columns, self.kept_columns)

    def sizes(self, recomputed: Members) -> LayerSizes:
        """Sizes where the layers ``recomputed`` (layers,) are, each layer as a distinct one."""
        kept, again = self.kept.sizes, self.again.sizes
        if not recomputed.any() or kept is again:
            return kept
        if recomputed.all():
            return again
        names = ("parameters", "expert_parameters", "wide_parameters", "tied_parameters")
        own = {name: getattr(kept, name)[kept.distinct] for name in names}
        mixed = {
            name: np.where(
                recomputed, getattr(again, name)[again.distinct], getattr(kept, name)[kept.distinct]
            )
            for name in OF_MODE
        }
        return replace(
            kept,
            sequence=tuple(range(self.layers)),
            **own,
            **mixed,
            shared_by=np.where(recomputed[:, None], again.shared_by, kept.shared_by),
            forward_flops=kept.forward_flops[kept.distinct],
            masked_flops=kept.masked_flops[kept.distinct],
            computed_flops=kept.computed_flops[kept.distinct],
            tables=kept.tables[kept.distinct],
        )

    def parts(
        self, layers: tuple[int, ...], recomputed: Members, straggler_excess: float
    ) -> tuple[PassParts, PassParts, PassParts]:
        """Forward, what is recomputed, and backward, of a micro-batch on ``layers``, by cause."""

        def summed(name: str) -> PassParts:
            of_kept, of_again = (
                summed_parts(
                    getattr(costs, name),
                    self.configuration,
                    [costs.sizes.sequence[layer] for layer in chosen],
                    straggler_excess,
                )
                for costs, chosen in (
                    (self.kept, [layer for layer in layers if not recomputed[layer]]),
                    (self.again, [layer for layer in layers if recomputed[layer]]),
                )
            )
            return PassParts(
                **{
                    field: getattr(of_kept, field) + getattr(of_again, field)
                    for field in vars(of_kept)
                }
            )

        return summed("forward"), summed("recompute"), summed("backward")

    def first_of(self, layers: tuple[int, ...], count: int | None) -> Members:
        """Which layers are recomputed where a stage recomputes its first ``count`` or all."""
        recomputed = np.zeros(self.layers, np.bool_)
        recomputed[list(layers[:count])] = self.mode is not Recompute.NONE
        return recomputed
