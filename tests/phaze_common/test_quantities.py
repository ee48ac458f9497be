"""Quantities with units, as texts: what they are in the unit that a key or a flag counts, and which
are refused."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.chips.technology import Quantity
from phaze_common.errors import InputError
from phaze_common.quantities import QuantityError, dimensions, in_unit, is_measured, unit_of_key
from phaze_common.quantity_fields import NO_SOURCE
from phaze_common.records import to_record
from phaze_common.settings import Kind, Setting, SettingTable

TABLE = [
    ("80 GB", "bytes", 80 * 10**9),
    ("80 GiB", "bytes", 80 * 2**30),
    ("80GB", "bytes", 80 * 10**9),
    ("1.5 KiB", "bytes", 1536),
    ("64 kB", "bytes", 64_000),
    ("64 KB", "bytes", 64_000),
    ("1 bit", "bytes", Fraction(1, 8)),
    ("8 Gb", "bytes", 10**9),
    ("8 Gibit", "bytes", 2**30),
    ("512 B", "bytes", 512),
    ("80 GB", "GiB", Fraction(80 * 10**9, 2**30)),
    ("131072 KiB", "MiB", 128),
    ("3.35 TB/s", "bytes/s", 3_350_000_000_000),
    ("400 Gbit/s", "bytes/s", 50 * 10**9),
    ("400 Gb/s", "bytes/s", 50 * 10**9),
    ("400 Gbps", "bytes/s", 50 * 10**9),
    ("50 GBps", "bytes/s", 50 * 10**9),
    ("4 GiB/s", "bytes/s", 4 * 2**30),
    ("2.5 us", "s", Fraction(25, 10**7)),
    ("2.5 µs", "s", Fraction(25, 10**7)),
    ("2.5 μs", "s", Fraction(25, 10**7)),
    ("3 ns", "s", Fraction(3, 10**9)),
    ("5 min", "s", 300),
    ("2 days", "h", 48),
    ("1.41 GHz", "Hz", 1_410_000_000),
    ("312 TFLOP/s", "FLOP/s", 312 * 10**12),
    ("312 TFLOPS", "FLOP/s", 312 * 10**12),
    ("1.979 PFLOPs", "FLOP/s", 1979 * 10**12),
    ("825 mm^2", "mm2", 825),
    ("825 mm²", "mm2", 825),
    ("3 mm2", "um2", 3 * 10**6),
    ("1.2 nJ", "pJ", 1200),
    ("7 pJ/bit", "pJ/byte", 56),
    ("0.7 kW", "W", 700),
    ("8 KiB/cycle", "bytes/cycle", 8192),
    ("22 nm", "nm", 22),
    ("400 kg/MWh", "g/kWh", 400),
    ("0.4 kgCO2e/kWh", "g/kWh", 400),
    ("84 %", "fraction", Fraction(84, 100)),
    ("-1e-3 MB", "bytes", -1000),
]


@pytest.mark.parametrize(("text", "unit", "number"), TABLE)
def test_a_text_says_exactly_its_number_of_a_unit(text: str, unit: str, number: Fraction) -> None:
    assert in_unit(text, unit) == number
    assert is_measured(unit)


@pytest.mark.parametrize(
    ("text", "unit", "said"),
    [
        (
            "80 GHz",
            "bytes",
            "a size: give bytes, or a number with B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
        ),
        ("80 GB", "bytes/s", "a bandwidth: give bytes/s, or a number with B/s,"),
        ("80 GB/s", "s", "a time: give s, or a number with s, ms, us, ns, min, h, days"),
        ("2 s", "Hz", "a frequency: give Hz"),
        (
            "3 TB/s",
            "FLOP/s",
            "a speed of arithmetic: give FLOP/s, or a number with GFLOP/s, TFLOP/s, PFLOP/s",
        ),
        ("80 gb", "bytes", "; gb is written GB or Gb"),
        ("1 ghz", "Hz", "; ghz is written GHz"),
        ("GB", "bytes", "a size"),
        ("eighty GB", "bytes", "a size"),
        ("80", "bytes", "a size"),
        ("1e9999999 GB", "bytes", "a size"),
        ("1 GB 2", "bytes", "a size"),
        ("9" * 100 + " GB", "bytes", "a size"),
        ("", "bytes", "a size"),
    ],
)
def test_a_text_of_another_kind_is_refused_with_what_is_allowed(
    text: str, unit: str, said: str
) -> None:
    with pytest.raises(QuantityError) as refused:
        in_unit(text, unit)
    assert said in str(refused.value)


UNITS = [(dimension, unit) for dimension in dimensions() for unit in dimension.scales]


def test_no_name_of_a_unit_stands_for_two() -> None:
    names = [unit for _, unit in UNITS]
    assert len(set(names)) == len(names)
    for dimension in dimensions():
        assert set(dimension.named) <= dimension.scales.keys()


@given(st.sampled_from(UNITS), st.data(), st.decimals(-(10**9), 10**9, allow_nan=False, places=6))
def test_a_number_survives_the_way_through_any_unit_of_its_kind(
    chosen: tuple[object, str], data: st.DataObject, number: object
) -> None:
    dimension, unit = chosen
    other = data.draw(st.sampled_from(sorted(dimension.scales)))  # type: ignore[attr-defined]
    there = in_unit(f"{number:f} {unit}", other)
    assert there * dimension.scales[other] == Fraction(str(number)) * dimension.scales[unit]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("hbm_bytes", "bytes"),
        ("bandwidth_bytes_per_s", "bytes/s"),
        ("glb_bandwidth_bytes_per_cycle", "bytes/cycle"),
        ("latency_s", "s"),
        ("s", "s"),
        ("samples_per_s", ""),
        ("frequency_hz", "Hz"),
        ("peak_flops", "FLOP/s"),
        ("area_mm2", "mm2"),
        ("board_power_w", "W"),
        ("energy_pj", "pJ"),
        ("glb_mib", "MiB"),
        ("bandwidth_per_level_bytes_s", "bytes/s"),
        ("layers", ""),
        ("window", ""),
    ],
)
def test_the_end_of_a_key_says_what_its_number_counts(key: str, unit: str) -> None:
    assert unit_of_key(key) == unit


@dataclass(frozen=True)
class Link:
    name: str
    bandwidth_bytes_per_s: float
    steps_s: tuple[float, ...] = ()
    limit_bytes: int | None = None


@dataclass(frozen=True)
class Box:
    links: tuple[Link, ...]
    peak: Annotated[dict[str, Quantity], "FLOP/s"] = field(default_factory=dict)
    clock: Annotated[Quantity | None, "Hz"] = None
    note_s: str = ""
    devices: int = 1


def box(**values: object) -> Box:
    return to_record(Box, {"links": [], **values}, "box.yaml")


def test_texts_with_units_fill_the_fields_of_a_record() -> None:
    link = {
        "name": "80 GB",
        "bandwidth_bytes_per_s": "400 Gbit/s",
        "steps_s": ["2 us", 3e-6],
        "limit_bytes": "1 MiB",
    }
    found = box(links=[link], note_s="5 s")
    assert found.links == (Link("80 GB", 50e9, (2e-6, 3e-6), 2**20),)
    assert found.note_s == "5 s"


def test_a_constant_takes_a_text_for_its_value_or_for_all_of_it() -> None:
    stated = {"value": "312 TFLOP/s", "unit": "FLOP/s", "source": "data sheet"}
    without = {"value": "312 TFLOP/s", "source": "data sheet"}
    found = box(peak={"a": stated, "b": without, "c": "312 TFLOP/s"}, clock="1.41 GHz")
    assert found.peak["a"] == found.peak["b"] == Quantity(312e12, "FLOP/s", "data sheet")
    assert found.peak["c"] == Quantity(312e12, "FLOP/s", NO_SOURCE)
    assert found.clock == Quantity(1.41e9, "Hz", NO_SOURCE)


def test_every_text_of_another_kind_in_a_file_is_refused_by_its_key() -> None:
    links = [{"name": "a", "bandwidth_bytes_per_s": "80 GHz", "limit_bytes": "0.5 B"}]
    with pytest.raises(InputError) as refused:
        box(links=links, clock={"value": "2 GB", "unit": "Hz", "source": ""}, peak={"a": "fast"})
    said = str(refused.value)
    assert (
        "box.yaml: links.0.bandwidth_bytes_per_s is '80 GHz'; it is a bandwidth: give bytes/s, or "
        "a number with" in said
    )
    assert "box.yaml: links.0.limit_bytes is '0.5 B'; it is a whole number of bytes" in said
    assert (
        "box.yaml: clock.value is '2 GB'; it is a frequency: give Hz, or a number with Hz, kHz, "
        "MHz, GHz" in said
    )
    assert "box.yaml: peak.a is 'fast'; it is a speed of arithmetic" in said


@pytest.mark.parametrize("value", ["8", "8 GB"])
def test_counts_take_no_texts(value: str) -> None:
    with pytest.raises(InputError, match=f"devices is '{value}', but must be a whole number"):
        box(devices=value)


MEMORY = SettingTable(
    (
        Setting("memory", Kind.NUMBER, "", many=True, unit="GiB", least=0.5, most=1e6),
        Setting("buffer", Kind.INTEGER, "", unit="bytes", most=2**40),
    )
)


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (["32", "64 GiB", "80"], (32.0, 64.0, 80.0)),
        (["64", "GiB", "80"], (64.0, 80.0)),
        ("32, 64GiB 2 TiB", (32.0, 64.0, 2048.0)),
        ([32, "80 GB"], (32.0, 80e9 / 2**30)),
        ("512 MiB", (0.5,)),
        (80, (80.0,)),
    ],
)
def test_settings_take_units_beside_plain_numbers_that_mean_what_they_did(
    given: object, sizes: tuple[float, ...]
) -> None:
    assert MEMORY.read({"memory": given}, "f") == {"memory": sizes}
    assert MEMORY.read({"buffer": "4 KiB"}, "f") == {"buffer": 4096}


@pytest.mark.parametrize(
    ("key", "given", "said"),
    [
        (
            "memory",
            "80 GHz",
            "f: memory is '80 GHz'; it is a size: give GiB, or a number with B, kB, MB, GB,",
        ),
        ("memory", ["32", "lots"], "f: memory is '32 lots'; it is a size"),
        ("memory", "1 MiB", "f: memory is '1 MiB', but must be a number from 0.5 to 1000000 GiB"),
        ("memory", "1e400 GB", "f: memory is '1e400 GB', but must be a number from"),
        ("buffer", "0.3 B", "f: buffer is '0.3 B', but must be a whole number from 1"),
    ],
)
def test_settings_refuse_units_of_another_kind_by_name(key: str, given: object, said: str) -> None:
    with pytest.raises(InputError) as refused:
        MEMORY.read({key: given}, "f")
    assert str(refused.value).startswith(said)


ANY = st.text(max_size=30) | st.from_regex(
    r"[+-]?[0-9.eE]{1,12} ?[kKMGTi]{0,2}[bBsHzW/%]{1,4}", fullmatch=True
)


@given(ANY)
def test_any_text_is_a_number_or_one_sentence(text: str) -> None:
    for key in ("memory", "buffer"):
        try:
            value = MEMORY.read({key: text}, "f")[key]
        except InputError as refused:
            assert str(refused).startswith("f: ") and len(str(refused)) < 400
        else:
            numbers = value if isinstance(value, tuple) else (value,)
            assert numbers and all(isinstance(each, int | float) and each > 0 for each in numbers)
    try:
        found = to_record(Link, {"name": "a", "bandwidth_bytes_per_s": text}, "link.yaml")
    except InputError as refused:
        assert (
            "link.yaml: bandwidth_bytes_per_s is " in str(refused)
            or "finite" in str(refused)
            or "characters" in str(refused)
        )
    else:
        assert math.isfinite(found.bandwidth_bytes_per_s)
