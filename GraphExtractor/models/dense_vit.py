"""Vision transformers for dense prediction: from fields on a grid to as many, patch by patch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from GraphExtractor.graph_key import GraphKey
from GraphExtractor.models.base import (
    CrossEntropy,
    Inputs,
    ModelFamily,
    TensorParallelPlan,
    TransformerFamily,
)
from phaze_common.choices import TensorLayout

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class DenseVit(TransformerFamily):
    """A pre-LN encoder (Dosovitskiy et al. 2020) without class token and dropout, with learned
    positions.

    ``sequence_length`` counts patches of ``pixels`` numbers each (patch height x width x channels),
    which one linear layer embeds and another one predicts; the loss is the mean squared error. Both
    are whole on every device of a 1D tensor-parallel group, and divided as all others are by a 2D
    layout.
    """

    folder: ClassVar[str] = "DenseViT"
    blocks: ClassVar[tuple[str, ...]] = ("blocks",)
    divides_twice: ClassVar[bool] = True
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=("*.attention.projection", "*.mlp.up"),
        row=("*.attention.output", "*.mlp.down"),
        entrances=("*.attention", "*.mlp"),
        divided={"*.attention": ("heads",)},
    )

    pixels: int

    @property
    def summed_sizes(self) -> Mapping[str, int]:
        """See base class."""
        return {**super().summed_sizes, "pixels of a patch": self.pixels}

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class; ``attention`` is not needed where attention is torch's own function."""
        from GraphExtractor.vision_modules import DensePredictor

        patches = self.positions(key.sequence_length)
        return DensePredictor(patches, self.pixels, self.hidden, self.layers, self.heads, self.ffn)

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """A device's patches in the dtype of the model, and its fields to predict in fp32."""
        import torch

        pixels = self.pixels // (key.tp if key.layout is TensorLayout.TWO_D else 1)
        predicted = key.sequence_length // (key.tp if key.sequence_parallel else 1)
        return {
            "patches": torch.zeros(key.micro_batch_size, key.sequence_length, pixels),
            "fields": torch.zeros(key.micro_batch_size, predicted, pixels, dtype=torch.float32),
        }

    def loss(
        self, model: torch.nn.Module, inputs: Inputs, cross_entropy: CrossEntropy
    ) -> torch.Tensor:
        """Mean squared error."""
        loss: torch.Tensor = model.loss(inputs["patches"], inputs["fields"])
        return loss


# The paper gives 64,800 tokens (ERA5's 720 x 1440 grid in patches of 4 x 4), hidden 12288, 64 heads
# and 48 blocks. It counts neither the embedding nor the head; FourCastNet's authors it shares.
_ERA5_PIXELS = 20 * 4 * 4
_ERA5_SOURCE = (
    "arXiv 2410.00273; that the grid has 20 fields is our assumption, from FourCastNet "
    "(Pathak et al. 2022, table 1)"
)

MODELS: Mapping[str, ModelFamily] = {
    "vit-era5": DenseVit.sized(
        *(48, 12288, 64),
        pixels=_ERA5_PIXELS,
        sequence_length=720 // 4 * (1440 // 4),
        source=_ERA5_SOURCE,
    ),
}
