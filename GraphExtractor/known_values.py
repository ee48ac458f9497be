"""Values that a trace can know: of tensors made from constants, shapes and known inputs alone.

A model may ask how many patches an image has, which of its tokens stand for the image, or whether a
mask leaves anything out: none of that depends on data or weights. While ``KnownValues`` is active
such tensors are computed besides being traced, and code that reads them gets them. Activations
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
    DispatchMode,
    FakeTensor,
    WeakIdKeyDictionary,
    disable_current_modes,
    pytree,
)

MOST_ELEMENTS = 2**18  # of a tensor whose values are followed
_VALUE = "_phaze_value"
# of torch: whether all of a tensor is true
_CHECKS = ("_check_tensor_all", "_check_tensor_all_with")
_CHOICES = ("topk", "argmax", "argmin", "max", "min")
_MASKED = ("index", "index_put", "_unsafe_index", "_unsafe_index_put", "_index_put_impl")
_FINITE = MappingProxyType(
    dict.fromkeys((torch.isfinite, torch.Tensor.isfinite), True)
    | dict.fromkeys((torch.isinf, torch.Tensor.isinf, torch.isnan, torch.Tensor.isnan), False)
)


def with_value(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A fake ``tensor`` that is known to hold ``value``."""
    setattr(tensor, _VALUE, value)
    return tensor


class KnownValues(DispatchMode):
    """Follows known values with the trace below it; calls ``before_each`` before operators."""

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
        listed, written = self._listed(FakeTensor.tolist), self._written(FakeTensor.__format__)
        for owner, name, replacement in (
            (FakeTensor, "tolist", listed),
            (FakeTensor, "__format__", written),
            *((torch, name, _passed(getattr(torch, name))) for name in _CHECKS),
        ):
            patches.enter_context(patch.object(owner, name, replacement))
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
        tags, known_ones = function.tags, [value for value in known if value is not None]
        drawn = torch.Tag.nondeterministic_seeded in tags
        if len(known_ones) == len(known) and not drawn:
            values = iter(known)
            own = [next(values) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            reads = (
                torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags
            )
            sizes = [value.untyped_storage().nbytes() for value in known_ones]
            if reads or max(sizes, default=0) <= 8 * MOST_ELEMENTS:
                computed = pytree.tree_unflatten(own, form)
                return self._followed(function, name, (arguments, named), computed, reads)
        elif function._schema.is_mutable and isinstance(arguments[0], torch.Tensor):
            self._changed.add(arguments[0].untyped_storage()._cdata)
        result = function(*arguments, **named)
        if name in _CHOICES:
            self._choose(function, arguments, named, result)
        return result

    def _choose(self, function: Any, arguments: Any, named: Any, result: Any) -> None:
        """Positions that are chosen along an axis become known: balanced ones."""
        names = (each.name for each in function._schema.arguments)
        given = dict(zip(names, arguments, strict=False)) | named
        axis = given.get("dim", -1 if "topk" in str(function) else None)
        made = [each for each in pytree.tree_leaves(result) if isinstance(each, FakeTensor)]
        chosen = next((each for each in made if each.dtype == torch.int64), None)
        if axis is None or chosen is None or not given["self"].dim():
            return
        if chosen.numel() > MOST_ELEMENTS:
            return
        of, apart = given["self"].shape[axis], chosen.dim() < given["self"].dim()
        with disable_current_modes():
            order = torch.arange(chosen.numel()) % of
            shape = list(chosen.unsqueeze(axis).shape if apart else chosen.shape)
            shape.append(shape.pop(axis))
            value = order.reshape(shape).movedim(-1, axis)
            self._values[chosen] = value.squeeze(axis) if apart else value

    def _followed(self, function: Any, name: str, traced: Any, own: Any, reads: bool) -> Any:
        """What an operator gives, traced and computed."""
        if reads:
            with disable_current_modes():
                value = function(*own[0], **own[1])
            return pytree.tree_map_only(torch.Tensor, self._constant, value)
        result = function(*traced[0], **traced[1])
        results = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
        if not all(isinstance(each, FakeTensor) for each in results):
            return result
        if any(each.numel() > MOST_ELEMENTS for each in results) and not function.is_view:
            return result
        if name.startswith(("empty", "new_empty")):  # permuted, strided or like another
            return result
        with disable_current_modes():
            cpu = {} if own[1].get("device") is None else {"device": torch.device("cpu")}
            value = function(*own[0], **(own[1] | cpu))
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
        """How a number in a tensor of its own is written: experts are found by names with it."""

        def written(tensor: Any, how: str) -> str:
            value = self.value(tensor) if not tensor.dim() else None
            return original(tensor, how) if value is None else format(value.item(), how)

        return written

    def _without_masks(self, arguments: Any) -> Any:
        """Arguments whose boolean indices, where they are known, are lists of positions."""
        indices: list[Any] = []
        for index in arguments[1]:
            boolean = isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)
            value = self.value(index) if boolean else None
            if value is None:
                indices.append(index)
                continue
            with disable_current_modes():
                positions = value.nonzero(as_tuple=True)
            indices += [self._constant(each) for each in positions]
        return (arguments[0], indices, *arguments[2:])


class _Answers(TorchFunctionMode):  # type: ignore[misc]
    """What code learns of tensors above the operators: activations are finite numbers."""

    def __torch_function__(
        self, function: Any, _: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        if function in _FINITE and arguments:
            answer = torch.full((), _FINITE[function], dtype=torch.bool)
            return answer.expand(arguments[0].shape)
        # numbers in tensors of their own
        if function in (torch.tensor, torch.as_tensor) and isinstance(arguments[0], list | tuple):
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
