"""Quantities as people write them: ``80 GB``, ``3.35 TB/s``, ``2.5 us``. The units that are known,
and what each is in another.

The name of a key says what a plain number counts (``hbm_bytes``, ``latency_s``,
``bandwidth_bytes_per_s``) and so which units a text beside it may have. Prefixes are exact: GB is
10^9 bytes, GiB 2^30; a bit (``b``, ``bit``) is an eighth of a byte (``B``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache

_TEXT = re.compile(
    r"\s*(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)\s*(?P<unit>\S.*?)\s*"
)
_LONGEST = 80  # characters of a text that is looked at
# both Greek letters that people type for micro
_SQUARES = str.maketrans({"²": "2", "^": "", "µ": "u", "μ": "u"})
_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SMALL = {"m": -3, "u": -6, "n": -9, "p": -12}


class QuantityError(ValueError):
    """A text is no quantity of the wanted kind; the message says what is."""


@dataclass(frozen=True)
class Dimension:
    """What a unit measures, which units a refusal names, and each in base units."""

    what: str
    named: tuple[str, ...]
    scales: Mapping[str, Fraction]


@lru_cache(maxsize=4096)
def unit_of_key(key: str) -> str:
    """The unit in which the name of a key ends, ``""`` where it has none."""
    return next((unit for suffix, unit in _SUFFIXES.items() if f"_{key}".endswith(suffix)), "")


def is_measured(unit: str) -> bool:
    """Whether a text with a unit can stand for a number of ``unit``, which it cannot of counts."""
    return _dimension_of(unit) is not None


def in_unit(text: str, unit: str) -> Fraction:
    """The number of ``unit`` that ``text`` says, exactly.

    Raises:
        QuantityError: it is no number with a unit of the same kind; says what is allowed.
        ValueError: nothing with a unit can be a number of ``unit``.
    """
    dimension = _dimension_of(unit)
    if dimension is None:
        raise ValueError(f"{unit!r} is no unit that texts are converted to")
    found = _TEXT.fullmatch(text) if len(text) <= _LONGEST else None
    scale = None if found is None else _scale(dimension, found["unit"])
    if found is None or scale is None:
        raise QuantityError(
            f"{allowed(unit)}{'' if found is None else _similar_units(dimension, found['unit'])}"
        )
    return Fraction(found["number"]) * scale / dimension.scales[unit]


def in_numbers(value: object, unit: str) -> object:
    """``value``, or a list, with texts that say a number of ``unit`` as that number."""
    if isinstance(value, list):
        return [in_numbers(each, unit) for each in value]
    if not isinstance(value, str) or not is_measured(unit):
        return value
    try:
        return plain_number(in_unit(value, unit))
    except (QuantityError, OverflowError):  # which whoever reads it refuses
        return value


def plain_number(exact: Fraction) -> int | float:
    """A whole number where it is one."""
    return exact.numerator if exact.denominator == 1 else float(exact)


def allowed(unit: str) -> str:
    """What may stand for a number of ``unit``: ``a size: give bytes, or ...``."""
    dimension = _dimension_of(unit)
    assert dimension is not None  # asked of measured units only
    return f"{dimension.what}: give {unit}, or a number with {', '.join(dimension.named)}"


def _similar_units(dimension: Dimension, unit: str) -> str:
    """The units of ``dimension`` that differ from ``unit`` in capital letters alone."""
    like = [each for each in dimension.scales if each.lower() == unit.translate(_SQUARES).lower()]
    return f"; {unit} is written {' or '.join(like)}" if like else ""


def _scale(dimension: Dimension, unit: str) -> Fraction | None:
    plain = unit.translate(_SQUARES)
    return dimension.scales.get(plain, dimension.scales.get(unit))


@cache
def _dimension_of(unit: str) -> Dimension | None:
    return next((each for each in dimensions() if unit in each.scales), None)


@cache
def dimensions() -> tuple[Dimension, ...]:
    """All that can be measured; the name of no unit stands for two of them."""
    size = _sizes()
    rate = dict(_per(size, "/s")) | dict(
        _per({name: each for name, each in size.items() if len(name) < 6}, "ps")
    )
    small = _prefixed(("s", "sec"), _SMALL) | {"s": Fraction(1)}
    time = (
        small
        | dict.fromkeys(("min", "minute", "minutes"), Fraction(60))
        | {"second": Fraction(1), "seconds": Fraction(1)}
    )
    time |= dict.fromkeys(("h", "hour", "hours"), Fraction(3600)) | dict.fromkeys(
        ("d", "day", "days"), Fraction(86400)
    )
    power = _prefixed(("W",), _DECIMAL | {"m": -3})
    energy = _prefixed(("J",), _DECIMAL | _SMALL) | {
        name + "h": 3600 * each for name, each in power.items() if name != "mW"
    }
    mass = {
        f"{name}{of}": Fraction(grams)
        for name, grams in _MASSES.items()
        for of in ("", "CO2", "CO2e", "CO2eq")
    }
    length = {"mm": Fraction(1), "um": Fraction(1, 10**3), "nm": Fraction(1, 10**6)}
    return (
        Dimension("a size", ("B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"), size),
        Dimension("a bandwidth", ("B/s", "MB/s", "GB/s", "TB/s", "GiB/s", "Gbit/s"), rate),
        Dimension("a time", ("s", "ms", "us", "ns", "min", "h", "days"), time),
        Dimension("a frequency", ("Hz", "kHz", "MHz", "GHz"), _prefixed(("Hz",), _DECIMAL)),
        Dimension(
            "a speed of arithmetic", ("GFLOP/s", "TFLOP/s", "PFLOP/s"), _prefixed(_FLOPS, _DECIMAL)
        ),
        Dimension(
            "an area",
            ("mm2", "um2", "cm2"),
            {"mm2": Fraction(1), "um2": Fraction(1, 10**6), "cm2": Fraction(100)},
        ),
        Dimension("an energy", ("pJ", "nJ", "J", "kJ", "kWh"), energy),
        Dimension("an energy per byte", ("pJ/byte", "pJ/bit", "nJ/byte"), dict(_each(energy, "J"))),
        Dimension("a power", ("W", "kW", "MW"), power),
        Dimension("a rate per cycle", ("B/cycle", "KiB/cycle"), dict(_per(size, "/cycle"))),
        Dimension("a length", ("nm", "um", "mm"), length),
        Dimension("a carbon intensity", ("g/kWh", "kg/kWh", "kg/MWh"), dict(_intensities(mass))),
        Dimension(
            "an amount of money",
            ("USD", "kUSD", "MUSD"),
            _prefixed(("USD",), {"": 0, "k": 3, "M": 6}),
        ),
        Dimension("a share", ("%",), {"fraction": Fraction(1), "%": Fraction(1, 100)}),
    )


_MASSES = {"g": 1, "kg": 1000, "t": 10**6}
_FLOPS = ("FLOP/s", "FLOPs/s", "FLOPS", "FLOPs", "flop/s", "flops")
_SUFFIXES = {  # of names of keys that end in a unit, the longest first
    "_bytes_per_cycle": "bytes/cycle",
    "_rows_per_cycle": "rows/cycle",
    "_g_per_kwh": "g/kWh",
    "_flops_per_s": "FLOP/s",
    "_bytes_per_s": "bytes/s",
    "_pj_per_byte": "pJ/byte",
    "_bytes_s": "bytes/s",  # as NEST writes it
    "_per_s": "",  # samples and tokens are counted
    "_hours": "h",
    "_bytes": "bytes",
    "_flops": "FLOP/s",
    "_days": "days",
    "_mm2": "mm2",
    "_um2": "um2",
    "_mib": "MiB",
    "_gib": "GiB",
    "_hz": "Hz",
    "_nm": "nm",
    "_ms": "ms",
    "_us": "us",
    "_pj": "pJ",
    "_s": "s",
    "_j": "J",
    "_w": "W",
}


def _sizes() -> dict[str, Fraction]:
    """Of bytes, and of bits, which are eighths of them; ``K`` is taken for ``k``."""
    byte, bit = ("B", "byte", "bytes"), ("b", "bit", "bits")
    prefixes = _DECIMAL | {"K": 3}
    whole = _prefixed(byte, prefixes) | _prefixed(byte, _BINARY, base=2)
    return whole | {
        name: each / 8
        for name, each in (_prefixed(bit, prefixes) | _prefixed(bit, _BINARY, base=2)).items()
    }


def _prefixed(
    units: Iterable[str], prefixes: Mapping[str, int], base: int = 10
) -> dict[str, Fraction]:
    return {
        prefix + unit: Fraction(base) ** power
        for unit in units
        for prefix, power in prefixes.items()
    }


def _per(scales: Mapping[str, Fraction], ending: str) -> Iterator[tuple[str, Fraction]]:
    return ((name + ending, scale) for name, scale in scales.items())


def _each(energies: Mapping[str, Fraction], ending: str) -> Iterator[tuple[str, Fraction]]:
    for name, scale in energies.items():
        if name.endswith(ending):
            yield from ((f"{name}/{each}", scale) for each in ("byte", "B"))
            yield from ((f"{name}/{each}", 8 * scale) for each in ("bit", "b"))


def _intensities(masses: Mapping[str, Fraction]) -> Iterator[tuple[str, Fraction]]:
    for name, grams in masses.items():
        yield from (
            (f"{name}/{energy}", grams / kwh)
            for energy, kwh in (("kWh", Fraction(1)), ("MWh", Fraction(1000)))
        )
