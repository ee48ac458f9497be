"""The constants that a request changes: those that it names, and what its shorthands mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from Common.errors import InputError
from Common.quantities import QuantityError, in_unit
from Estimator.constants import OF_CHIPS, ConstantChange, Kind, constant_changes

GIGA = 1e9
MOST = 1e9  # GHz or GB/s
MOST_TIMES = 1_000_000
SHORTHANDS = {"frequency": ("platform.frequency_hz", "GHz"), "hbm_bandwidth": ("platform.hbm_bandwidth_bytes_per_s", "GB/s")}
BASE = {"GHz": "Hz", "GB/s": "bytes/s"}
JOINED = "constants"  # the setting of which those of a file and of the command line count together
CONSTANTS = frozenset({JOINED, *SHORTHANDS})
OF_STACKS = "memory.stack_bandwidth_bytes_per_s"


def asked_changes(values: Mapping[str, Any], *, whole: bool) -> tuple[ConstantChange, ...]:
    """All changes that the settings in ``values`` ask; ``whole`` where memory is as it is sold.

    Raises:
        InputError: one cannot be read, or is of hardware that the request has not.
    """
    texts = list(values.get("constants") or ())
    for key, (path, _) in SHORTHANDS.items():
        name = path.rpartition(".")[2]
        paths = [path, *([OF_STACKS] if key == "hbm_bandwidth" else [])]
        again = [text for text in texts if _names(str(text).partition("=")[0].strip(), paths)]
        if values.get(key) is not None and again:
            raise InputError(f"{key} and the constant {again[0]!r:.200} both change {name}; leave one of them out")
    texts += [_meant(key, str(values[key]), whole=whole) for key in SHORTHANDS if values.get(key) is not None]
    changes = constant_changes(texts)
    on_devices = "device" in values
    for change in changes:
        if on_devices and change.kind in OF_CHIPS:
            device = f"the device {values['device']!s:.100}"
            raise InputError(f"{change.asked!r:.200} is about chips to design, but {device} is given; leave one of them out")
        if not on_devices and change.kind is Kind.DEVICE:
            raise InputError(f"{change.asked!r:.200} belongs to devices that exist; add --device, or leave it out")
        if not whole and change.kind in {Kind.MEMORY, Kind.PRICES}:
            raise InputError(
                f"{change.asked!r:.200} is about memory as it is sold and prices, which the chips have not; give --memory and "
                "--technology, as hbm2e:4 and foundry_7nm, or leave it out"
            )
    return changes


def _meant(key: str, text: str, *, whole: bool) -> str:
    """The change that a shorthand means."""
    path, unit = SHORTHANDS[key]
    given = text.strip()
    what = f"{key} is {text!r:.100}"
    if given.endswith("x"):
        if not _plain(given[:-1], MOST_TIMES):
            raise InputError(f"{what}; give a factor above 0 and below {MOST_TIMES:,}, as 2x")
        return f"{OF_STACKS if whole and key == 'hbm_bandwidth' else path}={given}"
    if whole and key == "hbm_bandwidth":
        raise InputError(f"hbm_bandwidth is {text!r:.100}, but memory as it is sold has its own; give a factor, as 2x")
    try:
        return f"{path}={float(given) * GIGA:.17g}" if _plain(given) else f"{path}={float(in_unit(given, BASE[unit])):.17g}"
    except QuantityError as error:
        raise InputError(f"{what}; give a number in {unit} above 0, or a factor, as 2x ({error})") from None


def _plain(text: str, most: float = MOST) -> bool:
    """Whether ``text`` is a number without a unit, above 0 and below ``most``."""
    try:
        return 0.0 < float(text) < most
    except ValueError:
        return False


def _names(key: str, paths: Sequence[str]) -> bool:
    """Whether ``key`` is one of ``paths``, whose unit may be left out."""
    return any(path == key or path.startswith(f"{key}_") for path in paths)


def dotted(given: Mapping[str, object]) -> dict[str, object]:
    """``given`` settings, those with a dot in their names, such as platform.glb_bandwidth, among its constants."""
    changes = [f"{key}={value}" for key, value in given.items() if "." in str(key)]
    if not changes:
        return dict(given)
    stated = given.get("constants")
    before: Sequence[object] = stated if isinstance(stated, list | tuple) else [] if stated is None else [stated]
    return {key: value for key, value in given.items() if "." not in str(key)} | {"constants": [*before, *changes]}
