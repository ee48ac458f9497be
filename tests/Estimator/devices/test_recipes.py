"""Trainings in fewer than 16 bits: what their products reach, read and cost to cast to."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from Estimator.devices.files import load_device, load_software
from Estimator.devices.gemm import product_time
from Estimator.devices.operator_cost import DeviceModel
from Estimator.devices.recipes import REDUCED, operand_bytes, recipes, unit_of
from Estimator.devices.written_yaml import written_yaml
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.policy import check_formats
from Estimator.plans.state_formats import StateFormats
from GraphExtractor.graph import Gemm, Phase
from phaze_common.choices import Precision
from phaze_common.errors import InputError
from tests.Estimator.devices.test_software_versions import LARGE, product

B200, H100 = load_device("b200"), load_device("h100")
CORE = load_software("megatron_core")
FEW_ROWS = Gemm(batch=1, m=16, n=8192, k=8192)
REDUCED_PRECISIONS = [each for each in Precision if each.is_reduced]


def test_every_format_of_fewer_than_16_bits_is_a_recipe() -> None:
    assert {*recipes()} == {each.matrix_format for each in REDUCED_PRECISIONS} == REDUCED
    assert {each.kind for each in REDUCED_PRECISIONS} == {Precision.FP8}
    assert not any(each.is_reduced for each in (Precision.BF16, Precision.FP16, Precision.FP32))


@pytest.mark.parametrize("precision", REDUCED_PRECISIONS, ids=str)
def test_products_read_fewer_bytes_and_are_cast_to(precision: Precision) -> None:
    name = precision.matrix_format
    assert operand_bytes(name, 2) <= 1.04 and operand_bytes("bfloat16", 2) == 2
    narrow = product_time(FEW_ROWS, B200, name, 2)
    wide = product_time(FEW_ROWS, B200, "bfloat16", 2)
    assert narrow.traffic_s < 0.6 * wide.traffic_s  # rows are few, weights are all it reads
    bare = replace(CORE, quantisation=None)
    cast, alone = (
        DeviceModel(B200, each, name).operator_time(product()).device_s for each in (CORE, bare)
    )
    assert cast > alone


def test_casts_take_longer_the_more_a_recipe_reads() -> None:
    assert CORE.quantisation is not None
    bare = replace(CORE, quantisation=None)
    casts_s = [
        DeviceModel(B200, CORE, each.matrix_format).operator_time(product()).device_s
        - DeviceModel(B200, bare, each.matrix_format).operator_time(product()).device_s
        for each in (Precision.FP8, Precision.MXFP8, Precision.FP8_CURRENT, Precision.NVFP4)
    ]
    assert all(less < more for less, more in pairwise(casts_s))


def test_a_device_multiplies_in_the_formats_of_its_units() -> None:
    assert unit_of("mxfloat8") == unit_of("float8_block") == "float8" != unit_of("float4")
    assert B200.peak_flops("float4") == 2 * B200.peak_flops("mxfloat8")
    with pytest.raises(InputError, match="no matrix units for float4"):
        H100.peak_flops("float4")


@pytest.mark.parametrize(
    ("name", "gemm", "measured_s"),
    # torch.nn.functional.linear alone (ai-dynamo/aiconfigurator 095f58a, gemm of vLLM 0.24)
    [
        ("h100", Gemm(batch=1, m=512, n=8192, k=4096), 43.3e-6),
        ("h100", Gemm(batch=1, m=4096, n=8192, k=8192), 698e-6),
        ("b200", Gemm(batch=1, m=512, n=8192, k=4096), 24.5e-6),
    ],
)
def test_products_take_as_long_as_measured(name: str, gemm: Gemm, measured_s: float) -> None:
    found = product_time(gemm, load_device(name), "bfloat16", 2, sustained=False).seconds
    assert found == pytest.approx(measured_s, rel=0.15)


def test_short_sums_reach_less_in_narrow_formats() -> None:
    def reached(number_format: str, k: int) -> float:
        gemm = Gemm(batch=1, m=16384, n=8192, k=k)
        seconds = product_time(gemm, B200, number_format, 2, sustained=False).seconds
        return 2 * gemm.m * gemm.n * gemm.k / seconds / B200.peak_flops(number_format)

    losses = [
        reached(name, 1024) / reached(name, 16384) for name in ("bfloat16", "float4", "float8")
    ]
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.6


@pytest.mark.parametrize("precision", list(Precision), ids=str)
def test_weights_in_fp8_are_of_products_that_read_fp8(precision: Precision) -> None:
    plan = UniformPlan(precision=precision, state_formats=StateFormats(fp8_weights=True))
    if precision.reads_fp8:
        check_formats(plan)
    else:
        with pytest.raises(InputError, match=f"products in {precision} do not read weights in fp8"):
            check_formats(plan)
    assert precision.reads_fp8 == (precision.is_reduced and precision is not Precision.NVFP4)


def test_products_of_a_format_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    written = written_yaml(B200)
    (tmp_path / "b200.yaml").write_text(written)
    assert load_device(str(tmp_path / "b200.yaml")).matrix == B200.matrix
    (tmp_path / "odd.yaml").write_text(written.replace("    bfloat16:\n", "    float7:\n"))
    with pytest.raises(InputError, match=r"products is given 'float7'"):
        load_device(str(tmp_path / "odd.yaml"))


def test_what_several_products_read_is_cast_once_and_routers_stay_in_bf16() -> None:
    """As q, k and v, or gate and up, which frameworks multiply in one product."""
    model = DeviceModel(B200, CORE, Precision.MXFP8.matrix_format)
    first, sibling, router = (
        replace(product(), name=f"layer.{name}.mm") for name in ("q_proj", "k_proj", "router")
    )
    cast = (model.operator_time(first), model.operator_time(sibling))
    assert cast[0].memory_s - cast[1].memory_s == pytest.approx(
        (CORE.quantisation.value + recipes()["mxfloat8"].cast.value)  # type: ignore[union-attr]
        * LARGE.m
        * LARGE.k
        / B200.memory.stream_bytes_per_s()
    )
    plain = DeviceModel(B200, CORE, "bfloat16").operator_time(router)
    assert model.operator_time(router) == plain
    gradient = replace(sibling, phase=Phase.BACKWARD)
    assert model.operator_time(gradient).memory_s > cast[1].memory_s
