"""The constants that a request changes: those that it names, and what its shorthands mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from Estimator.constants import OF_CHIPS, ConstantChange, Kind, constant_changes
from phaze_common.errors import InputError
from phaze_common.quantities import QuantityError, in_unit

GIGA = 1e9
LEAST, MOST = 1e-6, 1e9  # GHz or GB/s
MOST_TIMES = 1_000_000
SHORTHANDS = {
    "frequency": ("platform.frequency_hz", "GHz"),
    "hbm_bandwidth": ("platform.hbm_bandwidth_bytes_per_s", "GB/s"),
}
BASE = {"GHz": "Hz", "GB/s": "bytes/s"}
JOINED = "constants"  # the setting of which those of a file and of the command line count together
CONSTANTS = frozenset({JOINED, *SHORTHANDS})
OF_STACKS = "memory.stack_bandwidth_bytes_per_s"


def specified_changes(values: Mapping[str, Any], *, whole: bool) -> tuple[ConstantChange, ...]:
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
            raise InputError(
                f"{key} and the constant {again[0]!r:.200} both change {name}; leave one of them "
                "out"
            )
    changes_of = {
        key: _change_of(key, str(values[key]), whole=whole)
        for key in SHORTHANDS
        if values.get(key) is not None
    }
    shorthands = [
        replace(change, asked=f"{key} {values[key]}")
        for key, change in zip(changes_of, constant_changes(changes_of.values()), strict=True)
    ]
    changes = (*constant_changes(texts), *shorthands)
    on_devices = "device" in values
    for change in changes:
        if on_devices and change.kind in OF_CHIPS:
            device = f"the device {values['device']!s:.100}"
            raise InputError(
                f"{change.asked!r:.200} is about chips to design, but {device} is given; leave "
                "one of them out"
            )
        if not on_devices and change.kind is Kind.DEVICE:
            raise InputError(
                f"{change.asked!r:.200} belongs to devices that exist; add --device, or leave it "
                "out"
            )
        if not whole and change.kind in {Kind.MEMORY, Kind.PRICES}:
            raise InputError(
                f"{change.asked!r:.200} is about memory as it is sold and prices, which the chips "
                "have not; give --memory and "
                "--technology, as hbm2e:4 and foundry_7nm, or leave it out"
            )
    return changes


def _change_of(key: str, text: str, *, whole: bool) -> str:
    path, unit = SHORTHANDS[key]
    given = text.strip()
    what = f"{key} is {text!r:.100}"
    if given.endswith("x"):
        if not LEAST <= (_plain(given[:-1]) or 0.0) <= MOST_TIMES:
            raise InputError(f"{what}; give a factor from {LEAST:g} to {MOST_TIMES:,}, as 2x")
        return f"{OF_STACKS if whole and key == 'hbm_bandwidth' else path}={given}"
    if whole and key == "hbm_bandwidth":
        raise InputError(
            f"hbm_bandwidth is {text!r:.100}, but memory as it is sold has its own; give a "
            "factor, as 2x"
        )
    plain = _plain(given)
    try:
        amount = in_unit(given, BASE[unit]) if plain is None else plain * GIGA
    except QuantityError as error:
        raise InputError(f"{what}; give a number in {unit}, or a factor, as 2x ({error})") from None
    if not LEAST * GIGA <= amount <= MOST * GIGA:
        raise InputError(
            f"{what}; give a number from {LEAST:g} to {MOST:,.0f} {unit}, or a factor, as 2x"
        )
    return f"{path}={float(amount):.17g}"


def _plain(text: str) -> float | None:
    """A number without a unit; None of what is none."""
    try:
        return float(text)
    except ValueError:
        return None


def _names(key: str, paths: Sequence[str]) -> bool:
    """Whether ``key`` is one of ``paths``, whose unit may be left out."""
    return any(path == key or path.startswith(f"{key}_") for path in paths)


def dotted(given: Mapping[str, object]) -> dict[str, object]:
    """``given`` settings, those with a dot in their names among its constants."""
    changes = [f"{key}={value}" for key, value in given.items() if "." in str(key)]
    if not changes:
        return dict(given)
    stated = given.get("constants")
    before: Sequence[object] = (
        stated if isinstance(stated, list | tuple) else [] if stated is None else [stated]
    )
    return {key: value for key, value in given.items() if "." not in str(key)} | {
        "constants": [*before, *changes]
    }
