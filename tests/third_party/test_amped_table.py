"""The reactive table of parameters: what follows a change, and what is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_common.errors import InputError
from third_party.amped import Formula, ParameterTable


def formulas(*each: Formula) -> dict[str, Formula]:
    return {formula.name: formula for formula in each}


AREA = formulas(
    Formula("area", ("width", "height"), lambda width, height: width * height),
    Formula("volume", ("area", "depth"), lambda area, depth: area * depth),
    Formula("perimeter", ("width", "height"), lambda width, height: 2 * (width + height)),
)


def table(**changes: float) -> ParameterTable:
    return ParameterTable(
        AREA, {"width": 2.0, "height": 3.0, "depth": 4.0, **changes}, ("volume", "perimeter")
    )


def test_what_depends_on_a_change_follows_and_nothing_else() -> None:
    boxes = table()
    assert (boxes.number("volume"), boxes.number("perimeter")) == (24, 10)
    assert boxes.set(depth=5.0) == ("volume",)
    assert boxes.number("volume") == 30
    assert set(boxes.set(width=1.0, height=1.0)) == {"area", "volume", "perimeter"}
    assert (boxes.number("volume"), boxes.number("perimeter")) == (5, 4)


def test_dependents_come_behind_what_they_depend_on() -> None:
    order = table().calculated
    assert order.index("area") < order.index("volume")


def test_a_calculated_parameter_that_is_set_stays() -> None:
    boxes = table()
    boxes.set(area=100.0)
    assert boxes.number("volume") == 400 and "area" in boxes.given
    boxes.set(width=50.0)
    assert (
        boxes.number("area") == 100
        and boxes.number("volume") == 400
        and boxes.number("perimeter") == 106
    )


def test_arrays_are_computed_in_one_pass() -> None:
    boxes = table()
    boxes.set(width=np.arange(4.0))
    assert boxes["volume"].tolist() == [0, 12, 24, 36] and boxes["area"].shape == (4,)


def test_only_what_is_asked_for_is_needed() -> None:
    sides = ParameterTable(AREA, {"width": 1.0, "height": 1.0}, ("perimeter",))
    assert sides.calculated == ("perimeter",)
    with pytest.raises(InputError, match="unknown parameter 'depht'"):
        table().set(depht=1.0)
    with pytest.raises(InputError, match="unknown parameter 'volum'; did you mean 'volume'"):
        _ = table()["volum"]


def test_a_missing_value_is_named_with_who_needs_it() -> None:
    with pytest.raises(
        InputError, match=r"parameter 'depth', which volume needs, has no value; add it"
    ):
        ParameterTable(AREA, {"width": 1.0, "height": 1.0}, ("volume",))
    with pytest.raises(InputError, match=r"parameter 'weight' has no value"):
        ParameterTable(AREA, {}, ("weight",))


def test_a_cycle_is_named() -> None:
    around = formulas(
        Formula("a", ("b",), lambda b: b),
        Formula("b", ("c", "x"), lambda c, x: c + x),
        Formula("c", ("a",), lambda a: a),
        Formula("d", ("d",), lambda d: d),
    )
    with pytest.raises(
        InputError, match="calculated from each other: a -> b -> c -> a; give one of them a value"
    ):
        ParameterTable(around, {"x": 1.0}, ("c",))
    with pytest.raises(InputError, match="d -> d;"):
        ParameterTable(around, {"x": 1.0}, ("d",))
    assert ParameterTable(around, {"x": 1.0, "b": 2.0}, ("c",)).number("c") == 2


def test_a_refused_change_changes_nothing() -> None:
    ratio = formulas(
        Formula("ratio", ("one", "other"), lambda one, other: one / other),
        Formula("twice", ("one",), lambda one: 2 * one),
    )
    numbers = ParameterTable(ratio, {"one": 1.0, "other": 2.0}, ("ratio", "twice"))
    with pytest.raises(InputError, match="ratio cannot be calculated from one and other"):
        numbers.set(one=3.0, other=0.0)
    assert (
        numbers.number("one"),
        numbers.number("other"),
        numbers.number("ratio"),
        numbers.number("twice"),
    ) == (1, 2, 0.5, 2)


@given(
    st.lists(
        st.tuples(st.sampled_from(["width", "height", "depth"]), st.integers(1, 9)), max_size=8
    )
)
def test_a_changed_table_is_a_new_one(changes: list[tuple[str, int]]) -> None:
    changed = table()
    for name, value in changes:
        changed.set(**{name: float(value)})
    fresh = table(**{name: float(value) for name, value in changes})
    assert all(
        changed.number(name) == fresh.number(name) for name in (*fresh.given, *fresh.calculated)
    )
