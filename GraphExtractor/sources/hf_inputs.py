"""What a module of transformers reads: from the names that it takes and its sizes.

Images have the size the configuration says, speech its frames or as many samples as the sequence is
long, texts the sequence length. Labels are of the kind that the class's loss compares; where that
looks for its targets by their values (boxes, alignments), there are none, and the output stands for
the loss.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from phaze_common.errors import InputError
from phaze_common.numbers import number

if TYPE_CHECKING:
    from GraphExtractor.graph import GraphKey

logger = logging.getLogger(__name__)

PHOTOGRAPH = (224, 224)  # of models without a size of their own: ImageNet's crops
# shortest and longest side that detectors scale images to (Carion et al. 2020, section 4)
DETECTION_IMAGE = (800, 1333)
# that real-time detectors scale images to (Zhao et al. 2024, RT-DETR, section 5.1)
SQUARE_IMAGE = (640, 640)
_OF_SQUARES = ("RTDetr", "DFine", "PPDocLayout", "Deimv2")
_VISION_PARTS = (
    *("vision_config", "image_config", "vision", "encoder"),
    *("backbone_config", "vit_config", "qformer_config"),
)
_TEXT_TASKS = (
    *("LMHeadModel", "WithLMHead", "ForCausalLM", "ForMaskedLM"),
    *("ForConditionalGeneration", "ForTokenClassification"),
)
_SAMPLE_TASKS = ("Classification", "WithTeacher", "ForNextSentencePrediction")
_PIXEL_TASKS = ("SemanticSegmentation", "DepthEstimation")
_BY_VALUE_TASKS = (
    *("ObjectDetection", "Segmentation", "ForCTC", "ForRNNT", "ForTDT"),
    *("ForPreTraining", "ForMaskedImageModeling"),
)
_KINDS_OF_TOKENS = ("mm_token_type_ids", "token_type_ids")
_PER_SAMPLE = ("next_sentence_label", "sentence_order_label", "start_positions", "end_positions")


@dataclass(frozen=True)
class Reader:
    """A class of transformers with its configuration."""

    architecture: Any
    settings: Any
    path: str
    image_tokens: int = 0  # that stand for the image of a sample in its text
    with_images: bool = True
    with_labels: bool = True

    @property
    def name(self) -> str:
        """Name of the class."""
        return str(self.architecture.__name__)

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """What ``forward`` takes."""
        return inspect.signature(self.architecture.forward).parameters

    @property
    def takes_labels(self) -> bool:
        """Whether it can compute a loss of its own."""
        return "labels" in self.parameters or "start_positions" in self.parameters

    @property
    def reads_tokens(self) -> bool:
        """Whether it reads a text, or writes one."""
        return "input_ids" in self.parameters or "decoder_input_ids" in self.parameters

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """Tensors by name, with labels where they can be given.

        Raises: InputError: it needs something that is not known.
        """
        given = dict(self._data(key))
        several = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
        for name, parameter in self.parameters.items():
            needed = parameter.default is inspect.Parameter.empty and parameter.kind not in several
            if needed and name != "self" and name not in given:
                raise InputError(
                    f"{self.path}: {self.name} reads {name!r}, whose shape the configuration does "
                    "not tell; give the model as a model.py with build() and example_inputs()"
                )
        labels = dict(self._labels(key, given)) if self.with_labels else {}
        if not labels and "decoder_input_ids" in self.parameters:
            given["decoder_input_ids"] = _ids(key.micro_batch_size, key.sequence_length)
        return given | labels

    def switches(self) -> dict[str, bool]:
        """What else makes it compute its loss."""
        return {"return_loss": True} if "return_loss" in self.parameters else {}

    def _data(self, key: GraphKey) -> Iterator[tuple[str, torch.Tensor]]:
        batch, length, names = key.micro_batch_size, key.sequence_length, self.parameters
        if "input_ids" in names:
            yield "input_ids", self._text(batch, length)
        if self.with_images:
            yield from self.images(batch, length)
        if self.image_tokens:
            for name in _KINDS_OF_TOKENS:
                if name in names:
                    kinds = _ids(batch, length)
                    kinds[:, : self.image_tokens] = 1
                    yield name, kinds
        if "input_features" in names:
            yield "input_features", torch.zeros(batch, *self._features(length))
        if "input_values" in names:
            yield "input_values", torch.zeros(batch, *self._sound(length))

    @property
    def can_do_without_images(self) -> bool:
        """Whether it reads a text that need have no images."""
        return self._reads_both and self.parameters["pixel_values"].default is None

    @property
    def joins_images(self) -> bool:
        """Whether tokens of its text stand for an image."""
        return self._reads_both and self._image_token is not None

    @property
    def _reads_both(self) -> bool:
        return {"input_ids", "pixel_values"} <= self.parameters.keys()

    @property
    def _image_token(self) -> int | None:
        names = "image_token_id", "image_token_index"
        found = (getattr(self.settings, name, None) for name in names)
        return next((value for value in found if isinstance(value, int)), None)

    def _text(self, batch: int, length: int) -> torch.Tensor:
        if self.image_tokens > length:
            raise InputError(
                f"{self.path}: an image is {self.image_tokens} tokens of the text of {self.name}, "
                f"more than sequence length {length}; ask for a longer one with --sequence-length"
            )
        special: set[int] = set()  # numbers of tokens that mean something to a model
        for part in (self.settings, *vars(self.settings).values()):
            values = vars(part) if hasattr(part, "__dict__") else {}
            special |= {
                each for name, each in values.items() if "token" in name and type(each) is int
            }
        plain = next(number for number in range(len(special) + 1) if number not in special)
        text = torch.full((batch, length), plain, dtype=torch.long)
        if self.image_tokens:
            text[:, : self.image_tokens] = self._image_token
        return text

    def images(self, batch: int, length: int) -> Iterator[tuple[str, torch.Tensor]]:
        """An image for each sample, as patches where the model reads those."""
        if "pixel_values" not in self.parameters:
            return
        if "image_grid_thw" not in self.parameters:
            shape = self._image()
            images = (1,) if "pixel_attention_mask" in self.parameters else ()  # of a sample
            yield "pixel_values", torch.zeros(batch, *images, *shape)
            return
        vision = self.settings.vision_config
        merged, patch = vision.spatial_merge_size, vision.patch_size
        side = max(min(PHOTOGRAPH[0] // patch // merged, math.isqrt(length // 2)), 1) * merged
        width: Any = getattr(vision, "in_channels", None) or getattr(vision, "in_chans", 3)
        depth: Any = getattr(vision, "temporal_patch_size", 1)
        yield "pixel_values", torch.zeros(batch * side**2, width * depth * patch**2)
        yield "image_grid_thw", torch.tensor([[1, side, side]] * batch)

    def _labels(
        self, key: GraphKey, given: Mapping[str, torch.Tensor]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        batch, names = key.micro_batch_size, self.parameters
        for name in _PER_SAMPLE:
            if name in names:
                yield name, _ids(batch)
        if "labels" not in names:
            return
        paired = "decoder_input_ids" in names and not self.name.endswith(_SAMPLE_TASKS)
        if self.name.endswith(_TEXT_TASKS) or paired:
            yield "labels", _ids(batch, key.sequence_length)
        elif self.name.endswith(_PIXEL_TASKS):
            yield "labels", _ids(batch, *given["pixel_values"].shape[-2:])
        elif self.name.endswith(_SAMPLE_TASKS):
            yield "labels", _ids(batch)
        elif self.reads_tokens and "pixel_values" not in given:
            yield "labels", _ids(batch, key.sequence_length)
        elif not self.name.endswith(_BY_VALUE_TASKS):
            yield "labels", _ids(batch)

    def _parts(self) -> Iterator[Any]:
        """The configuration, then those of what reads images."""
        yield self.settings
        for name in _VISION_PARTS:
            part = getattr(self.settings, name, None)
            if part is not None and not isinstance(part, int | str):
                yield part

    def _setting(self, *names: str) -> Any:
        found = (getattr(part, name, None) for part in self._parts() for name in names)
        return next((each for each in found if not isinstance(each, property | None)), None)

    def _image(self) -> tuple[int, ...]:
        channels = self._setting("num_channels", "in_channels", "in_chans")
        size = self._setting("image_size", "img_size", "input_size", "anchor_image_size")
        if size is None and self.name.endswith("ObjectDetection"):
            size = SQUARE_IMAGE if self.name.startswith(_OF_SQUARES) else DETECTION_IMAGE
        size = PHOTOGRAPH if size is None else size
        if isinstance(size, Mapping):
            shortest = size.get("shortest_edge", PHOTOGRAPH[0])
            size = size.get("height", shortest), size.get("width", shortest)
        height, width = size[:2] if isinstance(size, list | tuple) else (size, size)
        frames = self._setting("num_frames")
        channels = channels if isinstance(channels, int) else 3
        return (*((frames,) if isinstance(frames, int) else ()), channels, int(height), int(width))

    def _features(self, length: int) -> tuple[int, ...]:
        settings = self.settings
        bins = getattr(settings, "num_mel_bins", None)
        positions = getattr(settings, "max_source_positions", None)
        # frames that several spectra are joined in
        if hasattr(settings, "feature_projection_input_dim"):
            return length, settings.feature_projection_input_dim
        # in time, and the convolutions read no more than the positions
        if hasattr(settings, "input_feat_per_channel"):
            return positions or length, settings.input_feat_per_channel
        if positions and bins:  # Whisper's spectrogram, which its convolutions halve
            return bins, 2 * positions
        return length, bins or 80

    def _sound(self, length: int) -> tuple[int, ...]:
        settings = self.settings
        spectrogram = hasattr(settings, "max_length") and hasattr(settings, "num_mel_bins")
        if spectrogram and not hasattr(settings, "conv_kernel"):  # read as an image
            return settings.max_length, settings.num_mel_bins
        stride = math.prod(getattr(settings, "conv_stride", ()) or ())
        if length < stride:
            samples = self.path, number(length), number(stride)
            logger.warning(
                "%s: %s samples make no frame of %s; --sequence-length counts samples", *samples
            )
        return (length,)


def _ids(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.long)
