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
from phaze_common.errors import InputError

FAMILY = "resnet"
EXAMPLE = f"{FAMILY}:depths=3x4x6x3,base=64"
_MOST_BLOCKS, _MOST_WIDE = 10_000, 2**20  # far beyond any model, far from what a machine holds
_DEFAULTS: Mapping[str, int] = {"widening": 1, "classes": CLASSES, "image_side": IMAGE_SIDE}
_SIZES = ("base", *_DEFAULTS)
_CANONICAL = re.compile(
    rf"{FAMILY}((?:-(?:depths[0-9]+(?:x[0-9]+)*|(?:{'|'.join(_SIZES)})[0-9]+))+)"
)
_DEPTHS = re.compile(r"depths=(?P<value>[0-9]{1,5}(?:x[0-9]{1,5}){3})")
_SIZE = re.compile(rf"(?P<key>{'|'.join(_SIZES)})=(?P<value>[0-9]{{1,12}})")


@dataclass(frozen=True, kw_only=True)
class ResNetDimensions:
    """The blocks of the four stages, the channels that those of the first stage reduce to, and what
    ``ResNet`` says besides."""

    depths: tuple[int, int, int, int]
    base: int
    widening: int
    classes: int
    image_side: int

    @property
    def name(self) -> str:
        """The canonical name."""
        sizes = [key for key in _SIZES if getattr(self, key) != _DEFAULTS.get(key)]
        return "-".join(
            [
                FAMILY,
                f"depths{'x'.join(map(str, self.depths))}",
                *(f"{key}{getattr(self, key)}" for key in sizes),
            ]
        )

    def model(self) -> ResNet:
        """The model of these dimensions."""
        return ResNet(
            layers=sum(self.depths),
            depths=self.depths,
            base=self.base,
            widening=self.widening,
            classes=self.classes,
            image_side=self.image_side,
            sequence_length=1,
        )


def parse_resnet(name: str) -> ResNetDimensions | None:
    """Dimensions of a ResNet that a model name spells out, in either form; None for any other name.

    Raises: InputError: the name is of this form, but a key or value is not possible or a required
        key is missing.
    """
    family, colon, text = name.partition(":")
    if colon and family == FAMILY:
        pairs = [pair.strip() for pair in text.split(",")]
    else:
        canonical = _CANONICAL.fullmatch(name)
        if canonical is None:
            return None
        pairs = [
            re.sub(r"(?<=[a-z_])(?=[0-9])", "=", part, count=1)
            for part in canonical[1].split("-")[1:]
        ]
    return _read(name, pairs)


def _read(name: str, pairs: list[str]) -> ResNetDimensions:
    depths: tuple[int, ...] = ()
    sizes: dict[str, int] = {}
    for pair in pairs:
        several, one = _DEPTHS.fullmatch(pair), _SIZE.fullmatch(pair)
        if (several and depths) or (one and one["key"] in sizes):
            raise InputError(
                f"model {name!r:.200} gives {pair.partition('=')[0]} twice; give it once"
            )
        if several:
            depths = tuple(int(depth) for depth in several["value"].split("x"))
        if one:
            sizes[one["key"]] = int(one["value"])
        if not (several or one) or not all(depths if several else (sizes[pair.partition("=")[0]],)):
            raise InputError(
                f"{pair!r:.80} in model {name!r:.200} is no dimension of a ResNet; give depths as "
                "the blocks of its four stages (depths=3x4x6x3), base and, where "
                f"{_defaults_words()} do not fit, {', '.join(_DEFAULTS)}, each as key=positive "
                "whole number"
            )
        if sum(depths) > _MOST_BLOCKS or max(sizes.values(), default=0) > _MOST_WIDE:
            raise InputError(
                f"{pair!r} in model {name!r:.200} is too large; give at most {_MOST_BLOCKS:,} "
                f"blocks, and sizes of at most {_MOST_WIDE:,}"
            )
    missing = [
        key for key, given in (("depths", bool(depths)), ("base", "base" in sizes)) if not given
    ]
    if missing:
        raise InputError(
            f"model {name!r:.200} lacks {' and '.join(missing)}; give depths and base, as in "
            f"{EXAMPLE}"
        )
    first, second, third, fourth = depths
    return ResNetDimensions(
        depths=(first, second, third, fourth),
        **{key: sizes[key] if key in sizes else _DEFAULTS[key] for key in _SIZES},
    )


def _defaults_words() -> str:
    return ", ".join(f"{key} {value}" for key, value in _DEFAULTS.items())
