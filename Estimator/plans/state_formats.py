"""Number formats of a parameter's training state, as far as a plan states them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any

from phaze_common.choices import MomentDtype, StateDtype
from phaze_common.setting_fields import Axis


@dataclass(frozen=True, order=True)
class StateFormats:
    """Number formats of training state; None: as the framework and the precision have it.

    With ``fp8_weights`` the optimizer keeps a copy of its own of all weights; embedding, head,
    norms and biases stay as the training has them.
    """

    gradient_dtype: Annotated[
        StateDtype | None,
        Axis(
            "format in which gradients are added up over micro-batches and reduced over replicas",
            "as the framework has it: fp32 in bf16 and fp8 under those of today",
            title="format of gradients",
            feature=True,
            rounds=True,
            values=StateDtype,
            usual=None,
        ),
    ] = None
    moment_dtype: Annotated[
        MomentDtype | None,
        Axis(
            "format in which the optimizer keeps its moments",
            "fp32",
            title="format of moments",
            feature=True,
            rounds=True,
            values=MomentDtype,
            usual=None,
        ),
    ] = None
    main_weight_dtype: Annotated[
        StateDtype | None,
        Axis(
            "format of the optimizer's own copy of the weights; that of the weights themselves is "
            "none, and they are updated",
            "fp32 with adam",
            title="format of main weights",
            feature=True,
            rounds=True,
            values=StateDtype,
            usual=None,
        ),
    ] = None
    fp8_weights: Annotated[
        bool,
        Axis(
            "whether weights of blocks are held and gathered in fp8 in a training in fp8, the "
            "optimizer's copy beside them",
            "false",
            title="weights in fp8",
            feature=True,
            rounds=True,
            values=bool,
            usual=None,
        ),
    ] = False

    def __bool__(self) -> bool:
        """Whether any is stated."""
        return self != AS_USUAL

    def settings(self) -> dict[str, Any]:
        """What is stated, by the keys of settings, as plain values."""
        stated = {each.name: getattr(self, each.name) for each in fields(self)}
        given = {name: value for name, value in stated.items() if value}
        return {name: getattr(value, "value", value) for name, value in given.items()}

    def __str__(self) -> str:
        """The same in words: ``gradients in bf16, weights in fp8``."""
        return ", ".join(self._words())

    def _words(self) -> Iterator[str]:
        named = (
            ("gradients", self.gradient_dtype),
            ("moments", self.moment_dtype),
            ("main weights", self.main_weight_dtype),
        )
        yield from (f"{what} in {dtype}" for what, dtype in named if dtype is not None)
        if self.fp8_weights:
            yield "weights in fp8"


AS_USUAL = StateFormats()
FORMAT_KEYS = tuple(each.name for each in fields(StateFormats))
