"""What a model is trained on: drawn tokens or images, or the bytes of a text; a step's rows are the
same in every layout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from GraphExtractor.forward_trace import input_shapes
from GraphExtractor.models.base import LanguageModelFamily, ModelFamily
from phaze.runtime.training.job import SYNTHETIC, Job
from phaze_common.errors import InputError
from phaze_common.files import read_bytes

MOST_TEXT_BYTES = 2**30  # of a text; each byte of it is a token of 8 bytes
BYTES = 256  # token ids of a text, whose tokens are its bytes
_CLASSES = 10  # of drawn images
_STREAMS = {"input_ids": "text", "ids": "text", "decoder_ids": "answer"}
# drawn tokens are as frequent as vocabulary · u^3 of uniform u, so that there is something to learn
_SKEW = 3


class Batches:
    """The rows of every step of a job, by input.

    Raises:
        InputError: as ``read_text``.
    """

    def __init__(self, job: Job, family: ModelFamily) -> None:
        self.family, self.rows, self.seed = family, job.plan.global_batch_size, job.seed
        self.shapes = input_shapes(family, job.key())
        text = read_text(job, family)
        self.text = (
            None if text is None else torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        )

    def step(self, number: int) -> dict[str, torch.Tensor]:
        """All rows of step ``number``, dtype int64 for tokens and classes."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        streams: dict[str, torch.Tensor] = {}
        found = {}
        for name, shape in self.shapes.items():
            found[name] = self._input(name, tuple(shape.shape[1:]), shape, generator, streams)
        return found

    def _input(
        self,
        name: str,
        shape: tuple[int, ...],
        like: torch.Tensor,
        generator: torch.Generator,
        streams: dict[str, torch.Tensor],
    ) -> torch.Tensor:
        if like.is_floating_point():
            return torch.randn(self.rows, *shape, generator=generator, dtype=torch.float64).to(
                like.dtype
            )
        if name == "position_ids":
            return torch.arange(shape[0]).expand(self.rows, -1).contiguous()
        if name == "token_type_ids":
            return torch.zeros(self.rows, *shape, dtype=torch.long)
        if not shape:  # the class of a row
            most = 2 if name == "next_sentence_label" else _CLASSES
            return torch.randint(0, most, (self.rows,), generator=generator)
        if name == "labels":
            stream = "answer" if "answer" in streams else "text"
            return streams[stream][:, 1:].contiguous()
        stream = _STREAMS[name]
        if stream not in streams:
            streams[stream] = self._tokens(shape[0] + 1, generator)
        return streams[stream][:, :-1].contiguous()

    def _tokens(self, length: int, generator: torch.Generator) -> torch.Tensor:
        """Rows of ``length`` tokens, one more than the model reads, so that labels are the tokens
        that come next."""
        if self.text is not None:
            starts = torch.randint(
                0, len(self.text) - length + 1, (self.rows,), generator=generator
            )
            return torch.stack([self.text[start : start + length] for start in starts.tolist()])
        drawn = torch.rand(self.rows, length, generator=generator, dtype=torch.float64)
        return (drawn**_SKEW * self.family.vocabulary).long()


def read_text(job: Job, family: ModelFamily) -> bytes | None:
    """The text that a job trains on; None where its data are drawn.

    Raises:
        InputError: no file, too short a one, or a model that reads no text.
    """
    path, sequence_length = job.data, job.plan.sequence_length
    if path == SYNTHETIC:
        return None
    if not isinstance(family, LanguageModelFamily) or family.vocabulary < BYTES:
        raise InputError(
            f"--data {path} is a text, whose bytes are tokens, but the model reads no {BYTES} "
            "kinds of tokens; give synthetic"
        )
    try:
        text = read_bytes(Path(path), "a text file", MOST_TEXT_BYTES)
    except InputError as error:
        raise InputError(f"--data: {error}, or synthetic") from error
    if len(text) <= sequence_length:
        raise InputError(
            f"--data {path} has {len(text)} bytes, but a sequence needs {sequence_length + 1}; "
            "give a longer text"
        )
    return text


def check_inputs(family: ModelFamily, shapes: Mapping[str, torch.Tensor], model: str) -> None:
    """Refuse models with inputs that nobody knows how to draw.

    Raises:
        InputError: names the first.
    """
    known = {*_STREAMS, "labels", "position_ids", "token_type_ids"}
    for name, value in shapes.items():
        if not value.is_floating_point() and value.dim() > 1 and name not in known:
            raise InputError(
                f"{model} reads {name}, of which it is not known how to draw it; train another "
                "model"
            )
