"""The mode in which models whose code may do anything are built and traced: tensors have shapes
and types, and no memory.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from GraphExtractor.torch_internals import FakeTensorMode


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
