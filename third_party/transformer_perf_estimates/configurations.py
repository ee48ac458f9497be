"""Questions and configurations: which training, and how it is spread over the GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

import numpy as np

from phaze_common.array_types import FloatArray, IntArray

from .models import TransformerModel
from .systems import System

# That our own search compares unless others are given: each needs training graphs of its own.
MICRO_BATCH_SIZES = (1, 2, 4)


class Strategy(StrEnum):
    """How the tensors of a layer lie over the tensor parallel GPUs."""

    ONE_D = "1d"
    """Column and row parallel products over tp1; tokens split between them. tp2 is 1."""
    SEQUENCE = "seqp"
    """As 1D over tp1, and tokens split over tp2 throughout, with weights held by all of tp2."""
    TWO_D = "2d"
    """SUMMA products over tp1 x tp2."""


@dataclass(frozen=True)
class Training:
    """What is trained on what: a question of transformer-perf-estimates without its answer."""

    strategy: Strategy
    model: TransformerModel
    system: System
    nvlink_size: int  # GPUs of a fast domain
    gpus: int
    global_batch: int  # sequences


@dataclass(frozen=True)
class Configuration:
    """Degrees, micro-batch (sequences), SUMMA panels, and how many GPUs of each degree share a fast
    domain (``nv_``)."""

    tp1: int
    tp2: int
    pp: int
    dp: int
    micro_batch: int
    panels: int
    nv_tp1: int
    nv_tp2: int
    nv_pp: int
    nv_dp: int

    @property
    def tp(self) -> int:
        """Tensor parallel GPUs."""
        return self.tp1 * self.tp2


@dataclass(frozen=True, eq=False)
class LayerLayouts:
    """Layouts of one layer for one micro-batch, on which nothing but time between layers depends;
    arrays (layouts,)."""

    tp1: IntArray
    tp2: IntArray
    micro_batch: IntArray
    panels: IntArray
    nv_tp1: IntArray
    nv_tp2: IntArray

    def __len__(self) -> int:
        return len(self.tp1)


OF_LAYER = tuple(each.name for each in fields(LayerLayouts))
AROUND = ("pp", "dp", "nv_pp", "nv_dp")


@dataclass(frozen=True, eq=False)
class Configurations:
    """Many configurations: each a layout of its layers, by its place in ``layouts``, and what is
    around it; (configurations,)."""

    layouts: LayerLayouts
    layout: IntArray
    pp: IntArray
    dp: IntArray
    nv_pp: IntArray
    nv_dp: IntArray

    def __len__(self) -> int:
        return len(self.layout)

    def at(self, place: int) -> Configuration:
        """One of them."""
        layouts, layout = self.layouts, self.layout[place]
        of_layer = {name: int(getattr(layouts, name)[layout]) for name in OF_LAYER}
        return Configuration(
            **of_layer, **{name: int(getattr(self, name)[place]) for name in AROUND}
        )

    @staticmethod
    def of(given: Sequence[Configuration]) -> "Configurations":
        """Configurations one by one as arrays."""

        def column(name: str) -> IntArray:
            return np.array([getattr(each, name) for each in given], dtype=np.int64)

        layouts = LayerLayouts(**{name: column(name) for name in OF_LAYER})
        around = {name: column(name) for name in AROUND}
        return Configurations(layouts, np.arange(len(given)), **around)


def floats(values: IntArray) -> FloatArray:
    """As floating-point numbers."""
    return values.astype(np.float64)
