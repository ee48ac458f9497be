"""Which modules are layers, and what their layers are called."""

import pytest
from torch import nn

from GraphExtractor.layer_modules import (
    LayerModules,
    each_layer_module,
    find_layer_modules,
    structure,
)


def block(width=8):
    return nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))


class Parts(nn.Module):
    """A module of named parts."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


def stack(count=3, width=8):
    return nn.ModuleList(block(width) for _ in range(count))


def normed(width=8):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width))


def shifted(number):
    """Blocks as those of Swin: every second one is shifted, and each is left out more often than
    the one before."""
    made = Parts(inner=block(), drop=nn.Dropout(number / 10) if number else nn.Identity())
    made.shift = number % 2
    return made


FOUND = {
    "a list of equal blocks": (
        Parts(e=nn.Embedding(9, 8), h=stack(), f=nn.Linear(8, 9)),
        ("h",),
        (),
    ),
    "lists inside modules": (
        Parts(encoder=Parts(layers=stack()), decoder=Parts(layers=stack())),
        ("encoder.layers", "decoder.layers"),
        (),
    ),
    "the outermost list": (
        Parts(h=nn.ModuleList(Parts(inner=stack()) for _ in range(2))),
        ("h",),
        (),
    ),
    "a list of one": (Parts(h=stack(1)), ("h",), ()),
    "a sequence of equal blocks": (
        Parts(layer1=nn.Sequential(block(), block()), layer2=nn.Sequential(block(4))),
        ("layer1",),
        ("layer2",),
    ),
    "blocks of several kinds": (Parts(h=nn.ModuleList([block(), block(4)])), (), ("h.0", "h.1")),
    "modules with parts": (
        Parts(down=block(), up=block(4), out=nn.Linear(8, 8)),
        (),
        ("down", "up"),
    ),
    "nothing but linears": (
        nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)),
        (),
        ("0", "2"),
    ),
    "blocks as the whole": (nn.Sequential(block(), block(), block()), (), ("0", "1", "2")),
    "a stem before blocks": (Parts(stem=block(4), h=stack()), ("h",), ("stem",)),
    "a list of linears in a block": (
        Parts(mix=Parts(heads=nn.ModuleList(nn.Linear(8, 8) for _ in range(3)))),
        (),
        ("mix",),
    ),
    "no parameters but its own": (nn.Linear(3, 3), (), ()),
    "stages of several widths": (
        Parts(h=nn.ModuleList(Parts(enter=nn.Linear(w, w), blocks=stack(2, w)) for w in (4, 8, 8))),
        ("h.0.blocks", "h.1.blocks", "h.2.blocks"),
        (),
    ),
    "lists of lists": (Parts(h=nn.ModuleList([stack(2, 4), stack(3, 8)])), ("h.0", "h.1"), ()),
    "equal stages of many layers": (
        Parts(
            h=nn.ModuleList(
                Parts(blocks=nn.ModuleList(normed() for _ in range(3))) for _ in range(2)
            )
        ),
        ("h.0.blocks", "h.1.blocks"),
        (),
    ),
    "blocks with experts": (
        Parts(h=nn.ModuleList(Parts(norm=nn.LayerNorm(8), experts=stack(8)) for _ in range(2))),
        ("h",),
        (),
    ),
    "a block without experts before those with": (
        Parts(h=nn.ModuleList([Parts(mlp=block()), *(Parts(experts=stack(4)) for _ in range(2))])),
        ("h",),
        (),
    ),
    "blocks that differ in a rate and a shift": (
        Parts(h=nn.ModuleList(shifted(each) for each in range(3))),
        ("h",),
        (),
    ),
}


@pytest.mark.parametrize(("model", "stacks", "alone"), FOUND.values(), ids=FOUND)
def test_layers_are_found(model, stacks, alone):
    assert find_layer_modules(model) == LayerModules(stacks, alone)


def test_the_size_of_a_rate_tells_no_blocks_apart_but_whether_it_is_one_does():
    first, second, third = (structure(shifted(number)) for number in (1, 3, 2))
    assert first == second != third
    assert structure(shifted(0)) != structure(shifted(2))


@pytest.mark.parametrize(
    ("stacks", "alone", "names"),
    [
        (("model.layers",), (), ["block"]),
        (("model.layers",), ("stem",), ["model.layers", "stem"]),
        (("encoder.block", "decoder.block"), (), ["encoder", "decoder"]),
        (("layer1", "layer2"), (), ["layer1", "layer2"]),
        (("stages.0", "stages.1"), (), ["stages.0", "stages.1"]),
        (("vision.blocks.0.h", "vision.blocks.1.h"), (), ["blocks.0", "blocks.1"]),
        ((), ("2",), ["sequential.2"]),
    ],
)
def test_layers_are_called_after_what_tells_them_apart(stacks, alone, names):
    model = nn.Module()
    for path in stacks:
        attach(model, path, nn.ModuleList([block()]))
    for path in alone:
        attach(model, path, block())
    found = each_layer_module(model, LayerModules(stacks, alone))
    assert [each.name for each in found] == names
    assert [each.path for each in found] == [*(f"{path}.0" for path in stacks), *alone]


def attach(model, path, module):
    *parents, name = path.split(".")
    for parent in parents:
        if parent not in dict(model.named_children()):
            model.add_module(parent, nn.Module())
        model = model.get_submodule(parent)
    model.add_module(name, module)
