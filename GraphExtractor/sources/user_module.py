"""A module of the user's own, from a Python file with ``build()`` and
``example_inputs(micro_batch_size, sequence_length)``.

Extracting its graph runs the file, as importing it would.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from GraphExtractor.models.base import CrossEntropy, Inputs, TensorParallelPlan, UndescribedFamily
from GraphExtractor.sources.model_file import read_model_file
from phaze_common.errors import InputError

if TYPE_CHECKING:
    import torch

    from GraphExtractor.graph import GraphKey
    from GraphExtractor.sources.running import UserFile


@dataclass(frozen=True, kw_only=True)
class UserModule(UndescribedFamily):
    """A model file."""

    folder: ClassVar[str] = "User"

    own_plan: TensorParallelPlan
    sizes: Mapping[str, int]

    @classmethod
    def read(cls, path: str) -> UserModule:
        """The model of a file, which is not run yet; raises InputError as ``read_model_file``."""
        file = read_model_file(path)
        return cls(
            sequence_length=file.sequence_length,
            own_plan=file.plan,
            **{name: getattr(file, name) for name in ("path", "version", "tokens", "sizes")},
        )

    @property
    def divided_sizes(self) -> Mapping[str, int]:
        """See base class."""
        return self.sizes

    @property
    def parallel_plan(self) -> TensorParallelPlan:
        """See base class."""
        return self.own_plan

    @cached_property
    def _file(self) -> UserFile:
        from GraphExtractor.sources.running import UserFile

        return UserFile(self.path)

    def check(self, key: GraphKey) -> None:
        """See base class."""
        if not self.tokens and key.sequence_length != 1:
            raise InputError(
                f"example_inputs of {self.path} takes no sequence length, given "
                f"{key.sequence_length}; leave it out, or give the "
                "function a parameter sequence_length"
            )
        if key.sequence_parallel and not self.splits_sequence:
            raise InputError(
                f"{self.path} has no tensor_parallel plan, which sequence parallelism needs; "
                "write one, or leave it out"
            )
        if key.cp > 1:
            raise InputError(
                f"context parallel degree {key.cp} is not possible for {self.path}: which axes of "
                "a module of your own are tokens is not known; use 1"
            )

    def failures(self) -> AbstractContextManager[None]:
        """See base class."""
        from GraphExtractor.sources.user_errors import users_code

        return users_code(self.path, "the training step")

    def build(self, key: GraphKey, vocabulary: int, attention: str) -> torch.nn.Module:
        """See base class."""
        model = self._file.build(key.tp if self.sizes else 1)
        if self.sizes:
            from GraphExtractor.sources.plan_check import check_plan

            check_plan(model, self.own_plan, key.tp, self.path)
        return model

    def inputs(self, key: GraphKey) -> dict[str, torch.Tensor]:
        """See base class; inputs without names are called by their numbers."""
        rows, sizes = key.micro_batch_size, (key.sequence_length,) if self.tokens else ()
        inputs, larger = self._file.inputs(rows, *sizes), self._file.inputs(2 * rows, *sizes)
        shapes = [[tensor.shape for tensor in each.values()] for each in (inputs, larger)]
        if shapes[0] == shapes[1]:
            raise InputError(
                f"example_inputs of {self.path} gives equal shapes for {rows} and {2 * rows} "
                "samples; make an axis of the inputs micro_batch_size long"
            )
        return inputs

    def loss(
        self, model: torch.nn.Module, inputs: Inputs, cross_entropy: CrossEntropy
    ) -> torch.Tensor:
        """See base class; a head split over the vocabulary has a cross entropy of its own."""
        return self._file.loss(model, inputs, cross_entropy if self.own_plan.head else None)
