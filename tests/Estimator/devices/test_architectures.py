"""What devices can run: what they cannot is refused in a sentence, with what they run instead."""

from dataclasses import replace

import pytest

from Estimator.devices.architectures import architecture_of, architectures, check_runs
from Estimator.devices.files import device_names, load_attention, load_device
from Estimator.hardware_files import HARDWARE
from phaze.runs.plan_files import evaluate_request
from phaze.studies.evaluation import evaluated
from phaze.studies.explain.features import plan_features
from phaze_common.choices import Dispatcher, Precision
from phaze_common.errors import InputError

GIVEN = {"model": "gpt2", "global_batch_size": 8}


@pytest.mark.parametrize("name", device_names())
def test_every_device_is_of_a_family_and_what_this_runs_is_described(name: str) -> None:
    device = load_device(name)
    family = architecture_of(device)
    assert family is not None
    described = [each for each in Precision if each.is_reduced and _described(name, each)]
    assert {*described} <= {*family.reduced}
    assert name in ("gaudi3", "trainium1") or {*family.reduced} <= {*described}


def _described(name: str, precision: Precision) -> bool:
    try:
        check_runs(load_device(name), precision, (), False, None)
    except InputError:
        return False
    return True


def test_families_name_kernels_that_there_are() -> None:
    for family in architectures().values():
        for kernel in family.attention:
            assert load_attention(kernel).name == kernel
    assert {each.stem for each in (HARDWARE / "attention").glob("*.yaml")} == {
        kernel for family in architectures().values() for kernel in family.attention
    }


@pytest.mark.parametrize(
    ("device", "setting", "sentence"),
    [
        ("h100", {"precision": "mxfp8"}, "no products in mxfp8; give .*fp8_current or fp8_block"),
        ("mi300x", {"precision": "mxfp8"}, "no products in mxfp8"),
        ("tpu_v7x", {"precision": "mxfp8"}, "no products in mxfp8; give .*fp8 or fp8_current"),
        ("trainium2", {"precision": "mxfp8"}, "no products in mxfp8"),
        ("gaudi2", {"precision": "mxfp8"}, "no products in mxfp8"),
        ("rtx_4090", {"precision": "mxfp8"}, "no products in mxfp8"),
        ("mi355x", {"precision": "nvfp4"}, "no products in nvfp4; give .* or mxfp8"),
        ("gaudi3", {"precision": "fp8"}, "runs fp8, but what its products reach so is not"),
        ("v100_32gb", {"precision": "bf16"}, "no matrix units for bfloat16; give .*fp16 or fp32"),
        ("tpu_v6e", {"cuda_graphs": "layer"}, "replays no CUDA graphs"),
        ("tpu_v6e", {"attention_kernel": "flash_3"}, "no attention kernel flash_3; leave"),
        ("a100_80gb", {"attention_kernel": "flash_3"}, "give flash_1, flash_2, cudnn or triton"),
        ("tpu_v6e", {"dispatcher": "deepep"}, "give --dispatcher alltoall or allgather"),
        ("mi300x", {"dispatcher": "hybridep"}, "alltoall, allgather or deepep"),
        ("a100_80gb", {"dispatch_fp8": True}, "no fp8 to send tokens in; leave --dispatch-fp8 out"),
    ],
)
def test_what_a_device_cannot_run_is_refused(
    device: str, setting: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        evaluate_request(None, GIVEN | {"device": device} | setting)


def test_a_device_with_fp8_sends_tokens_in_it() -> None:
    for device in ("h100", "mi300x"):
        assert evaluate_request(None, GIVEN | {"device": device, "dispatch_fp8": True})


def test_a_device_of_no_family_runs_what_it_is_described_in() -> None:
    own = replace(load_device("h100"), architecture=None)
    check_runs(own, Precision.MXFP8, (Dispatcher.HYBRIDEP,), True, "flash_3")
    with pytest.raises(InputError, match="no matrix units for float4"):
        check_runs(own, Precision.NVFP4, (), False, None)


def test_features_that_a_device_lacks_are_not_recommended() -> None:
    request = evaluate_request(None, GIVEN | {"device": "tpu_v6e"})
    found = plan_features(request)
    assert "cuda_graphs" not in {each.key for each in (*found.changes, *found.together)}
    assert evaluated(request).iteration.iteration_s == found.plan.iteration.iteration_s
