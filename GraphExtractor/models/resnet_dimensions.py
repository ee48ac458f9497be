"""A ResNet by its dimensions, as a name:
``resnet:depths=3x4x6x3,base=64,widening=1,classes=1000,image_side=224``.

Its canonical name is safe in file names, leaves out what is ImageNet's or ResNet's own and is
itself accepted as a name: ``resnet-depths1x1x1x1-base16-classes10-image_side64``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from GraphExtractor.models.resnet import CLASSES, IMAGE_SIDE, ResNet
from GraphExtractor.names import split_dimensions
from phaze_common.errors import InputError

FAMILY = "resnet"
EXAMPLE = f"{FAMILY}:depths=3x4x6x3,base=64"
_MOST_BLOCKS, _MOST_WIDE = 10_000, 2**20  # far beyond any model, far from what a machine holds
_DEFAULTS: Mapping[str, int] = {"widening": 1, "classes": CLASSES, "image_side": IMAGE_SIDE}
_SIZES = ("base", *_DEFAULTS)
_CANONICAL = re.compile(
    rf"({FAMILY})((?:-(?:depths[0-9]+(?:x[0-9]+)*|(?:{'|'.join(_SIZES)})[0-9]+))+)"
)
_DEPTHS = re.compile(r"depths=(?P<value>[0-9]{1,5}(?:x[0-9]{1,5}){3})")
_SIZE = re.compile(rf"(?P<key>{'|'.join(_SIZES)})=(?P<value>[0-9]{{1,12}})")


@dataclass(frozen=True, kw_only=True)
class ResNetDimensions:
    """Blocks of the four stages, channels that the first stage's reduce to, and more sizes."""

    depths: tuple[int, int, int, int]
    base: int
    widening: int
    classes: int
    image_side: int

    @property
    def name(self) -> str:
        """The canonical name."""
        sizes = {key: getattr(self, key) for key in _SIZES}
        given = [f"{key}{size}" for key, size in sizes.items() if size != _DEFAULTS.get(key)]
        return "-".join([FAMILY, f"depths{'x'.join(map(str, self.depths))}", *given])

    def model(self) -> ResNet:
        """The model of these dimensions."""
        return ResNet(**vars(self), layers=sum(self.depths), sequence_length=1)


def parse_resnet(name: str) -> ResNetDimensions | None:
    """Dimensions of a ResNet that a model name spells out, in either form, else None.

    Raises: InputError: the name is of this form, but a key or value is not possible or missing.
    """
    family, pairs = split_dimensions(name, _CANONICAL)
    return _read(name, pairs) if pairs and family == FAMILY else None


def _read(name: str, pairs: list[str]) -> ResNetDimensions:
    depths: tuple[int, ...] = ()
    sizes: dict[str, int] = {}
    for pair in pairs:
        several, one, key = _DEPTHS.fullmatch(pair), _SIZE.fullmatch(pair), pair.partition("=")[0]
        if (several and depths) or (one and key in sizes):
            raise InputError(f"model {name!r:.200} gives {key} twice; give it once")
        if several:
            depths = tuple(int(depth) for depth in several["value"].split("x"))
        if one:
            sizes[key] = int(one["value"])
        if not (several or one) or not all(depths if several else (sizes[key],)):
            defaults = ", ".join(f"{key} {value}" for key, value in _DEFAULTS.items())
            raise InputError(
                f"{pair!r:.80} in model {name!r:.200} is no dimension of a ResNet; give depths as "
                f"the blocks of its four stages (depths=3x4x6x3), base and, where {defaults} do "
                f"not fit, {', '.join(_DEFAULTS)}, each as key=positive whole number"
            )
        if sum(depths) > _MOST_BLOCKS or max(sizes.values(), default=0) > _MOST_WIDE:
            raise InputError(
                f"{pair!r} in model {name!r:.200} is too large; give at most {_MOST_BLOCKS:,} "
                f"blocks, and sizes of at most {_MOST_WIDE:,}"
            )
    missing = [key for key, given in (("depths", depths), ("base", "base" in sizes)) if not given]
    if missing:
        raise InputError(
            f"model {name!r:.200} lacks {' and '.join(missing)}; give depths and base, as in "
            f"{EXAMPLE}"
        )
    first, second, third, fourth = depths
    return ResNetDimensions(depths=(first, second, third, fourth), **(dict(_DEFAULTS) | sizes))
