"""Values that a trace can know: of tensors made from nothing but constants, shapes, and inputs with
values.

A model may ask how many patches an image has, which of its tokens stand for the image, or whether a
mask leaves anything out: none of that depends on data or weights. While ``KnownValues`` is active
such tensors are computed besides being traced, and code that asks for them is answered. Activations
are finite: a model that looks for infinities finds none.

Choices among computed numbers (the experts of a token, the keys of a query) are not known, but that
they are balanced is what mixtures train for and what ``experts`` assumes: the choices of one row
follow those of the row before, around all there are. So a model that sizes the parts of its experts
by what was chosen is traced with equal parts.
"""

from collections.abc import Callable
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

from GraphExtractor.torch_internals import (
    DataDependentOutputException,
    FakeTensor,
    TorchDispatchMode,
    WeakIdKeyDictionary,
    disable_current_modes,
    pytree,
)

MOST_ELEMENTS = 2**18  # of a tensor whose values are followed
_VALUE = "_phaze_value"
_CHECKS = (
    "_check_tensor_all",
    "_check_tensor_all_with",
)  # of torch: whether all of a tensor is true
_CHOICES = ("topk", "argmax", "argmin", "max", "min")
_MASKED = ("index", "index_put", "_unsafe_index", "_unsafe_index_put", "_index_put_impl")
_FINITE = MappingProxyType({torch.isfinite: True, torch.isinf: False, torch.isnan: False})


def with_value(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A fake ``tensor`` that is known to hold ``value``."""
    setattr(tensor, _VALUE, value)
    return tensor


class KnownValues(TorchDispatchMode):  # type: ignore[misc]
    """Follows known values beside the trace below it, and answers for them; ``before_each`` is
    called before every operator."""

    def __init__(self, before_each: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._before_each = before_each
        self._values = WeakIdKeyDictionary()
        self._answers = _Answers()
        self._patches: list[ExitStack] = []  # one for every time that it is active within itself
        self._changed: set[int] = set()  # storages that something unknown was written into

    def value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The values of a tensor, if they are known."""
        if tensor.layout is not torch.strided:
            return None
        if not isinstance(tensor, FakeTensor):
            return tensor if tensor.device.type == "cpu" else None
        if tensor.untyped_storage()._cdata in self._changed:
            return None
        found: torch.Tensor | None = getattr(tensor, _VALUE, None)
        return self._values.get(tensor) if found is None else found

    def __enter__(self) -> Any:
        self._answers.__enter__()
        patches = ExitStack()
        patches.enter_context(patch.object(FakeTensor, "tolist", self._listed(FakeTensor.tolist)))
        patches.enter_context(
            patch.object(FakeTensor, "__format__", self._written(FakeTensor.__format__))
        )
        for name in _CHECKS:
            patches.enter_context(patch.object(torch, name, _passed(getattr(torch, name))))
        self._patches.append(patches)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patches.pop().close()
        self._answers.__exit__(*error)

    def __torch_dispatch__(
        self, function: Any, _: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        if self._before_each is not None:
            self._before_each()
        named = named or {}
        name = function._schema.name.split("::")[1].rstrip("_")
        if name in _MASKED:
            arguments = self._without_masks(arguments)
        leaves, form = pytree.tree_flatten((arguments, named))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        known = [self.value(tensor) for tensor in tensors]
        tags = function.tags
        if (
            all(value is not None for value in known)
            and torch.Tag.nondeterministic_seeded not in tags
        ):
            values = iter(known)
            own = [next(values) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            asks = torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags
            if asks or all(
                value.untyped_storage().nbytes() <= 8 * MOST_ELEMENTS
                for value in known
                if value is not None
            ):
                return self._followed(
                    function, name, (arguments, named), pytree.tree_unflatten(own, form), asks
                )
        elif function._schema.is_mutable and isinstance(arguments[0], torch.Tensor):
            self._changed.add(arguments[0].untyped_storage()._cdata)
        result = function(*arguments, **named)
        if name in _CHOICES:
            self._choose(function, arguments, named, result)
        return result

    def _choose(self, function: Any, arguments: Any, named: Any, result: Any) -> None:
        """Positions that are chosen along an axis become known: balanced ones."""
        given = (
            dict(zip((each.name for each in function._schema.arguments), arguments, strict=False))
            | named
        )
        axis = given.get("dim", -1 if "topk" in str(function) else None)
        chosen = next((each for each in pytree.tree_leaves(result) if _are_positions(each)), None)
        if (
            axis is None
            or chosen is None
            or not given["self"].dim()
            or chosen.numel() > MOST_ELEMENTS
        ):
            return
        of, apart = given["self"].shape[axis], chosen.dim() < given["self"].dim()
        with disable_current_modes():
            order = torch.arange(chosen.numel()) % of
            shape = list(chosen.unsqueeze(axis).shape if apart else chosen.shape)
            shape.append(shape.pop(axis))
            value = order.reshape(shape).movedim(-1, axis)
            self._values[chosen] = value.squeeze(axis) if apart else value

    def _followed(self, function: Any, name: str, traced: Any, own: Any, asks: bool) -> Any:
        """What an operator gives, traced and computed."""
        if asks:
            with disable_current_modes():
                value = function(*own[0], **own[1])
            return pytree.tree_map_only(torch.Tensor, self._constant, value)
        result = function(*traced[0], **traced[1])
        results = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
        if not all(isinstance(each, FakeTensor) for each in results):
            return result
        if any(each.numel() > MOST_ELEMENTS for each in results) and not function.is_view:
            return result
        if name in (
            "empty",
            "empty_like",
            "new_empty",
            "empty_strided",
            "new_empty_strided",
            "empty_permuted",
        ):
            return result
        with disable_current_modes():
            value = function(*own[0], **_on_cpu(own[1]))
        made = [each for each in pytree.tree_leaves(value) if isinstance(each, torch.Tensor)]
        for fake, real in zip(results, made, strict=True):
            self._values[fake] = real
        return result

    def _constant(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor of the trace with these values."""
        with self:
            return torch.ops.aten.lift_fresh_copy.default(value)

    def _listed(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """``tolist`` of tensors whose values are known, all of them at once."""

        def tolist(tensor: Any) -> Any:
            value = self.value(tensor)
            if value is None:
                return original(tensor)
            with disable_current_modes():
                return value.tolist()

        return tolist

    def _written(self, original: Callable[[Any, str], str]) -> Callable[[Any, str], str]:
        """How a number in a tensor of its own is written: experts are looked up by names with
        it."""

        def written(tensor: Any, how: str) -> str:
            value = self.value(tensor) if not tensor.dim() else None
            return original(tensor, how) if value is None else format(value.item(), how)

        return written

    def _without_masks(self, arguments: Any) -> Any:
        """Arguments whose boolean indices, where they are known, are lists of positions."""
        indices: list[Any] = []
        for index in arguments[1]:
            value = (
                self.value(index)
                if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)
                else None
            )
            if value is None:
                indices.append(index)
                continue
            with disable_current_modes():
                positions = value.nonzero(as_tuple=True)
            indices += [self._constant(each) for each in positions]
        return (arguments[0], indices, *arguments[2:])


class _Answers(TorchFunctionMode):  # type: ignore[misc]
    """What is asked of tensors above the operators: no activation is infinite, and none is no
    number."""

    def __torch_function__(
        self, function: Any, _: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        method = {
            torch.Tensor.isfinite: torch.isfinite,
            torch.Tensor.isinf: torch.isinf,
            torch.Tensor.isnan: torch.isnan,
        }
        answer = _FINITE.get(method.get(function, function))
        if answer is not None and arguments:
            return torch.full((), answer, dtype=torch.bool).expand(arguments[0].shape)
        if function in (torch.tensor, torch.as_tensor) and isinstance(
            arguments[0], list | tuple
        ):  # numbers in tensors of their own
            numbers = pytree.tree_map_only(FakeTensor, lambda number: number.item(), arguments[0])
            return function(numbers, *arguments[1:], **(named or {}))
        return function(*arguments, **(named or {}))


def _passed(check: Callable[..., Any]) -> Callable[..., Any]:
    """A check of values that passes where they are not known."""

    def checked(*arguments: Any, **named: Any) -> Any:
        try:
            return check(*arguments, **named)
        except DataDependentOutputException:
            return None

    return checked


def _are_positions(value: Any) -> bool:
    return isinstance(value, FakeTensor) and value.dtype == torch.int64


def _on_cpu(named: dict[str, Any]) -> dict[str, Any]:
    return {
        key: torch.device("cpu") if key == "device" and value is not None else value
        for key, value in named.items()
    }
