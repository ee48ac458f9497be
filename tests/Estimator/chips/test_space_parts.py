"""Design spaces in parts: disjoint, together the whole, each generated without the others."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from Estimator.chips import design_space
from Estimator.chips.accelerator import AcceleratorSet
from Estimator.chips.design_space_files import load_design_space
from Estimator.chips.space_part import MOST_PARTS, WHOLE, SpacePart
from Estimator.hardware_files import hardware_names
from phaze_common.errors import InputError
from tests.builders.samples import sampled

SHIPPED = hardware_names("design_spaces")
LARGE = "datacenter_5nm"


def chips(found: AcceleratorSet) -> list[tuple[object, ...]]:
    """Everything that tells them apart, without making a record of each."""
    columns = (
        found.num_tc,
        found.num_vc,
        found.width,
        found.depth,
        found.width_vc,
        found.glb_bytes,
    )
    sizes = zip(*(column.tolist() for column in columns), strict=True)
    return list(
        zip(sizes, found.memory_system, found.frequency_hz, found.area_mm2.tolist(), strict=True)
    )


@pytest.mark.parametrize("name", sampled(SHIPPED, [each for each in SHIPPED if each != LARGE]))
@pytest.mark.parametrize("count", [3, 8])
def test_parts_of_shipped_spaces_are_disjoint_and_together_the_whole(name: str, count: int) -> None:
    space = load_design_space(name)
    parts = [chips(space.generate(part)) for part in SpacePart.all_of(count)]
    every, whole = [chip for part in parts for chip in part], chips(space.generate())
    assert len(every) == len(whole) == len({*every}) and {*every} == {*whole}
    assert space.part_sizes(count).tolist() == [len(part) for part in parts]
    if len(whole) > 100 * count:  # of few chips some parts have more by chance
        assert max(map(len, parts)) < 2 * min(map(len, parts))


def test_places_are_divided_whatever_their_number() -> None:
    for count in (1, 2, 5, 7):
        for first, end in ((0, 1), (0, 29), (29, 58), (3, 4), (58, 58)):
            found = [part.places(first, end) for part in SpacePart.all_of(count)]
            assert np.array_equal(np.sort(np.concatenate(found)), np.arange(first, end))
            assert all((np.diff(places) > 0).all() for places in found)


def test_a_part_has_all_values_of_an_axis_with_as_many_values_as_there_are_parts() -> None:
    space = load_design_space("phaze_icml24")
    part = space.generate(SpacePart(2, len(space.axes.glb_mib)))
    assert {*part.glb_bytes.tolist()} == {*space.generate().glb_bytes.tolist()}


@pytest.mark.parametrize("name", [each for each in SHIPPED if each != LARGE])
def test_chips_are_generated_in_the_order_of_their_places(name: str) -> None:
    space = load_design_space(name)
    found = space.generate(SpacePart(3, 40))
    places = [space.place(found.accelerator(row)) for row in range(len(found))]
    if space.axes.frequency_ghz is not None:  # by memory, links and clock
        assert {place[2] for place in places} == set(range(len(space.axes.frequency_ghz)))
    assert places == sorted(places)


def test_a_grid_too_large_to_have_at_once_is_generated_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = load_design_space("phaze_icml24")
    monkeypatch.setattr(design_space, "LARGEST_GRID", space.combinations // 2)
    with pytest.raises(InputError, match="divide its search with run_solver --parts 2"):
        space.generate()
    parts = [len(space.generate(part)) for part in SpacePart.all_of(5)]
    assert sum(parts) == 29360 and space.part_sizes(5).tolist() == parts
    path = tmp_path / "space.yaml"
    path.write_text(yaml.safe_dump({"name": "none"}))
    with pytest.raises(InputError):
        load_design_space(str(path))


def test_only_the_whole_space_must_have_chips() -> None:
    space = replace(load_design_space("phaze_icml24"), budget_mm2=0.1)
    assert not len(space.generate(SpacePart(1, 2)))
    with pytest.raises(InputError, match="phaze_icml24 is empty: of 75712 accelerators"):
        space.generate()


@pytest.mark.parametrize(
    "text", ["", "3", "0/3", "4/3", "-1/3", "1/0", "1/3/5", f"1/{MOST_PARTS + 1}", "1 / 3", "a/b"]
)
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no part of a space; give K/N"):
        SpacePart.parsed(text)


def test_a_part_is_written_as_it_is_read() -> None:
    assert str(SpacePart.parsed("3/8")) == "3/8" and SpacePart.parsed("1/1") == WHOLE
