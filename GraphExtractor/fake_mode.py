"""The mode in which models whose code may do anything are built and traced: tensors have shapes
and types, and no memory.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from GraphExtractor.torch_internals import FakeTensor, FakeTensorMode


def mode_of(tensor: torch.Tensor) -> AbstractContextManager[Any]:
    """The mode that operators on a traced ``tensor`` are run in."""
    if isinstance(tensor, FakeTensor):
        mode: AbstractContextManager[Any] = tensor.fake_mode
    else:
        mode = tensor.device
    return mode


class FakeMode(FakeTensorMode):  # type: ignore[misc]
    """A fake mode that stays one where modules are copied.

    Modules copy their layers (``torch.nn.TransformerEncoder`` does), fake parameters are copied
    with the mode they belong to, and torch's copy of a mode frees each storage of a constant once
    more than was counted, which corrupts the heap.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)

    def __copy__(self) -> "FakeMode":
        return self

    def __deepcopy__(self, memo: Any) -> "FakeMode":
        return self

    def run(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """What an operator gives."""
        return function(*arguments, **named)
