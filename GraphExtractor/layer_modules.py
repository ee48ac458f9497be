"""Which modules of a model are its layers: what is placed as a whole each time it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class LayerModules:
    """Paths of ``stacks``, lists whose every child is a layer, and of single modules that are layers ``alone``."""

    stacks: tuple[str, ...]
    alone: tuple[str, ...] = ()


@dataclass(frozen=True)
class LayerModule:
    """A module that is a layer each time it runs, and what its layers are called."""

    path: str
    name: str


def each_layer_module(model: torch.nn.Module, modules: LayerModules) -> tuple[LayerModule, ...]:
    """The layer modules of ``model``; blocks are called after what tells their stacks apart."""
    names = ["block"] if len(modules.stacks) == 1 and not modules.alone else _distinctive(modules.stacks)
    children = [
        LayerModule(f"{stack}.{child}".lstrip("."), name)
        for stack, name in zip(modules.stacks, names, strict=True)
        for child, _ in model.get_submodule(stack).named_children()
    ]
    return (*children, *(LayerModule(path, _called(path, model.get_submodule(path))) for path in modules.alone))


def _called(path: str, module: torch.nn.Module) -> str:
    """A path says what a module is, unless it is a mere number."""
    return f"{type(module).__name__.lower()}.{path}" if path.isdigit() else path


def _distinctive(paths: Sequence[str]) -> list[str]:
    """Paths without what they all begin and end with, but never starting with a number."""
    if len(paths) < 2:
        return list(paths)
    parts = [path.split(".") for path in paths]
    shortest = min(map(len, parts)) - 1
    first = min(shortest, sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False))))
    backwards = zip(*(reversed(part[first:]) for part in parts), strict=False)
    last = min(shortest - first, sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, backwards)))
    while first and any(part[first].isdigit() for part in parts):
        first -= 1
    return [".".join(part[first : len(part) - last]) for part in parts]


def find_layer_modules(model: torch.nn.Module) -> LayerModules:
    """Look for layers in a model that nobody described.

    Layers are the children of every list (``ModuleList`` or ``Sequential``) in which two or more are built alike, or of a
    ``ModuleList`` of one, the outermost such list on each path, and the largest modules with parameters that hold no such list,
    besides plain embeddings, normalisations and linears, which join the layers around them. In a model without any of these,
    those are the layers.
    """
    from torch import nn

    stacks: list[str] = []
    alone: list[str] = []

    def holds_stack(module: nn.Module) -> bool:
        return any(_is_stack(each) for each in module.modules())

    def visit(path: str, module: nn.Module) -> None:
        if _is_stack(module) and path:
            stacks.append(path)
            return
        for name, child in module.named_children():
            inner = f"{path}.{name}".lstrip(".")
            if holds_stack(child) or isinstance(child, nn.ModuleList | nn.ModuleDict):  # those never run themselves
                visit(inner, child)
            elif _is_composite(child):
                alone.append(inner)

    visit("", model)
    if not stacks and not alone:
        alone = [path for path, module in model.named_modules() if path and any(True for _ in module.parameters(recurse=False))]
    return LayerModules(tuple(stacks), tuple(alone))


def structure(block: torch.nn.Module) -> list[object]:
    """Modules, parameter shapes and plain settings of a block, without its number."""
    return [
        (
            name,
            type(module).__name__,
            [(key, tuple(value.shape), str(value.dtype)) for key, value in module.named_parameters(recurse=False)],
            sorted(
                (k, v) for k, v in vars(module).items() if isinstance(v, int | float | str) and k not in {"layer_idx", "layer_id"}
            ),
        )
        for name, module in block.named_modules()
    ]


def _is_stack(module: torch.nn.Module) -> bool:
    from torch import nn

    if not isinstance(module, nn.ModuleList | nn.Sequential):
        return False
    children = [structure(child) for child in module.children() if _is_composite(child)]
    alike = any(children.count(child) > 1 for child in children)
    alone = len(children) == 1 and isinstance(module, nn.ModuleList)  # a block that runs several times, or a shallow model
    return (alike or alone) and len(children) == len(list(module.children()))


def _is_composite(module: torch.nn.Module) -> bool:
    """Whether a module has parts of its own that have parameters."""
    return sum(any(True for _ in child.parameters(recurse=False)) for child in module.modules() if child is not module) > 1
