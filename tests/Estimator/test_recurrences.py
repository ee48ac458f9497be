"""What recurrences over the tokens cost, against closed forms."""

from dataclasses import replace

import numpy as np
import pytest

from Estimator.chips.design_space_files import load_design_space
from Estimator.chips.signatures import operator_signature
from Estimator.chips.tensor_core import TensorCoreModel
from Estimator.chips.vector_core import VectorCoreModel
from Estimator.devices.files import load_device, load_software
from Estimator.devices.functions import SCAN_OPERATIONS
from Estimator.devices.operator_cost import DeviceModel
from GraphExtractor.graph import Phase
from phaze_common.errors import InputError
from tests.builders.operators_by_hand import recurrent_operator, scan_operator

TOKENS = 1_000


@pytest.fixture(scope="module")
def space():
    return load_design_space("phaze_icml24")


@pytest.fixture(scope="module")
def a100():
    return DeviceModel(load_device("a100_80gb"), load_software("pytorch_fsdp"), "bfloat16")


@pytest.mark.parametrize("channels", [1, 100, 100_000])
def test_a_scan_rounds_up_to_lanes_in_every_step(space, channels):
    chips = space.generate()
    work = operator_signature(scan_operator(0, "selective_scan", 2, TOKENS, channels, 16)).element
    priced = VectorCoreModel(chips.vector_cores, space.platform).estimate(work)
    lanes = chips.vector_cores.width * chips.vector_cores.num
    cycles = TOKENS * np.ceil(2 * channels * 16 / lanes) * 14
    assert priced.all_arithmetic_s == pytest.approx(cycles / space.platform.frequency_hz)


def test_the_matrix_of_a_recurrence_is_read_again_only_where_the_buffer_does_not_hold_it(space):
    chips = space.generate()
    small, large = (recurrent_operator(0, 1, TOKENS, width) for width in (64, 8_192))
    model = TensorCoreModel(chips.tensor_cores, space.platform)
    for operator, again in ((small, 0), (large, 1)):
        moved = model.estimate(operator_signature(operator).tensor).all_hbm_bytes
        compulsory = operator.bytes_read + operator.bytes_written
        assert (moved >= compulsory).all()
        matrix = operator.parameter_bytes
        state = operator.gemms[0].m * (operator.gemms[0].k + operator.gemms[0].n) * 4
        held = np.maximum(chips.tensor_cores.glb_bytes - state, 0)
        assert moved == pytest.approx(compulsory + (TOKENS - 1) * np.maximum(matrix - held, 0))
        assert bool((moved > compulsory).any()) == bool(again)


def test_a_kernel_of_rwkv_takes_its_steps_and_one_of_mamba_its_work(a100):
    step_s, peak = a100.device.scans.step.value, a100.device.scans.peak.value
    narrow = scan_operator(0, "wkv", 1, TOKENS, 8, 1)
    assert a100.operator_time(narrow).arithmetic_s == pytest.approx(TOKENS * step_s)
    wide = scan_operator(0, "selective_scan", 8, TOKENS, 4_096, 16)
    elements = 8 * TOKENS * 4_096 * 16
    assert a100.operator_time(wide).arithmetic_s == pytest.approx(
        2 * elements * SCAN_OPERATIONS["selective_scan"] / peak
    )


@pytest.mark.parametrize("phase", Phase)
def test_an_lstm_launches_a_product_and_its_gates_for_every_token(a100, phase):
    time = a100.operator_time(recurrent_operator(0, 4, TOKENS, 256, phase))
    assert time.launch_s == pytest.approx(2 * TOKENS * a100.device.launch.gap.value)
    assert time.device_s > time.launch_s


def test_a_device_that_does_not_say_how_fast_its_lanes_are_is_refused_by_name(a100):
    device = replace(a100.device, scans=None)
    with pytest.raises(
        InputError, match=r"A100.* does not say how fast recurrences .* scans: \{peak"
    ):
        DeviceModel(device, a100.software, "bfloat16").operator_time(
            scan_operator(0, "wkv", 1, 8, 8, 1)
        )
