"""Vision Transformer: patches of an image and a class token through an encoder, a classifier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from GraphExtractor.graph_key import GraphKey
from GraphExtractor.models.base import (
    ImageClassifierFamily,
    ModelFamily,
    TensorParallelPlan,
    TransformerFamily,
)
from GraphExtractor.sources.config_values import ConfigSize, ConfigValues, standard_sizes
from phaze_common.errors import InputError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Vit(ImageClassifierFamily, TransformerFamily):
    """ViTForImageClassification (Dosovitskiy et al. 2020), without dropout.

    ``sequence_length`` is the patches of a square image and the class token, so that it is a square
    and one; the position table is as long. The patch embedding and the classifier are whole on
    every device of a tensor-parallel group.
    """

    folder: ClassVar[str] = "ViT"
    model_type: ClassVar[str] = "vit"
    blocks: ClassVar[tuple[str, ...]] = ("vit.layers",)
    plan: ClassVar[TensorParallelPlan] = TensorParallelPlan(
        column=(*(f"*.attention.{name}_proj" for name in "qkv"), "*.mlp.fc1"),
        row=("*.attention.o_proj", "*.mlp.fc2"),
        entrances=("*.attention", "*.mlp"),
        last="vit.layernorm",
    )
    architectures: ClassVar[tuple[str, ...]] = ("ViTForImageClassification",)
    fixed: ClassVar[Mapping[str, object]] = {
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "num_channels": 3,
        "qkv_bias": True,
    }
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        **standard_sizes(layers=12, hidden=768, heads=12, ffn=3072),
        "patch": ConfigSize("patch_size", 16),
    }

    patch: int

    @classmethod
    def read_sizes(cls, config: ConfigValues) -> dict[str, Any]:
        """See base class."""
        sizes = super().read_sizes(config)
        patches = (config.size("image_size", 224) // sizes["patch"]) ** 2
        return sizes | {"sequence_length": patches + 1}

    def check(self, key: GraphKey) -> None:
        """Only square images can be cut into patches, and the class token is on one device.

        Raises: InputError: says which lengths are near, or that a sequence cannot be cut.
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
        """See base class; images have the size that ``key.sequence_length`` needs."""
        from transformers import ViTConfig, ViTForImageClassification

        settings = self.written_sizes(
            image_size=self.side_of_images(key),
            num_labels=self.classes,
            attn_implementation=attention,
        )
        return ViTForImageClassification(ViTConfig(**settings))

    def side_of_images(self, key: GraphKey) -> int:
        """See base class."""
        return math.isqrt(key.sequence_length - 1) * self.patch


_SOURCE = (
    "Dosovitskiy et al. 2020, table 1, at 224 pixels; torchvision's checkpoints, H as in the paper"
)


def _vit(layers: int, hidden: int, heads: int, patch: int, published: float) -> Vit:
    length = (224 // patch) ** 2 + 1
    sizes = layers, hidden, heads, published
    return Vit.sized(*sizes, patch=patch, sequence_length=length, source=_SOURCE)


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
