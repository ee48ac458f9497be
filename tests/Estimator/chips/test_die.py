"""Whole dies: parts, chiplets, edges, clocks and watts, and chips that were built."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from Estimator.chips.accelerator import STANDARD, Accelerator, AcceleratorSet, Platform, Variant
from Estimator.chips.area import area_mm2
from Estimator.chips.clock import at_frequency, leakage_w_per_mm2, maximum_frequency_hz
from Estimator.chips.die import PARTS, check_edge, die_parts, die_process, edge_problem, too_large
from Estimator.chips.memory import MemorySystem
from Estimator.chips.memory_files import load_memory, memory_system
from Estimator.chips.power import peak_power_parts, power_parts
from Estimator.chips.published import Evidence, load_die, published_dies, published_parts
from Estimator.chips.published_tables import (
    compare_dies,
    compare_floor_plans,
    comparison_table,
    floor_plan_table,
    searched_table,
    unpublished_table,
)
from Estimator.hardware_files import (
    HARDWARE,
    hardware_names,
    load_platform,
    load_technology,
    load_vector_functions,
)
from phaze_common.errors import InputError
from phaze_common.records import read_yaml

NODES = (28, 22, 16, 7, 5, 3)


@cache
def platform_of(node: int) -> Platform:
    return load_platform(
        "phaze_hbm2", load_technology(f"foundry_{node}nm"), load_vector_functions("phaze")
    )


def chips_of(*sizes: tuple[int, int, int, int, int, int]) -> AcceleratorSet:
    return AcceleratorSet.of([Accelerator(*each, 0.0) for each in sizes])


SIZES = st.tuples(
    st.integers(1, 64),
    st.integers(1, 64),
    st.sampled_from((4, 16, 128, 256)),
    st.sampled_from((4, 16, 128, 256)),
    st.sampled_from((4, 128, 2048)),
    st.sampled_from((2**21, 2**24, 2**27)),
)
MEMORIES = st.sampled_from(hardware_names("memories"))


@given(SIZES, st.sampled_from((16, 7, 5, 3)), MEMORIES, st.integers(1, 8), st.floats(0, 2e12))
def test_parts_add_up_and_every_parameter_costs_area(
    sizes: tuple[int, int, int, int, int, int], node: int, name: str, stacks: int, links: float
) -> None:
    platform, memory = platform_of(node), MemorySystem(load_memory(name), stacks)
    larger = [
        tuple(each * (2 if place == index else 1) for place, each in enumerate(sizes))
        for index in range(len(sizes))
    ]
    chips = chips_of(sizes, *larger)  # type: ignore[arg-type]
    parts = die_parts(chips, platform, memory, links)
    columns = np.array([getattr(parts, part) for part in PARTS])
    assert (columns >= 0).all() and parts.total_mm2 == pytest.approx(columns.sum(axis=0))
    assert (parts.total_mm2[1:] > parts.total_mm2[0]).all()
    inner = columns[:5].sum(axis=0)
    assert inner == pytest.approx(
        area_mm2(
            chips.num_tc,
            chips.num_vc,
            chips.width,
            chips.depth,
            chips.width_vc,
            chips.glb_bytes,
            platform,
        )
    )
    first = parts.total_mm2[0]
    assert (
        die_parts(chips, platform, replace(memory, stacks=stacks + 1), links).total_mm2[0] > first
    )
    assert die_parts(chips, platform, memory, links + 1e11).total_mm2[0] > first
    assert (
        die_parts(
            chips, replace(platform, glb_bandwidth_bytes_per_cycle=16384.0), memory, links
        ).total_mm2[0]
        > first
    )


@given(SIZES, st.sampled_from((16, 7, 5)), st.integers(1, 8))
def test_a_chip_beyond_the_reticle_is_as_few_dies_as_fit(
    sizes: tuple[int, int, int, int, int, int], node: int, stacks: int
) -> None:
    platform, memory = platform_of(node), MemorySystem(load_memory("hbm2e"), stacks)
    die = die_process(platform.technology)
    parts = die_parts(chips_of(sizes), platform, memory, 3e11)
    count, joined = int(parts.dies[0]), float(parts.die_to_die[0])
    alone = float(parts.total_mm2[0]) - joined
    joint = (
        2
        * memory.bandwidth_bytes_per_s
        / 1e9
        * die.die_to_die_bandwidth.value
        * die.die_to_die_area.value
    )
    fits = [n for n in range(1, 65) if alone + (n - 1) * joint <= n * die.reticle.value + 1e-6]
    assert (count, joined) == (fits[0] if fits else 65, pytest.approx((count - 1) * joint))
    assert too_large(parts).tolist() == [not fits]


def test_dies_and_powers_of_the_calibration_come_out_within_fifteen_percent() -> None:
    rows = [each for each in compare_dies() if each.evidence is Evidence.CALIBRATION]
    areas = {each.name for each in rows if each.what == "area"}
    assert areas == {"TPU v1", "TPU v2", "TPU v3", "TPU v4", "TPU v4i", "V100", "A100", "H100"}
    assert {each.name for each in rows if each.unit == "W"} == {"TPU v4", "A100", "H100"}
    assert {(each.name, each.what): each.error for each in rows if abs(each.error) > 0.15} == {}


def test_dies_beyond_the_calibration_are_as_far_off_as_the_manual_says() -> None:
    errors = {
        each.name: each.error
        for each in compare_dies()
        if each.unit == "mm2" and each.evidence is not Evidence.CALIBRATION
    }
    assert errors.pop("GC200") == pytest.approx(
        0.99, abs=0.01
    )  # memory, and a router for each of 1,472 processors
    assert abs(errors.pop("LLMCompass latency design")) < 0.15
    assert errors.keys() == {"MI210", "NNP-T", "Ascend 910", "LLMCompass throughput design"}
    assert all(-0.29 < error < -0.15 for error in errors.values())


def test_published_means_in_training_lie_between_the_slower_and_the_faster_clock() -> None:
    rows = [each for each in compare_dies() if "training" in each.what]
    assert len(rows) == 4
    for slower, faster in zip(rows[::2], rows[1::2], strict=True):
        assert slower.name == faster.name and slower.published == faster.published
        assert slower.predicted < slower.published < faster.predicted


def test_floor_plans_hold_the_whole_model_and_the_whole_die() -> None:
    for die in published_dies():
        if len(die.floor_plan) > 1 and die.area is not None:
            assert sorted({"die_to_die"}.union(*(part.parts for part in die.floor_plan))) == sorted(
                PARTS
            )
            assert sum(part.area.value for part in die.floor_plan) == pytest.approx(
                die.area.value, rel=0.01
            )
            rows = [each for each in compare_floor_plans() if each.name == die.title]
            assert sum(each.predicted for each in rows) == pytest.approx(
                float(published_parts(die).total_mm2[0])
            )
    by_part = {(each.name, each.what): abs(each.error) for each in compare_floor_plans()}
    for large in (
        "unified buffer",
        "matrix unit",
        "accumulators",
        "DRAM ports",
        "control, unnamed and empty",
    ):
        assert by_part["TPU v1", large] < 0.15
    assert by_part["TPU v4i", "common memory"] < 0.15


def test_stacks_that_the_edge_cannot_carry_are_refused() -> None:
    six, seven = memory_system("hbm2e:6"), memory_system("hbm2e:7")
    assert edge_problem(np.array([826.0, 100.0]), six).tolist() == [
        False,
        True,
    ]  # GA100 has six sites
    assert edge_problem([826.0], seven).tolist() == [True]
    check_edge(826.0, six)
    with pytest.raises(
        InputError, match=r"hbm2e:7 needs 70\.0 mm .* 826 mm2 has 64\.8 mm .* at most 6 stacks"
    ):
        check_edge(826.0, seven)


@pytest.mark.parametrize(
    "text", ["hbm3e", "hbm3e:0", "hbm3e:-1", "hbm3e:2.5", "hbm3e:65", ":4", "hbm3e:four", "hbm9:4"]
)
def test_memories_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        memory_system(text)


def test_a_memory_system_holds_and_moves_what_its_stacks_do() -> None:
    system = memory_system("hbm3e:4")
    assert (system.label, system.capacity_bytes) == ("hbm3e:4", 4 * 24 * 2**30)
    assert system.bandwidth_bytes_per_s == pytest.approx(4.7104e12)


@pytest.mark.parametrize("node", NODES)
def test_a_faster_clock_needs_a_higher_voltage_up_to_the_fastest(node: int) -> None:
    die = die_process(load_technology(f"foundry_{node}nm"))
    nominal, most = at_frequency(die, die.nominal_frequency.value), maximum_frequency_hz(die)
    assert (nominal.dynamic_energy_factor, nominal.leakage_factor) == (
        pytest.approx(1),
        pytest.approx(1),
    )
    clocks = [at_frequency(die, share * most) for share in (0.05, 0.5, 0.7, 0.9, 1.0)]
    voltages = [clock.voltage_v for clock in clocks]
    assert voltages == sorted(voltages) and voltages[-1] > voltages[-2]
    assert voltages[0] == die.minimum_voltage.value and voltages[
        -1
    ] <= die.maximum_voltage.value * (1 + 1e-9)
    for clock in clocks[2:]:  # the alpha-power law, turned around
        over, base = (
            clock.voltage_v - die.threshold_voltage.value,
            die.nominal_voltage.value - die.threshold_voltage.value,
        )
        speed = (
            (over / base) ** die.velocity_saturation.value
            * die.nominal_voltage.value
            / clock.voltage_v
        )
        assert (
            clock.voltage_v == die.minimum_voltage.value
            or speed * die.nominal_frequency.value == pytest.approx(clock.frequency_hz)
        )
    hotter = leakage_w_per_mm2(
        die, nominal, die.leakage_temperature.value + die.leakage_doubling.value
    )
    assert hotter == pytest.approx(2 * leakage_w_per_mm2(die, nominal))
    for wrong in (0.0, -1e9, 1.01 * most, float("nan")):
        with pytest.raises(InputError, match="frequency is"):
            at_frequency(die, wrong)


def test_energies_are_at_the_voltage_of_the_clock_also_of_the_platforms_own() -> None:
    platform = platform_of(5)
    own, slow = platform.frequency_hz, 0.6 * platform.frequency_hz
    die, nominal = die_process(platform.technology), platform.technology
    for variant, hertz in (
        (STANDARD, own),
        (Variant(frequency_hz=own), own),
        (Variant(frequency_hz=slow), slow),
    ):
        used = platform.at(variant)
        squared = (at_frequency(die, hertz).voltage_v / die.nominal_voltage.value) ** 2
        assert squared != pytest.approx(1.0) and used.frequency_hz == hertz
        assert used.technology.mac_energy.value == pytest.approx(squared * nominal.mac_energy.value)
        assert used.technology.sram_energy.value[0] == pytest.approx(
            squared * nominal.sram_energy.value[0]
        )
        assert (
            used.technology.hbm_energy == nominal.hbm_energy
        )  # DRAM and links have supplies of their own
        assert used.at(STANDARD) == used  # once
    bare = replace(platform, technology=replace(nominal, die=None))
    assert bare.at(STANDARD) == bare  # no process is described that voltages could be of


def test_watts_add_up_and_grow_with_clock_memory_and_work() -> None:
    platform, memory, chips = (
        platform_of(7),
        memory_system("hbm3e:4"),
        chips_of((8, 2, 128, 128, 2048, 2**27)),
    )
    die, parts = die_process(platform.technology), die_parts(chips, platform, memory, 3e11)
    slow, fast = at_frequency(die, 0.9e9), at_frequency(die, 1.4e9)
    of = power_parts(100.0, 20.0, 2.0, parts, die, slow, memory)
    assert of.operations == pytest.approx(
        50.0 * slow.dynamic_energy_factor
    ) and of.off_chip == pytest.approx(10.0)
    assert of.leakage == pytest.approx(parts.total_mm2 * die.leakage.value * slow.leakage_factor)
    assert of.idle_memory == pytest.approx(4 * memory.memory.idle_power.value)
    mean = power_parts(100.0, 20.0, 2.0, parts, die, slow, memory).total_w
    assert mean == pytest.approx(
        of.operations + of.off_chip + of.clock_tree + of.leakage + of.idle_memory
    )
    assert power_parts(100.0, 20.0, 2.0, parts, die, fast, memory).total_w > mean
    assert power_parts(100.0, 20.0, 2.0, parts, die, slow, memory_system("hbm3e:5")).total_w > mean
    peak = peak_power_parts(chips, platform, memory, parts, slow).total_w
    assert peak > power_parts(0.0, 0.0, 1.0, parts, die, slow, memory).total_w
    assert peak_power_parts(chips, platform, memory, parts, fast).total_w > peak
    assert peak_power_parts(chips, platform, memory, parts, slow, 1e11).total_w > peak


def test_what_describes_no_die_is_refused() -> None:
    phaze = load_platform(
        "phaze_hbm2", load_technology("phaze_22nm"), load_vector_functions("phaze")
    )
    with pytest.raises(InputError, match="phaze_22nm describes cores and buffers but no whole die"):
        die_parts(chips_of((1, 1, 4, 4, 4, 2**21)), phaze, memory_system("hbm2:1"), 0.0)
    with pytest.raises(InputError, match="no technology named 'foundry_9nm'"):
        load_technology("foundry_9nm")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low": 2.0}, r"die\.leakage is .*low <= value <= high"),
        ({"high": 0.01}, r"die\.leakage is .*low <= value <= high"),
        ({"value": -1.0, "low": -2.0}, r"die\.leakage\.value is -1"),
        ({"unit": "W"}, r"die\.leakage\.unit is 'W'"),
        ({"confidence": "certain"}, r"die\.leakage\.confidence"),
    ],
)
def test_constants_outside_their_ranges_are_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    content = read_yaml(HARDWARE / "technologies" / "foundry_7nm.yaml")
    content["die"]["leakage"] |= change
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match=message):
        load_technology(str(own))


def test_a_die_of_an_unknown_format_is_refused(tmp_path: Path) -> None:
    content = read_yaml(HARDWARE / "dies" / "a100.yaml") | {"product_format": "posit8"}
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump(content))
    with pytest.raises(
        InputError, match=r"product_format is 'posit8'; foundry_7nm has bf16, fp32, fp8, int8"
    ):
        load_die(str(own))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"area": None}, "evidence is calibration; a die without an area is unpublished"),
        (
            {"evidence": "unpublished"},
            "evidence is unpublished; a die without an area is unpublished, and no other is",
        ),
        ({"evidence": "hearsay"}, "evidence"),
        (
            {
                "floor_plan": [
                    {
                        "what": "L2",
                        "area": {"value": 1, "unit": "mm2", "source": ""},
                        "parts": ["cache"],
                    }
                ]
            },
            "floor_plan names the part 'cache'; the model has tensor_arithmetic",
        ),
        (
            {
                "floor_plan": [
                    {
                        "what": "L2",
                        "area": {"value": -1, "unit": "mm2", "source": ""},
                        "parts": ["links"],
                    }
                ]
            },
            r"floor_plan\.0\.area\.value is -1",
        ),
    ],
)
def test_dies_that_contradict_themselves_are_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump(read_yaml(HARDWARE / "dies" / "a100.yaml") | change))
    with pytest.raises(InputError, match=message):
        load_die(str(own))


def test_what_the_manual_says_of_published_areas() -> None:
    """Those that were calibrated are within 15 %, power too; no area of the four others is."""
    calibrated = [each for each in compare_dies() if each.evidence is Evidence.CALIBRATION]
    assert len(calibrated) > 8 and all(abs(each.error) < 0.15 for each in calibrated)
    areas = [
        each
        for each in compare_dies()
        if each.evidence is Evidence.PREDICTION and each.what == "area"
    ]
    assert len(areas) == 4 and all(abs(each.error) > 0.15 for each in areas)


def test_a_die_in_the_words_of_a_search_has_its_products_and_lanes() -> None:
    chips = [die for die in published_dies() if die.chip is not None]
    assert (
        len(chips)
        == sum(
            die.area is not None and die.evidence is not Evidence.ESTIMATE
            for die in published_dies()
        )
        - 1
    )
    for die in chips:  # all but TPU v1, whose 8-bit products no search has
        assert die.chip.num_tc * die.chip.width * die.chip.depth == die.products.value, die.name
        assert (
            die.chip.num_vc * die.chip.width_vc == die.vector_lanes.value + die.simt_lanes.value
        ), die.name


@pytest.mark.parametrize(
    "table", [comparison_table, floor_plan_table, searched_table, unpublished_table]
)
def test_the_manual_shows_the_tables_as_they_are_printed(table: Callable[[], str]) -> None:
    manual = Path(__file__).parents[3] / "docs" / "physics.md"
    assert table() in manual.read_text()
