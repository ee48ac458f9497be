"""Number formats of training state in launches of programs: said, or refused with a plan that can
be said."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.plan import plan_mapping
from Estimator.plans.state_formats import FORMAT_KEYS, StateFormats
from GraphExtractor.graph import Attention
from phaze.exports.launch import Exporter, Launch
from phaze.exports.megatron_lm.arguments import groups
from phaze.exports.registry import HOMES
from phaze.exports.registry import exporter as exporter_named
from phaze_common.choices import MomentDtype, Precision, StateDtype
from tests.phaze.exports.launches import launch_of

LAUNCHERS = [exporter_named(name) for name in HOMES if name != "chakra"]
PLAIN = UniformPlan(micro_batch_size=1, global_batch_size=32, dp=8, zero_stage=1)
FORMATS = [
    StateFormats(*each)
    for each in product(
        (None, *StateDtype), (None, *MomentDtype), (None, *StateDtype), (False, True)
    )
    if sum(map(bool, each)) <= 2
]


def launch_with(formats: StateFormats, **others: object) -> Launch:
    precision = Precision.FP8 if formats.fp8_weights else Precision.BF16
    return launch_of(replace(PLAIN, **{"precision": precision, "state_formats": formats, **others}))  # type: ignore[arg-type]


def flags(launch: Launch) -> dict[str, object]:
    words = [each.flag.partition(" ") for group in groups(launch) for each in group.arguments]
    return {flag: value or None for flag, _, value in words}


@pytest.mark.parametrize("exporter", LAUNCHERS, ids=lambda each: each.name)
def test_every_format_is_written_or_refused_with_a_remedy_that_works(exporter: Exporter) -> None:
    """What is refused leads, remedy by remedy, to a plan that is told; what is told differs from
    what is not stated."""
    usual = {
        precision: texts(exporter, replace(PLAIN, precision=precision))
        for precision in (Precision.BF16, Precision.FP8)
    }
    for formats in FORMATS:
        launch = launch_with(formats)
        if (
            exporter.unsupported(launch_of(replace(launch.degrees, state_formats=StateFormats())))
            is not None
        ):
            continue  # which has no such precision
        for _ in range(8):
            refused = exporter.unsupported(launch)
            if refused is None:
                break
            assert refused.nearest, refused
            launch = launch_of(changed(launch.degrees, dict(refused.nearest)))
        assert exporter.unsupported(launch) is None
        left = launch.degrees.state_formats
        narrow = {left.gradient_dtype, left.moment_dtype, left.main_weight_dtype} - {
            None,
            StateDtype.FP32,
            MomentDtype.FP32,
        }
        if (narrow or left.fp8_weights) and launch.degrees == replace(
            launch_with(formats).degrees, state_formats=left
        ):
            assert texts(exporter, launch.degrees) != usual[launch.degrees.precision], left


def texts(exporter: Exporter, degrees: UniformPlan) -> str:
    launch = launch_of(degrees)
    if exporter.unsupported(launch) is not None:
        return ""
    return "".join(str(file.content) for file in exporter.files(launch))


def changed(degrees: UniformPlan, near: dict[str, object]) -> UniformPlan:
    named = {
        "gradient_dtype": StateDtype,
        "moment_dtype": MomentDtype,
        "main_weight_dtype": StateDtype,
    }
    formats = {
        key: named[key](value) if key in named else value
        for key, value in near.items()
        if key in FORMAT_KEYS
    }
    others = {key: value for key, value in near.items() if key not in FORMAT_KEYS}
    made = replace(degrees.state_formats, **formats)  # type: ignore[arg-type]
    return replace(degrees, state_formats=made, **others)  # type: ignore[arg-type]


def test_megatron_is_told_each_format_by_its_own_flag() -> None:
    narrow = {
        "--use-precision-aware-optimizer": None,
        "--main-grads-dtype": "bf16",
        "--main-params-dtype": "fp16",
    }
    narrow |= {
        "--exp-avg-dtype": "fp8",
        "--exp-avg-sq-dtype": "fp8",
        "--grad-reduce-in-bf16": None,
        "--fp8-param-gather": None,
    }
    every = StateFormats(StateDtype.BF16, MomentDtype.FP8, StateDtype.FP16, fp8_weights=True)
    assert flags(launch_with(every)).items() >= narrow.items()
    assert not flags(launch_with(StateFormats(fp8_weights=False))).keys() & narrow.keys()
    only = flags(launch_with(StateFormats(gradient_dtype=StateDtype.BF16)))
    assert only.keys() & narrow.keys() == {
        "--grad-reduce-in-bf16"
    }  # its optimizer need not be another
    whole = StateFormats(gradient_dtype=StateDtype.FP32)
    assert "--accumulate-allreduce-grads-in-fp32" in flags(
        launch_with(whole, precision=Precision.FP16)
    )
    assert "--grad-reduce-in-bf16" not in flags(launch_with(whole))


def test_stated_formats_are_among_the_settings_of_a_launch() -> None:
    formats = StateFormats(moment_dtype=MomentDtype.BF16)
    assert (
        plan_mapping(launch_with(formats, attention=Attention.FLASH).degrees)["moment_dtype"]
        == "bf16"
    )
