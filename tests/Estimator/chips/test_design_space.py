"""The accelerators of the default space, their area, and cores.json."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from Estimator.chips.accelerator import AcceleratorSet
from Estimator.chips.cores_file import cores_json, read_cores_json
from Estimator.chips.design_space import DesignSpace
from phaze_common.errors import InputError

PARAMETERS = ("num_tc", "num_vc", "width", "depth", "width_vc", "glb_bytes")


def rows_of(accelerators: AcceleratorSet) -> list[tuple[int, ...]]:
    return list(zip(*(getattr(accelerators, name).tolist() for name in PARAMETERS), strict=True))


def test_default_space_is_the_published_one(accelerators: AcceleratorSet) -> None:
    assert len(accelerators) == 29_360
    assert len(accelerators.tensor_cores) == 4_186
    assert len(accelerators.vector_cores) == 697
    assert accelerators.area_mm2.max() == pytest.approx(278.82667631, rel=1e-10)
    assert accelerators.area_mm2.min() == pytest.approx(3.355, rel=1e-4)
    assert int(np.sum(accelerators.area_mm2 >= 0.95 * accelerators.area_mm2.max())) == 424
    assert int(np.sum((accelerators.num_tc == 1) | (accelerators.num_vc == 1))) == 9_308


def test_set_equals_brute_force_over_the_published_formula(
    accelerators: AcceleratorSet, shared_data: Path
) -> None:
    model = json.loads((shared_data / "phaze" / "area_model.json").read_text())
    l2, glb = model["L2_um2"], model["GLB_um2"]

    def area_um2(num_tc: int, num_vc: int, width: int, depth: int, mib: int) -> float:
        tensor = model["mac_plus_L1_tc"] * width * depth + l2[str(max(1024, 16 * width * depth))]
        vector = model["mac_plus_L1_vc"] * width + l2[str(max(1024, 16 * width))]
        return float(num_tc * tensor + num_vc * vector + glb[str(mib)])

    limit = area_um2(8, 2, 128, 128, 128)
    cores, sizes, buffers = (
        [2**i for i in range(13)],
        [2**i for i in range(1, 9)],
        [2**i for i in range(1, 8)],
    )
    expected = {}
    for num_tc, num_vc, width, depth, mib in itertools.product(cores, cores, sizes, sizes, buffers):
        area = area_um2(num_tc, num_vc, width, depth, mib)
        if area <= limit and (area >= 0.3 * limit or num_tc == 1 or num_vc == 1):
            expected[num_tc, num_vc, width, depth, width, mib << 20] = area / 1e6
    generated = dict(zip(rows_of(accelerators), accelerators.area_mm2.tolist(), strict=True))
    assert generated.keys() == expected.keys()
    assert all(generated[chip] == pytest.approx(area, rel=1e-9) for chip, area in expected.items())


def test_core_indices_point_at_the_accelerators_own_cores(accelerators: AcceleratorSet) -> None:
    tensor, vector = accelerators.tensor_cores, accelerators.vector_cores
    for of_set, of_core in (
        ("num_tc", "num"),
        ("width", "width"),
        ("depth", "depth"),
        ("glb_bytes", "glb_bytes"),
    ):
        assert (
            getattr(accelerators, of_set) == getattr(tensor, of_core)[accelerators.tc_index]
        ).all()
    for of_set, of_core in (("num_vc", "num"), ("width_vc", "width"), ("glb_bytes", "glb_bytes")):
        assert (
            getattr(accelerators, of_set) == getattr(vector, of_core)[accelerators.vc_index]
        ).all()


def test_reference_chip_is_the_largest_and_is_found(
    space: DesignSpace, accelerators: AcceleratorSet
) -> None:
    chip = space.references[0].accelerator
    index = accelerators.find(chip)
    assert index is not None and accelerators.accelerator(index) == chip
    assert chip.area_mm2 == space.budget_mm2
    stranger = replace(chip, num_tc=3)
    assert accelerators.find(stranger) is None
    pair = AcceleratorSet.of([chip, stranger])
    assert [pair.accelerator(0), pair.accelerator(1)] == [chip, stranger]
    assert pair.fingerprint != AcceleratorSet.of([stranger, chip]).fingerprint


def test_separate_vector_width_axis(space: DesignSpace) -> None:
    axes = replace(
        space.axes,
        num_tc=(1,),
        num_vc=(1,),
        width=(8, 16),
        depth=(8,),
        width_vc=(32, 64, 96),
        glb_mib=(2,),
    )
    accelerators = replace(space, axes=axes).generate()
    assert len(accelerators) == 6
    assert set(accelerators.width_vc.tolist()) == {32, 64, 96}


def test_space_without_any_accelerator_is_refused(space: DesignSpace) -> None:
    with pytest.raises(InputError, match=r"empty.*budget of 1 mm2"):
        replace(space, budget_mm2=1.0).generate()


@pytest.mark.thorough
def test_cores_json_round_trip(accelerators: AcceleratorSet, tmp_path: Path) -> None:
    path = tmp_path / "cores.json"
    path.write_bytes(cores_json(accelerators))
    entry = json.loads(path.read_text())[0]
    assert set(entry) == {"num_tc", "num_vc", "width", "depth", "width_vc", "GLB_Buffer", "area"}
    assert entry["GLB_Buffer"] == 2 << 20 and entry["area"] == pytest.approx(3_355_047.77)
    read = read_cores_json(path)
    assert rows_of(read) == rows_of(accelerators)
    assert read.area_mm2 == pytest.approx(accelerators.area_mm2, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[{"num_tc": 1, "num_vc": 1, "width": 2, "depth": 2, "width_vc": 2, "area": 1.0}]',
            r"0\.GLB_Buffer",
        ),
        (
            '[{"num_tc": 0, "num_vc": 1, "width": 2, "depth": 2, "width_vc": 2, "GLB_Buffer": 2, '
            '"area": 1.0}]',
            r"0\.num_tc is 0",
        ),
        (
            '[{"num_tc": "many", "num_vc": 1, "width": 2, "depth": 2, "width_vc": 2, '
            '"GLB_Buffer": 2, "area": 1.0}]',
            r"0\.num_tc",
        ),
        (
            '[{"num_tc": 1, "num_vc": 1, "width": 2, "depth": 2, "width_vc": 2, "GLB_Buffer": 2, '
            '"area": NaN}]',
            "not finite",
        ),
        (
            f'[{{"num_tc": {10**30}, "num_vc": 1, "width": 2, "depth": 2, "width_vc": 2, '
            '"GLB_Buffer": 2, "area": 1}]',
            "at most",
        ),
        (
            '[{"num_tc": 1, "num_vc": 1048577, "width": 2, "depth": 2, "width_vc": 2, '
            '"GLB_Buffer": 2, "area": 1.0}]',
            "at most 1,048,576",
        ),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "no accelerator"),
        ('[{"num_tc": 1', "not valid JSON"),
    ],
)
def test_bad_cores_json_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cores.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_cores_json(path)


def test_missing_cores_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_cores_json(tmp_path / "none.json")
