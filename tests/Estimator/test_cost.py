"""Dollars and carbon of chips: yields and dies by hand, what more memory costs, prices that make no
sense."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.chips.clock import at_frequency
from Estimator.chips.cost import (
    chip_price,
    die_cost_usd,
    die_yield,
    dies_per_wafer,
    embodied_carbon,
    load_prices,
    switches_usd,
)
from Estimator.chips.die import PARTS, die_parts, die_process
from Estimator.chips.memory import MemorySystem
from Estimator.chips.memory_files import load_memory, memory_system
from Estimator.chips.power import power_parts
from Estimator.chips.published import load_die, published_parts
from Estimator.hardware_files import (
    HARDWARE,
    hardware_names,
    load_platform,
    load_technology,
    load_vector_functions,
)
from Estimator.quantity import UncertainQuantity
from phaze_common.errors import InputError
from phaze_common.records import read_yaml

PRICES = "datacenter_2025"


def test_yield_and_cost_of_an_a100_die_by_hand() -> None:
    die, prices = die_process(load_technology("foundry_7nm")), load_prices(PRICES)
    whole = (1 + 8.26 * 0.09 / 3) ** -3
    dies = math.pi * 150**2 / 826 - math.pi * 300 / math.sqrt(2 * 826)
    assert (float(die_yield(826.0, die)), float(dies_per_wafer(826.0, die))) == (
        pytest.approx(whole),
        pytest.approx(dies),
    )
    assert (whole, dies) == (pytest.approx(0.515, abs=1e-3), pytest.approx(62.4, abs=0.1))
    cost = float(die_cost_usd(826.0, die, prices))
    assert cost == pytest.approx((9346 / dies + 5) / (whole + 0.5 * (1 - whole)))
    assert (
        9346 / dies < cost < 9346 / dies / whole
    )  # no defect, or every defect, costs a die: 150 and 291 USD
    smaller = float(
        die_cost_usd(610.0, die, prices)
    )  # CSET 2020 has 233 USD, at 40 good dies on a wafer
    assert 120 < smaller < 233


def test_costs_of_known_dies_beside_published_estimates() -> None:
    """Dollars worked out by hand; published: LLMCompass (ISCA 2024, table IV), CSET 2020, and the
    press of an H100."""
    prices, dies = (
        load_prices(PRICES),
        {node: die_process(load_technology(f"foundry_{node}nm")) for node in (7, 5)},
    )
    a100, h100 = (
        float(die_cost_usd(826.0, dies[7], prices)),
        float(die_cost_usd(814.0, dies[5], prices)),
    )
    assert a100 == pytest.approx(204.4, abs=0.1)
    assert 151 < a100 < 233 * 826 / 610  # LLMCompass, where no defect costs; CSET by area
    flawless = replace(dies[7], defect_density=nothing(dies[7].defect_density))
    untested = replace(prices, die_test=nothing(prices.die_test))
    for area, published in ((826.0, 151.0), (478.0, 80.0), (787.0, 142.0)):
        assert float(die_cost_usd(area, flawless, untested)) == pytest.approx(published, rel=0.01)
    assert (
        h100 == pytest.approx(366.8, abs=0.1) and h100 > 300
    )  # beyond the press, who have a cheaper wafer
    assert (
        200 < (13400 / 63.479 + 5) / (0.48666 + 0.5 * (1 - 0.48666)) < 300
    )  # at the press's price of one


def nothing(constant: UncertainQuantity) -> UncertainQuantity:
    return replace(constant, value=0.0, low=0.0, high=0.0)


def test_price_of_an_h100_package_by_hand() -> None:
    die, prices, memory = (
        die_process(load_technology("foundry_5nm")),
        load_prices(PRICES),
        memory_system("hbm3:5"),
    )
    made = 814 * 0.04 + (814 + 5 * 125) * 0.08 + 6 * 12
    by_hand = (366.79 + 80 * 12 + made) / 0.995**6
    assert by_hand == pytest.approx(
        1593.7, abs=0.1
    )  # Raymond James (2023) have 3,320 with more for assembly, test and memory
    parts = published_parts(load_die("h100"))
    scale = 814 / float(parts.total_mm2[0])
    whole = replace(parts, **{name: scale * getattr(parts, name) for name in PARTS})
    assert float(chip_price(whole, die, memory, 0.0, prices).chip_usd[0]) == pytest.approx(
        by_hand, abs=0.1
    )


@pytest.mark.parametrize("node", [28, 22, 16, 7, 5, 3])
def test_larger_dies_yield_less_and_cost_more(node: int) -> None:
    die, prices = die_process(load_technology(f"foundry_{node}nm")), load_prices(PRICES)
    areas = np.array([1.0, 10.0, 100.0, 400.0, 858.0])
    assert (np.diff(die_yield(areas, die)) < 0).all() and die_yield(0.0, die) == 1.0
    assert (np.diff(dies_per_wafer(areas, die)) < 0).all()
    assert (np.diff(die_cost_usd(areas, die, prices)) > 0).all()
    assert (
        np.diff(die_cost_usd(areas, die, prices) / areas)[-1] > 0
    )  # a mm2 of a large die costs more than of a medium one


@given(
    st.sampled_from([name for name in hardware_names("memories") if name.startswith("hbm")]),
    st.integers(1, 8),
    st.integers(1, 64),
    st.sampled_from([16, 7, 5, 3]),
)
def test_more_memory_never_costs_nothing(name: str, stacks: int, cores: int, node: int) -> None:
    platform = load_platform(
        "phaze_hbm2", load_technology(f"foundry_{node}nm"), load_vector_functions("phaze")
    )
    chips, die = (
        AcceleratorSet.of([Accelerator(cores, 2, 128, 128, 512, 2**25, 0.0)]),
        die_process(platform.technology),
    )
    clock, prices = at_frequency(die, 1.05e9), load_prices(PRICES)
    area, money, power, carbon = [], [], [], []
    for count in (stacks, stacks + 1):
        memory = MemorySystem(load_memory(name), count)
        parts = die_parts(chips, platform, memory, 2e11)
        area.append(parts.total_mm2[0])
        money.append(chip_price(parts, die, memory, 2e11, prices).total_usd[0])
        power.append(power_parts(10.0, 0.0, 1.0, parts, die, clock, memory).total_w[0])
        carbon.append(embodied_carbon(parts, die, memory, prices).memory[0])
    assert (
        area[0] < area[1] and money[0] < money[1] and power[0] < power[1] and carbon[0] < carbon[1]
    )


def test_parts_of_the_price_by_hand() -> None:
    platform = load_platform(
        "phaze_hbm2", load_technology("foundry_5nm"), load_vector_functions("phaze")
    )
    chips, die = (
        AcceleratorSet.of([Accelerator(8, 2, 128, 128, 2048, 2**27, 0.0)]),
        die_process(platform.technology),
    )
    prices, memory = load_prices(PRICES), memory_system("hbm3e:4")
    parts = die_parts(chips, platform, memory, 2e11)
    area = float(parts.total_mm2[0])
    cost = chip_price(parts, die, memory, 2e11, prices)
    dies, stacks = float(die_cost_usd(area, die, prices)), 96 * 15.0
    made = area * 0.04 + (area + 4 * 125) * 0.08 + 5 * 12
    assert (float(cost.dies[0]), float(cost.memory[0])) == (
        pytest.approx(dies),
        pytest.approx(stacks),
    )
    assert float(cost.package[0]) == pytest.approx(made + (dies + stacks + made) * (0.995**-5 - 1))
    assert float(cost.links[0]) == pytest.approx(200 * 0.6)
    assert cost.total_usd == pytest.approx(cost.chip_usd + cost.board + cost.links + cost.server)
    carbon = embodied_carbon(parts, die, memory, prices)
    per_cm2 = 2.75 * 0.494 + die.wafer_gases.value + 0.5
    whole = float(die_yield(area, die))
    wafer = math.pi * 15**2 * per_cm2 / float(dies_per_wafer(area, die))
    assert float(carbon.dies[0]) == pytest.approx(wafer / (whole + 0.5 * (1 - whole)))
    assert float(carbon.total_kg[0]) == pytest.approx(
        float(carbon.dies[0]) + 5 * 0.15 + 96 * 0.35 + 170
    )


def test_switches_of_more_devices_cost_more() -> None:
    prices = load_prices(PRICES)
    costs = [switches_usd(50e9, devices, prices) for devices in (1, 64, 65, 2048, 2049, 65536)]
    assert costs == pytest.approx([0.0, 450.0, 1350.0, 1350.0, 2250.0, 2250.0])


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        ("board", {"value": -1.0, "low": -1.0}, r"board\.value is -1.*zero or positive"),
        ("electricity", {"low": 0.2}, r"electricity is .*low <= value <= high"),
        ("electricity", {"unit": "EUR per kWh"}, r"electricity\.unit is 'EUR per kWh'"),
        ("salvaged", {"high": 1.5}, r"salvaged goes up to 1\.5"),
        ("pue", {"low": 0.9}, r"pue goes down to 0\.9"),
    ],
)
def test_prices_that_make_no_sense_are_refused(
    tmp_path: Path, key: str, change: dict[str, object], message: str
) -> None:
    content = read_yaml(HARDWARE / "prices" / f"{PRICES}.yaml")
    content[key] |= change
    content["date"] = str(content["date"])
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match=message):
        load_prices(str(own))
