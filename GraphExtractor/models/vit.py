"""Vision Transformer: patches of an image and a class token through a pre-LN encoder, and a
classifier on the class token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from GraphExtractor.models.base import (
    CrossEntropy,
    ModelFamily,
    TensorParallelPlan,
    TransformerFamily,
)
from phaze_common.errors import InputError

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey
    from GraphExtractor.sources.config_values import ConfigValues


@dataclass(frozen=True, kw_only=True)
class Vit(TransformerFamily):
    """ViTForImageClassification (Dosovitskiy et al. 2020), without dropout.

    ``sequence_length`` is the patches of a square image and the class token, so that it is a square
    and one; the position table is as long. The patch embedding and the classifier are whole on
    every device of a tensor-parallel group.
    """

    folder: ClassVar[str] = "ViT"
    model_type: ClassVar[str] = "vit"
    blocks: ClassVar[tuple[str, ...]] = ("vit.layers",)
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=("*.attention.q_proj", "*.attention.k_proj", "*.attention.v_proj", "*.mlp.fc1"),
        row=("*.attention.o_proj", "*.mlp.fc2"),
        entrances=("*.attention", "*.mlp"),
        last="vit.layernorm",
    )

    patch: int
    classes: int = 1000  # of ImageNet

    @classmethod
    def from_config(cls, config: ConfigValues) -> Vit:
        """See base class."""
        config.expect_architecture("ViTForImageClassification")
        config.expect_each(
            hidden_act="gelu",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            num_channels=3,
            qkv_bias=True,
        )
        patch = config.size("patch_size", 16)
        labels = config.values.get("id2label")
        return cls(
            layers=config.size("num_hidden_layers", 12),
            hidden=config.size("hidden_size", 768),
            heads=config.size("num_attention_heads", 12),
            ffn=config.size("intermediate_size", 3072),
            patch=patch,
            classes=len(labels) if isinstance(labels, Mapping) else config.size("num_labels", 2),
            sequence_length=(config.size("image_size", 224) // patch) ** 2 + 1,
        )

    def check(self, key: GraphKey) -> None:
        """Only square images can be cut into patches, and the class token is on one device.

        Raises:
            InputError: says which lengths are near, or that a sequence cannot be cut.
        """
        patches = key.sequence_length - 1
        side = math.isqrt(patches)
        if side**2 != patches or not side:
            nearest = {max(1, side) ** 2 + 1, (side + 1) ** 2 + 1}
            raise InputError(
                f"sequence length {key.sequence_length} of {key.model} is not the patches of a "
                f"square image and one class token; use {' or '.join(map(str, sorted(nearest)))}"
            )
        if key.cp > 1:
            raise InputError(
                f"the patches of {key.model} come from one convolution and its class token is on "
                "one device, so that a sequence cannot be cut; use context parallel degree 1"
            )

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class; images are of the size that ``key.sequence_length`` patches and a class
        token need."""
        from transformers import ViTConfig, ViTForImageClassification

        config = ViTConfig(
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=self.ffn,
            image_size=self._image_side(key),
            patch_size=self.patch,
            num_labels=self.classes,
            attn_implementation=attention,
        )
        return ViTForImageClassification(config)

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """Images in the dtype of the model, and the class of each."""
        import torch

        side = self._image_side(key)
        return {
            "images": torch.zeros(key.micro_batch_size, 3, side, side),
            "labels": torch.zeros(key.micro_batch_size, dtype=torch.long),
        }

    def loss(
        self,
        model: torch.nn.Module,
        inputs: Mapping[str, torch.Tensor],
        cross_entropy: CrossEntropy,
    ) -> torch.Tensor:
        """Cross entropy of the classes, which are not divided over a tensor-parallel group."""
        from torch.nn import functional

        return functional.cross_entropy(
            model(pixel_values=inputs["images"]).logits.float(), inputs["labels"]
        )

    def _image_side(self, key: GraphKey) -> int:
        return math.isqrt(key.sequence_length - 1) * self.patch


_SOURCE = (
    "Dosovitskiy et al. 2020, table 1, at 224 pixels; torchvision's checkpoints, H as in the paper"
)


def _vit(layers: int, hidden: int, heads: int, patch: int, published: float) -> Vit:
    return Vit.sized(
        layers,
        hidden,
        heads,
        published,
        patch=patch,
        sequence_length=(224 // patch) ** 2 + 1,
        source=_SOURCE,
    )


MODELS: Mapping[str, ModelFamily] = {
    "vit-b-16": _vit(12, 768, 12, 16, 86_567_656),
    "vit-l-16": _vit(24, 1024, 16, 16, 304_326_632),
    "vit-h-14": _vit(32, 1280, 16, 14, 632e6),
}
ALIASES: Mapping[str, str] = {
    "vit-b/16": "vit-b-16",
    "vit-l/16": "vit-l-16",
    "vit-h/14": "vit-h-14",
}
