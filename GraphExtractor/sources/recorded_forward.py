"""Proof that a shortened model stands for the whole one: their forward passes outside layers.

A *unit* is a run of a layer module with what follows it up to the next run; unit 0 is what comes
before the first. Blocks that are left out must be units like their neighbours, each fed by the one
before and by what the whole series shares, read by the next one only; every unit that is left must
do what it does in the whole model. So code that treats blocks by number is found.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules import module as module_hooks

from GraphExtractor.layer_modules import LayerModule
from GraphExtractor.replication import Representatives
from GraphExtractor.torch_internals import DispatchMode, pytree
from phaze_common.progress import said_while

_PREVIOUS = -1
_OWN = -2
_RUN = "run"

Read = tuple[tuple[int, ...], int | None]


@dataclass(frozen=True)
class Event:
    """An operator outside layer modules, or what a run reads, in no order.

    ``reads`` are the shape of all it reads, and the unit of origin (None: parameters, inputs and
    constants).
    """

    name: str
    reads: tuple[Read, ...]


@dataclass(frozen=True)
class RecordedForward:
    """``runs[i]`` is the path of the layer module of unit i + 1."""

    runs: tuple[str, ...]
    units: tuple[tuple[Event, ...], ...]


def recorded_forward(
    model: torch.nn.Module,
    layer_modules: Sequence[LayerModule],
    forward: Callable[[], object],
    name: str = "the model",
) -> RecordedForward:
    """What ``forward()`` does with ``model`` outside its layer modules, in its fake mode."""
    recorder = _Recorder({model.get_submodule(each.path): each.path for each in layer_modules})
    hooks = [
        module_hooks.register_module_forward_pre_hook(recorder.enter),
        module_hooks.register_module_forward_hook(recorder.leave, always_call=True),
    ]

    def so_far() -> str:
        return f"reading {name}: layer {len(recorder.runs)} of {len(layer_modules)}"

    try:
        with recorder, said_while(so_far):
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    return RecordedForward(tuple(recorder.runs), tuple(map(tuple, recorder.units)))


class _Recorder(DispatchMode):
    def __init__(self, paths: Mapping[torch.nn.Module, str]) -> None:
        super().__init__()
        self.paths = paths
        self.runs: list[str] = []
        self.units: list[list[Event]] = [[]]
        self.inside = False
        self.read: set[Read] = set()
        self.origin: dict[int, int] = {}  # of a storage: the last unit that wrote it
        self.alive: list[Any] = []  # storages are told apart by their address

    def enter(self, module: torch.nn.Module, *_: Any) -> None:
        if module in self.paths and not self.inside:
            self.runs.append(self.paths[module])
            self.units.append([])
            self.inside = True
            self.read = set()

    def leave(self, module: torch.nn.Module, *_: Any) -> None:
        if module in self.paths and self.inside and self.paths[module] == self.runs[-1]:
            self.inside = False
            self.units[-1].append(Event(_RUN, tuple(self.read)))

    def __torch_dispatch__(
        self, function: Any, _: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        result = function(*arguments, **(named or {}))
        unit = len(self.units) - 1
        leaves = pytree.tree_leaves((arguments, named))
        tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
        storages = [_storage(tensor) for tensor in tensors]
        origins = [self.origin.get(storage) for storage in storages]
        reads = tuple((tuple(each.shape), at) for each, at in zip(tensors, origins, strict=True))
        if self.inside:
            self.read.update(read for read in reads if read[1] is not None and read[1] != unit)
        else:
            self.units[-1].append(Event(str(function), reads))
        computed = not reads or any(origin is not None for origin in origins)
        for tensor in pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and (computed or _storage(tensor) not in storages):
                self.alive.append(tensor)
                self.origin[_storage(tensor)] = unit
        return result


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def stands_for(
    short: RecordedForward, whole: RecordedForward, chosen: Mapping[str, Representatives]
) -> bool:
    """Whether ``short``, reduced to the ``chosen`` blocks of every stack, tells of ``whole``."""
    expected: list[str] = []
    # of every unit of the short model, the last unit of the whole one that it stands for
    place = [0]
    left_out: list[range] = []  # units of the whole model that one unit of the short one stands for
    for run in short.runs:
        stack, _, number = run.rpartition(".")
        each = chosen.get(stack)
        if each is None or not number.isdigit():
            expected.append(run)
        else:
            first, copies = each.chosen[int(number)], each.copies[int(number)]
            if copies > 1:  # and the one before
                left_out.append(range(len(expected), len(expected) + copies + 1))
            expected += [f"{stack}.{first + copy}".lstrip(".") for copy in range(copies)]
        place.append(len(expected))
    if tuple(expected) != whole.runs:
        return False

    def as_placed(unit: int) -> list[Event]:
        return _seen(whole.units[unit], unit, lambda origin: origin)

    for units in left_out:
        alike = [as_placed(unit) for unit in units]
        if any(each != alike[0] for each in alike):
            return False
        for unit, events in enumerate(whole.units):
            if unit in units[1:] or unit == units[-1] + 1:
                continue
            if any(origin in units[1:] for event in events for _, origin in event.reads):
                return False
    return all(
        _seen(events, unit, place.__getitem__) == as_placed(place[unit])
        for unit, events in enumerate(short.units)
    )


def _seen(events: Sequence[Event], unit: int, place: Callable[[int], int]) -> list[Event]:
    """Events with origins as positions in the whole model, or by these words in the last two."""

    def named(origin: int | None) -> int | None:
        if origin is None:
            return None
        if origin in (unit, unit - 1):
            return _OWN if origin == unit else _PREVIOUS
        return place(origin)

    def seen(event: Event) -> Event:
        reads = [(shape, named(origin)) for shape, origin in event.reads]
        return Event(event.name, tuple(sorted(reads, key=repr) if event.name == _RUN else reads))

    return [seen(event) for event in events]
