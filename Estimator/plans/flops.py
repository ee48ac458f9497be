"""FLOPs of an iteration by what is counted, and the utilisation of the hardware that follows.

A model's FLOPs are three times those of its forward pass, without the scores of attention that its
mask leaves out (Dao 2023, section 4.1): what a kernel that skips them computes too, so that no
utilisation is above one. They do not depend on how the model is divided: neither padding nor what
all devices of a tensor-parallel group compute alike counts (``GraphExtractor.model_work``). Papers
also count all scores, as if attention were not causal (Chowdhery et al. 2022, appendix B;
Korthikanti et al. 2022, appendix A), which stands beside it; hardware that skips them may reach
more of those than its peak. Hardware FLOPs are what is computed: with what recomputation repeats,
with padding and what devices compute alike, and with masked scores where separate products compute
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add

from Estimator.plans.layer_costs import IntArray, LayerSizes
from phaze_common.errors import DefectError

TERA = 1e12
ROUNDING = 1e-9


@dataclass(frozen=True)
class FlopRates:
    """FLOP/s per device and as parts of its peak, named as in ``Iteration``."""

    model_tflops_per_device: float
    all_scores_tflops_per_device: float
    hardware_tflops_per_device: float
    model_flops_utilization: float
    all_scores_flops_utilization: float
    hardware_flops_utilization: float


@dataclass(frozen=True)
class TrainedFlops:
    """FLOPs of an iteration: the model's, these with all scores, and those computed."""

    model: float = 0.0
    all_scores: float = 0.0
    computed: float = 0.0

    def __add__(self, other: TrainedFlops) -> TrainedFlops:
        return TrainedFlops(*map(add, vars(self).values(), vars(other).values()))

    def rates(self, device_s: float, peak_flops: float) -> FlopRates:
        """FLOP/s per device, of whose seconds there were ``device_s`` in all, and as parts of the
        peak of one.

        Raises:
            DefectError: more was computed than the peak allows.
        """
        return FlopRates(
            model_tflops_per_device=self.model / device_s / TERA,
            all_scores_tflops_per_device=self.all_scores / device_s / TERA,
            hardware_tflops_per_device=self.computed / device_s / TERA,
            model_flops_utilization=utilization(self.model, device_s * peak_flops),
            all_scores_flops_utilization=self.all_scores / (device_s * peak_flops),
            hardware_flops_utilization=utilization(self.computed, device_s * peak_flops),
        )


def trained_flops(sizes: LayerSizes, layers: Sequence[int] | IntArray, runs: float) -> TrainedFlops:
    """Of ``layers``, places among the distinct ones, on devices that run a micro-batch ``runs``
    times in all."""
    distinct = list(layers)
    forward = float(sizes.forward_flops[distinct].sum()) * runs
    masked = float(sizes.masked_flops[distinct].sum()) * runs
    computed = float((3.0 * sizes.computed_flops + sizes.recomputed_flops)[distinct].sum()) * runs
    return TrainedFlops(3.0 * (forward - masked), 3.0 * forward, computed)


def utilization(flops: float, peak: float) -> float:
    """``flops`` as a part of what was possible, ``peak``.

    Raises:
        DefectError: they are more.
    """
    part = flops / peak
    if not part <= 1.0 + ROUNDING:
        raise DefectError(
            f"a utilisation comes out as {part:.4%} of the peak, which nothing can reach: some "
            "operator was priced below its arithmetic"
        )
    return min(part, 1.0)
