"""ResNet and Wide-ResNet: bottlenecks of convolutions in four stages, and a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from GraphExtractor.graph_key import GraphKey
from GraphExtractor.models.base import ImageClassifierFamily, ModelFamily
from GraphExtractor.sources.config_values import ConfigSize, ConfigValues, InexpressibleError
from phaze_common.errors import InputError

if TYPE_CHECKING:
    import torch


CLASSES = ImageClassifierFamily.classes
IMAGE_SIDE = 224  # of ImageNet
STAGES = 4
EXPANSION = 4  # channels that a block gives, per channel of its first convolution
# an image's side over that of what the last stage makes: stem, pool and three stages halve it
SHRINKAGE = 32


@dataclass(frozen=True, kw_only=True)
class ResNet(ImageClassifierFamily):
    """ResNet with bottlenecks (He et al. 2015), strides of stages in their first 3x3 convolution.

    ``depths`` are the blocks of the stages; those of stage i make ``base``·2^i channels by 1x1,
    ``widening`` times as many by 3x3, and 4·``base``·2^i by 1x1. A sequence is one image of
    ``image_side`` pixels squared, of length 1. There is no tensor parallelism.
    """

    folder: ClassVar[str] = "ResNet"
    model_type: ClassVar[str] = "resnet"
    couples_rows: ClassVar[bool] = True
    blocks: ClassVar[tuple[str, ...]] = ("stages.0", "stages.1", "stages.2", "stages.3")
    architectures: ClassVar[tuple[str, ...]] = ("ResNetForImageClassification",)
    fixed: ClassVar[Mapping[str, object]] = {
        "layer_type": "bottleneck",
        "hidden_act": "relu",
        "num_channels": 3,
        "downsample_in_first_stage": False,
        "downsample_in_bottleneck": False,
    }
    # configurations of ResNet do not say how large an image is, but may
    keys: ClassVar[Mapping[str, ConfigSize]] = {
        "base": ConfigSize("embedding_size", 64),
        "image_side": ConfigSize("image_size", IMAGE_SIDE),
    }

    depths: tuple[int, int, int, int]
    base: int
    widening: int = 1
    image_side: int = IMAGE_SIDE

    @classmethod
    def read_sizes(cls, config: ConfigValues) -> dict[str, Any]:
        """See base class."""
        depths = config.values.get("depths", [3, 4, 6, 3])
        several = isinstance(depths, list) and len(depths) == STAGES
        if not several or not all(type(depth) is int and depth > 0 for depth in depths):
            raise InexpressibleError(f"depths {depths!r:.80}")
        sizes = super().read_sizes(config)
        widths = [EXPANSION * sizes["base"] * 2**stage for stage in range(STAGES)]
        config.expect("hidden_sizes", [256, 512, 1024, 2048], widths)
        return sizes | {"layers": sum(depths), "depths": tuple(depths), "sequence_length": 1}

    @property
    def has_sequence(self) -> bool:
        """See base class."""
        return False

    def check(self, key: GraphKey) -> None:
        """An image has no tokens, and a batch norm needs two values of a channel.

        Raises: InputError: a sequence length, or one value of a channel in the last stage.
        """
        side = self.image_side
        if key.sequence_length != 1:
            raise InputError(
                f"{key.model} takes one image of {side} x {side} per sample; use sequence length 1"
            )
        if key.micro_batch_size == 1 and side <= SHRINKAGE:
            raise InputError(
                f"{key.model} makes one pixel of an image of {side} x {side}, which a batch norm "
                "over one row cannot normalise; "
                f"use micro-batches of 2 rows or more, or an image_side above {SHRINKAGE}"
            )

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class; there is no attention."""
        from GraphExtractor.vision_modules import WideResNet

        return WideResNet(self.depths, self.base, self.widening, self.classes)

    def side_of_images(self, key: GraphKey) -> int:
        """See base class."""
        return self.image_side


_HE = "He et al. 2015, table 1; torchvision's checkpoints"
_LIU = (
    "Liu et al. 2024 (Aceso), by the names of its sizes; the counts are the weights in its "
    "profiled databases"
)


def _resnet(
    depths: tuple[int, int, int, int], published: float, base: int = 64, widening: int = 1
) -> ResNet:
    return ResNet(
        layers=sum(depths),
        depths=depths,
        base=base,
        widening=widening,
        sequence_length=1,
        published_parameter_count=round(published),
        source=_HE if (base, widening) == (64, 1) else _LIU,
    )


MODELS: Mapping[str, ModelFamily] = {
    "resnet-50": _resnet((3, 4, 6, 3), 25_557_032),
    "resnet-101": _resnet((3, 4, 23, 3), 44_549_160),
    "resnet-152": _resnet((3, 8, 36, 3), 60_192_808),
    "wide-resnet-500m": _resnet((3, 4, 6, 3), 495e6, 224, 2),
    "wide-resnet-1b": _resnet((3, 4, 6, 3), 1006e6, 320, 2),
    "wide-resnet-2b": _resnet((3, 4, 6, 3), 1965e6, 448, 2),
    "wide-resnet-4b": _resnet((3, 4, 6, 3), 4001e6, 640, 2),
    "wide-resnet-6.8b": _resnet((3, 4, 6, 3), 6728e6, 320, 16),
    "wide-resnet-13b": _resnet((3, 4, 23, 3), 12633e6, 320, 16),
}
ALIASES: Mapping[str, str] = {
    "resnet50": "resnet-50",
    "resnet101": "resnet-101",
    "resnet152": "resnet-152",
}
