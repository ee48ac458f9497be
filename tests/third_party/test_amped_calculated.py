"""Calculated parameters: what overrides them, what follows from it, and what is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_common.array_types import FloatArray
from phaze_common.errors import InputError
from third_party.amped.calculated import Quantities, calculated


class Boxes(Quantities):
    width: FloatArray
    height: FloatArray
    depth: FloatArray

    @calculated("of the ground")
    def area(self) -> FloatArray:
        return self.width * self.height

    @calculated()
    def volume(self) -> FloatArray:
        return self.area * self.depth

    @calculated()
    def perimeter(self) -> FloatArray:
        return 2 * (self.width + self.height)

    @calculated()
    def slenderness(self) -> FloatArray:
        return self.width / self.height


def boxes(wanted: tuple[str, ...] = ("volume", "perimeter"), **changes: float) -> Boxes:
    return Boxes({"width": 2.0, "height": 3.0, "depth": 4.0, **changes}, (), wanted)


def test_a_given_value_stands_before_what_is_calculated() -> None:
    assert (boxes().number("volume"), boxes().number("perimeter")) == (24, 10)
    assert boxes(depth=5.0).number("volume") == 30
    other = boxes(area=100.0)
    assert (other.number("volume"), other.number("perimeter")) == (400, 10)
    assert "area" in other.given and other.calculated == ("volume", "perimeter")


def test_calculated_ones_are_told_in_their_order() -> None:
    assert boxes().calculated == ("area", "volume", "perimeter")
    assert boxes(("perimeter",)).calculated == ("perimeter",)
    assert Boxes.area.description == "of the ground"


def test_arrays_are_computed_in_one_pass() -> None:
    many = Boxes({"width": np.arange(4.0), "height": 3.0, "depth": 4.0}, (), ("volume",))
    assert many.volume.tolist() == [0, 12, 24, 36] and many.area.shape == (4,)


def test_a_missing_value_is_named_with_who_needs_it() -> None:
    with pytest.raises(
        InputError, match=r"parameter 'depth', which volume needs, has no value; add it"
    ):
        Boxes({"width": 1.0, "height": 1.0}, (), ("volume",))
    with pytest.raises(InputError, match=r"parameter 'depth' has no value"):
        Boxes({}, (), ("depth",))
    assert Boxes({"width": 1.0, "height": 1.0}, (), ("perimeter",)).number("perimeter") == 4


class Around(Quantities):
    x: FloatArray

    @calculated()
    def a(self) -> FloatArray:
        return self.b

    @calculated()
    def b(self) -> FloatArray:
        return self.c + self.x

    @calculated()
    def c(self) -> FloatArray:
        return self.a

    @calculated()
    def d(self) -> FloatArray:
        return self.d


def test_a_cycle_is_named() -> None:
    with pytest.raises(
        InputError, match="calculated from each other: a -> b -> c -> a; give one of them a value"
    ):
        Around({"x": 1.0}, (), ("c",))
    with pytest.raises(InputError, match="d -> d;"):
        Around({"x": 1.0}, (), ("d",))
    assert Around({"x": 1.0, "b": 2.0}, (), ("c",)).number("c") == 2


def test_what_leaves_the_range_of_numbers_is_refused_by_its_name() -> None:
    with pytest.raises(InputError, match="slenderness cannot be calculated from width and height"):
        boxes(("slenderness",), height=0.0)


@given(st.dictionaries(st.sampled_from(["width", "height", "depth"]), st.integers(1, 9)))
def test_changes_are_those_of_the_formulas(changes: dict[str, int]) -> None:
    changed = boxes(**{name: float(value) for name, value in changes.items()})
    sides = {"width": 2, "height": 3, "depth": 4} | changes
    assert changed.number("volume") == sides["width"] * sides["height"] * sides["depth"]
