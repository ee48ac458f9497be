"""Which modules of a model are its layers: what is placed as a whole each time it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class LayerModules:
    """Paths of ``stacks``, lists whose every child is a layer, and of layers ``alone``."""

    stacks: tuple[str, ...]
    alone: tuple[str, ...] = ()


@dataclass(frozen=True)
class LayerModule:
    """A module that is a layer each time it runs, and what its layers are called."""

    path: str
    name: str


def each_layer_module(model: torch.nn.Module, modules: LayerModules) -> tuple[LayerModule, ...]:
    """The layer modules of ``model``; blocks are called after what tells their stacks apart."""
    if len(modules.stacks) == 1 and not modules.alone:
        names = ["block"]
    else:
        names = _distinctive(modules.stacks)
    children = [
        LayerModule(f"{stack}.{child}".lstrip("."), name)
        for stack, name in zip(modules.stacks, names, strict=True)
        for child, _ in model.get_submodule(stack).named_children()
    ]
    for path in modules.alone:  # which says what it is, unless it is a mere number
        kind = type(model.get_submodule(path)).__name__.lower()
        children.append(LayerModule(path, f"{kind}.{path}" if path.isdigit() else path))
    return tuple(children)


def _alike(columns: Iterable[tuple[str, ...]]) -> int:
    """How many of the first columns hold one word each."""
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


def _distinctive(paths: Sequence[str]) -> list[str]:
    """Paths without what they all begin and end with, but never starting with a number."""
    if len(paths) < 2:
        return list(paths)
    parts = [path.split(".") for path in paths]
    shortest = min(map(len, parts)) - 1
    first = min(shortest, _alike(zip(*parts, strict=False)))
    backwards = zip(*(reversed(part[first:]) for part in parts), strict=False)
    last = min(shortest - first, _alike(backwards))
    while first and any(part[first].isdigit() for part in parts):
        first -= 1
    return [".".join(part[first : len(part) - last]) for part in parts]


def find_layer_modules(model: torch.nn.Module) -> LayerModules:
    """Look for layers in a model that nobody described.

    Layers are the children of every list (``ModuleList`` or ``Sequential``) in which two or more
    are built alike, or of a ``ModuleList`` of one, the outermost such list on each path that is no
    list of stages, and the largest modules with parameters that hold no such list, besides plain
    embeddings, normalisations and linears, which join the layers around them. In a model without
    any of these, those are the layers.
    """
    from torch import nn

    stacks: list[str] = []
    alone: list[str] = []

    def holds_stack(module: nn.Module) -> bool:
        return any(_is_stack(each) for each in module.modules())

    def visit(path: str, module: nn.Module) -> None:
        if _is_stack(module) and not _are_stages(module) and path:
            stacks.append(path)
            return
        for name, child in module.named_children():
            inner = f"{path}.{name}".lstrip(".")
            # lists and mappings never run themselves
            if holds_stack(child) or isinstance(child, nn.ModuleList | nn.ModuleDict):
                visit(inner, child)
            elif _is_composite(child):
                alone.append(inner)

    visit("", model)
    if not stacks and not alone:
        alone = [path for path, module in model.named_modules() if path and _has_own(module)]
    return LayerModules(tuple(stacks), tuple(alone))


def structure(block: torch.nn.Module) -> list[object]:
    """Modules, parameter shapes and plain settings of a block, without its number.

    Of a fraction (a rate of dropout or stochastic depth, which often rises from block to block)
    only matters whether it is 0 or 1: others are factors in operators that cost the same.
    """

    def setting(value: object) -> object:
        return "fraction" if isinstance(value, float) and value not in (0.0, 1.0) else value

    found: list[object] = []
    for name, module in block.named_modules():
        plain = [
            (key, setting(value))
            for key, value in vars(module).items()
            if isinstance(value, int | float | str) and key not in {"layer_idx", "layer_id"}
        ]
        found.append((name, type(module).__name__, _parameters(module), sorted(plain)))
    return found


def _form(block: torch.nn.Module) -> list[object]:
    """Modules with parameters and their shapes: what blocks share whose settings differ."""
    found = [
        (name, type(module).__name__, _parameters(module)) for name, module in block.named_modules()
    ]
    return [type(block).__name__, *(each for each in found if each[2])]


def _parameters(module: torch.nn.Module) -> list[object]:
    return [
        (name, tuple(value.shape), str(value.dtype))
        for name, value in module.named_parameters(recurse=False)
    ]


def _is_stack(module: torch.nn.Module) -> bool:
    from torch import nn

    if not isinstance(module, nn.ModuleList | nn.Sequential):
        return False
    children = list(module.children())
    forms = [_form(child) for child in children if _is_composite(child)]
    alike = any(forms.count(form) > 1 for form in forms)
    # a block that runs several times, or a shallow model
    alone = len(forms) == 1 and isinstance(module, nn.ModuleList)
    return (alike or alone) and len(forms) == len(children)


def _are_stages(stack: torch.nn.Module) -> bool:
    """Whether the children of a stack are stages of a hierarchical model, each with a stack.

    Blocks hold stacks too: experts, or heads. Stages differ (in width, say), where blocks that all
    hold a stack are alike; stages that are alike hold more layers each than there are stages, and
    layers have normalisations, which experts and heads do not.
    """
    stages = list(stack.children())
    inner = [[module for module in stage.modules() if _is_stack(module)] for stage in stages]
    if not all(inner) or len(stages) < 2:
        return False
    if any(_form(stage) != _form(stages[0]) for stage in stages[1:]):
        return True
    longest = max(inner[0], key=lambda each: len(list(each.children())))
    layers = list(longest.children())
    return len(layers) > len(stages) and all(
        any("norm" in type(m).__name__.lower() for m in each.modules()) for each in layers
    )


def _has_own(module: torch.nn.Module) -> bool:
    return any(True for _ in module.parameters(recurse=False))


def _is_composite(module: torch.nn.Module) -> bool:
    """Whether a module has parts of its own that have parameters."""
    return sum(_has_own(child) for child in module.modules() if child is not module) > 1
