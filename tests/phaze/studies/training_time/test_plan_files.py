"""Training plans from flags, YAML and the best.json of a search: what they mean, which one wins,
what is refused."""

import json
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from Estimator.devices.files import load_device
from Estimator.devices.written_yaml import written_yaml
from Estimator.hardware_files import HARDWARE
from Estimator.plans.degrees import Degrees, UniformPlan
from Estimator.plans.offload import Offload
from Estimator.plans.pipeline.schedule import PipelineSchedule
from Estimator.plans.plan import OF_SITES, Stage, plan_mapping
from Estimator.plans.state_formats import FORMAT_KEYS, StateFormats
from GraphExtractor.graph import Attention, Recompute
from phaze.runs.plan_files import evaluate_request
from phaze.settings.problem import hardware_report, single_plan
from phaze.settings.request import Request, settings_for
from phaze.settings.resolve import resolve
from phaze_common.choices import (
    CudaGraphs,
    Dispatcher,
    ExpertOverlap,
    ExpertWidth,
    GroupOrder,
    KeyExchange,
    LayoutName,
    MomentDtype,
    OffloadKind,
    Optimizer,
    Precision,
    SolverName,
    StageCuts,
    StateDtype,
)
from phaze_common.errors import InputError
from phaze_common.file_formats import BEST
from phaze_common.records import to_json
from phaze_common.setting_fields import Mode
from phaze_common.settings import Kind
from Solver.results import HardwareReport
from tests.builders.plans_by_hand import report_of, whole_plan

BERT = {"model": "bertlarge", "device": "a100_80gb"}


ONE = UniformPlan(  # as the framework of the device does
    overlap_gradients=False,
    overlap_tensor=False,
    dispatcher=Dispatcher.ALLTOALL,
    overlap_experts=ExpertOverlap.NONE,
)


def plan_of(*layers: dict[str, Any], path: Path | None = None) -> UniformPlan:
    """The plan of the command line given, over BERT-large on A100."""
    return single_plan(asked_for(*layers, path=path))


def asked_for(*layers: dict[str, Any], path: Path | None = None) -> Request:
    """The request of the command line given, over BERT-large on A100."""
    asked: dict[str, Any] = {} if path else dict(BERT)
    for layer in layers:
        asked |= layer
    return evaluate_request(path, asked)


def resolved(plan: UniformPlan) -> dict[str, Any]:
    return {key: value for key, value in plan_mapping(plan).items() if value is not None}


def written(folder: Path, **plan: object) -> Path:
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(plan))
    return path


def test_the_default_is_one_device_one_micro_batch() -> None:
    found = asked_for()
    assert single_plan(found) == ONE
    assert (
        found.workload.models[0].name,
        found.workload.sequence_length,
        found.hardware.device,
    ) == (
        "bertlarge",
        (512,),
        "a100_80gb",
    )
    device = found.records.device
    assert device is not None and (found.hardware.cluster, found.hardware.software) == (
        device.cluster,
        device.software,
    )


def test_every_field_of_a_plan_can_be_asked_for() -> None:
    asked = {field.name for field in fields(UniformPlan)} - {
        "gpipe",
        "layer_order",
        "state_formats",
    } | {"schedule", *FORMAT_KEYS}
    assert asked <= set(settings_for(Mode.EVALUATE).keys)
    assert asked - {"offload", "cuda_graphs", *OF_SITES, *FORMAT_KEYS} == set(
        plan_mapping(ONE)
    )  # which only plans tell that say something of them
    formats = StateFormats(StateDtype.BF16, MomentDtype.FP8, StateDtype.FP16, fp8_weights=True)
    stated = replace(
        ONE,
        offload=Offload(optimizer=1.0),
        cuda_graphs=CudaGraphs.LAYER,
        sites=2,
        outer_steps=100,
        site_gbit_per_s=1.0,
        outer_dtype=MomentDtype.FP8,
        state_formats=formats,
    )
    assert asked == set(plan_mapping(stated))


def test_the_names_of_choices_are_those_of_the_records() -> None:
    choices = {
        setting.key: setting.choices
        for setting in settings_for(Mode.EVALUATE).settings
        if setting.kind is Kind.CHOICE
    }
    records = {
        "schedule": PipelineSchedule,
        "recompute": Recompute,
        "optimizer": Optimizer,
        "precision": Precision,
        "attention": Attention,
        "group_order": set(GroupOrder) - {GroupOrder.TIERS},  # which stands for many
        "layout": set(LayoutName) - {LayoutName.AUTO},
        "exchange": KeyExchange,
        "solver": SolverName,
        "stage_cuts": StageCuts,
        "cuda_graphs": CudaGraphs,
        "dispatcher": Dispatcher,
        "overlap_experts": ExpertOverlap,
        "etp": ExpertWidth,
        "offload": OffloadKind,
        "gradient_dtype": StateDtype,
        "moment_dtype": MomentDtype,
        "main_weight_dtype": StateDtype,
        "outer_dtype": MomentDtype,
    }
    assert {key: set(names) for key, names in choices.items()} == {
        key: {name.value for name in names} for key, names in records.items()
    }


degrees = st.sampled_from([1, 2, 3, 4, 8])
dividing = st.sampled_from([1, 2, 4, 8])  # BERT-large's heads and sequence
plans = st.builds(
    UniformPlan,
    micro_batch_size=degrees,
    global_batch_size=st.integers(64, 10_000),
    tp=dividing,
    pp=degrees,
    dp=degrees,
    cp=dividing,
    interleave=st.just(1) | degrees,
    recompute=st.sampled_from(Recompute),
    sequence_parallel=st.booleans(),
    zero_stage=st.integers(0, 3),
    optimizer=st.sampled_from([each.value for each in Optimizer]),
    precision=st.sampled_from([Precision.FP16, Precision.BF16]),  # what the device has
    attention=st.sampled_from(Attention),
    group_order=st.sampled_from([GroupOrder.DATA_INNER, GroupOrder.PIPELINE_INNER]),
    overlap_gradients=st.booleans(),
    overlap_tensor=st.booleans(),
    dispatcher=st.sampled_from(Dispatcher),
    overlap_experts=st.sampled_from(ExpertOverlap),
    cuda_graphs=st.sampled_from(CudaGraphs),
    state_formats=st.builds(
        StateFormats,
        st.none() | st.sampled_from(StateDtype),
        st.none(),
        st.none() | st.sampled_from(StateDtype),
    ),
)


@given(plans, st.booleans(), st.booleans(), st.sampled_from([None, 128]))
@settings(max_examples=40)
def test_a_resolved_plan_reads_back_as_itself(
    plan: UniformPlan, gpipe: bool, cut: bool, length: int | None
) -> None:
    if gpipe and plan.interleave == 1:
        plan = replace(plan, gpipe=True)
    if plan.pp == 1 or plan.micro_batches % plan.pp or plan.chunks > 24:
        plan = replace(plan, interleave=1)
    if cut:
        plan = replace(plan, stage_layers=tuple(1 + chunk % 3 for chunk in range(plan.chunks)))
    first = asked_for(plan_mapping(plan), {"sequence_length": length})
    assert single_plan(first) == plan
    again = asked_for(yaml.safe_load(yaml.safe_dump(first.as_mapping())))
    assert again == first and single_plan(again) == plan


def test_flags_beat_the_file_and_null_is_the_default(tmp_path: Path) -> None:
    path = written(
        tmp_path, **BERT, tp=8, dp=4, **{"global-batch-size": 64}, recompute="full", cp=None
    )
    assert plan_of(path=path) == replace(
        ONE, tp=8, dp=4, global_batch_size=64, recompute=Recompute.FULL
    )
    changed = plan_of({"tp": "2", "recompute": None, "model": "bertbase"}, path=path)
    assert changed == replace(ONE, tp=2, dp=4, global_batch_size=64)


def test_what_the_command_line_changes_outdates_what_the_file_derived_from_it(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, **BERT, pp=2, stage_layers=[20, 6], dp=4, global_batch_size=64)
    assert plan_of(path=path).stage_layers == (20, 6)
    assert plan_of({"pp": 2}, path=path).stage_layers == (20, 6)
    assert plan_of({"pp": 4}, path=path).stage_layers is None
    assert plan_of({"devices": 16}, path=path).dp == 8
    interleaved = written(
        tmp_path, **BERT, pp=2, interleave=2, schedule="interleaved", global_batch_size=64
    )
    assert plan_of(path=interleaved).schedule is PipelineSchedule.INTERLEAVED
    assert plan_of({"interleave": 1}, path=interleaved).schedule is PipelineSchedule.ONE_F_ONE_B
    assert plan_of({"schedule": "gpipe"}, path=interleaved).schedule is PipelineSchedule.GPIPE


@pytest.mark.parametrize(
    ("asked", "dp"), [({}, 24), ({"tp": 2, "pp": 3}, 4), ({"tp": 2, "cp": 2, "dp": 6}, 6)]
)
def test_replicas_are_what_a_number_of_devices_leaves(asked: dict[str, Any], dp: int) -> None:
    plan = plan_of(asked, {"devices": 24, "global_batch_size": 24})
    assert (plan.dp, plan.devices) == (dp, 24)


def test_the_global_batch_is_one_micro_batch_per_replica_unless_given() -> None:
    assert plan_of({"dp": 4, "micro_batch_size": 2}).global_batch_size == 8


def test_fully_sharded_is_zero_stage_3(tmp_path: Path) -> None:
    assert plan_of({"fsdp": True}).zero_stage == plan_of({"zero_stage": 3}).zero_stage == 3
    assert plan_of({"fsdp": False}).zero_stage == 0
    assert plan_of({"zero_stage": 1}, path=written(tmp_path, **BERT, fsdp=True)).zero_stage == 1
    with pytest.raises(InputError, match="--fsdp and --zero-stage exclude each other"):
        plan_of({"fsdp": True, "zero_stage": 2})


def test_a_device_without_bf16_trains_in_fp16(tmp_path: Path) -> None:
    a100 = load_device("a100_80gb")
    peak = {name: value for name, value in a100.matrix.peak.items() if name != "bfloat16"}
    (tmp_path / "old.yaml").write_text(
        written_yaml(replace(a100, matrix=replace(a100.matrix, peak=peak)))
    )
    asked = {"device": str(tmp_path / "old.yaml")}
    assert plan_of().precision is Precision.BF16
    assert plan_of(asked).precision is Precision.FP16
    with pytest.raises(InputError, match="no matrix units for bfloat16; give --precision fp16"):
        plan_of(asked, {"precision": "bf16"})


def test_hardware_files_of_a_plan_are_beside_it_and_those_of_a_flag_are_not(tmp_path: Path) -> None:
    for kind, name in (
        ("devices", "a100_80gb"),
        ("clusters", "phaze_icml24"),
        ("software", "megatron_2022"),
    ):
        (tmp_path / f"{kind}.yaml").write_text((HARDWARE / kind / f"{name}.yaml").read_text())
    hardware = {"device": "devices.yaml", "cluster": "clusters.yaml", "software": "software.yaml"}
    path = written(tmp_path, model="bertlarge", **hardware)
    found = asked_for(path=path).records
    assert found.device is not None
    assert (found.device.name, found.cluster.name, found.software.name) == (
        "a100_80gb",
        "phaze_icml24",
        "megatron_2022",
    )
    with pytest.raises(InputError, match=r"device 'devices\.yaml' is not a file"):
        asked_for({"device": "devices.yaml"}, path=path)


def test_batches_that_do_not_divide_are_noted() -> None:
    assert evaluate_request(None, BERT).notes == ()
    (note,) = evaluate_request(
        None, BERT | {"dp": 3, "micro_batch_size": 2, "global_batch_size": 10}
    ).notes
    assert note.startswith("global batch size 10 is not a multiple of micro-batch size x dp = 6")


def search_result(
    folder: Path, *names: str, hardware: HardwareReport | None = None, **changes: Any
) -> Path:
    """The best.json of a search over ``names``, as far as it is read: a plan of 26 layers for each
    model, and the hardware."""
    degrees = Degrees(tp=2, dp=8, micro_batch_size=4, recompute=Recompute.SELECTIVE)
    layers = tuple(f"layer.{each}" for each in range(26))
    cuts = pairwise((0, 3, 6, 9, 26) if "interleave" in changes else (0, 9, 26))
    chunks = [Stage(layers[first:stop], degrees) for first, stop in cuts]
    plan = whole_plan(
        *chunks,
        sequence_length=256,
        attention=Attention.EAGER,
        optimizer="sgd",
        global_batch_size=4100,
        group_order=GroupOrder.PIPELINE_INNER,
        overlap_tensor=None,
    )
    plans = {}
    for place, name in enumerate(names):
        stages = tuple(
            replace(chunk, degrees=replace(degrees, tp=2 ** (place + 1))) for chunk in chunks
        )
        plans[name] = json.loads(
            to_json(report_of(replace(plan, model=name, stages=stages, **changes)))
        )
    chip = resolve({}, {"model": "bertlarge", "chip": "tpuv4_like", "hbm_size": 80})
    known = json.loads(to_json(hardware or hardware_report(chip)))
    folder.mkdir(exist_ok=True)
    (folder / "best.json").write_text(
        json.dumps(BEST.stamped({"optimal": bool(names), "models": plans, "hardware": known}))
    )
    return folder / "best.json"


def test_the_plan_of_a_search(tmp_path: Path) -> None:
    path = search_result(tmp_path / "run", "bertlarge", "bertbase")
    found = asked_for(path=path)
    assert (found.workload.models[0].name, found.workload.sequence_length) == ("bertlarge", (256,))
    wanted = replace(
        ONE,
        micro_batch_size=4,
        global_batch_size=4100,
        tp=2,
        pp=2,
        dp=8,
        recompute=Recompute.SELECTIVE,
        optimizer="sgd",
        attention=Attention.EAGER,
        group_order=GroupOrder.PIPELINE_INNER,
        stage_layers=(9, 17),
    )
    assert single_plan(found) == wanted
    assert found.chunk_layers is not None and found.chunk_layers.layers == tuple(
        tuple(f"layer.{each}" for each in part) for part in (range(9), range(9, 26))
    )
    other = asked_for({"device": "a100_80gb", "model": "bertbase", "zero-stage": 1}, path=path)
    assert (other.workload.models[0].name, single_plan(other)) == (
        "bertbase",
        replace(wanted, tp=4, zero_stage=1),
    )
    with pytest.raises(
        InputError, match="holds no plan of gpt2; it holds those of bertlarge, bertbase"
    ):
        asked_for({"device": "a100_80gb", "model": "gpt2"}, path=path)


def test_a_search_brings_its_accelerator(tmp_path: Path) -> None:
    found = asked_for(path=search_result(tmp_path / "run", "bertlarge"))
    wanted = resolve({}, {"model": "bertlarge", "chip": "tpuv4_like"}).records
    assert (found.records.chip, found.records.space, found.records.cluster) == (
        wanted.chip,
        wanted.space,
        wanted.cluster,
    )
    assert (found.hardware.hbm_size, found.hardware.cluster, found.hardware.design_space) == (
        (80.0,),
        "phaze_icml24",
        "phaze_icml24",
    )


def test_a_search_on_devices_brings_them_whatever_their_names_stand_for_now(tmp_path: Path) -> None:
    asked = {"model": "bertlarge", "device": "v100_32gb", "cluster": "phaze_icml24", "devices": 64}
    hardware = hardware_report(resolve({}, asked))
    device = hardware.records.device
    assert device is not None
    changed = replace(hardware.records, device=replace(device, title="what it was then"))
    gone = replace(
        hardware, device="/gone/device.yaml", software="/gone/software.yaml", records=changed
    )
    chosen = {
        "precision": Precision.FP16,
        "interleave": 2,
        "global_batch_size": 4096,
    }
    path = search_result(tmp_path / "run", "bertlarge", hardware=gone, **chosen)
    found = asked_for(path=path)
    assert (
        found.records.device == changed.device
        and found.records.software == hardware.records.software
    )
    assert found.records.cluster.num_devices == 64
    plan = single_plan(found)
    assert (plan.pp, plan.interleave, plan.schedule, plan.precision) == (
        2,
        2,
        PipelineSchedule.INTERLEAVED,
        Precision.FP16,
    )
    named = asked_for({"device": "v100_32gb"}, path=path)
    assert (named.records.device, named.hardware.cluster) == (device, device.cluster)
    moved = asked_for({"device": "a100_80gb"}, path=path)
    assert (moved.hardware.device, moved.hardware.cluster, single_plan(moved)) == (
        "a100_80gb",
        "dgx_a100",
        plan,
    )


def test_a_search_that_found_nothing_holds_no_plan(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"best\.json holds no plan: nothing was feasible"):
        asked_for({"device": "a100_80gb"}, path=search_result(tmp_path / "run"))


@pytest.mark.parametrize("missing", ["stages", "sequence_length", "interleave"])
def test_a_search_file_that_lacks_something_is_refused(tmp_path: Path, missing: str) -> None:
    path = search_result(tmp_path / "run", "bertlarge")
    content = json.loads(path.read_text())
    del content["models"]["bertlarge"][missing]
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="not one that this version of phaze wrote"):
        asked_for({"device": "a100_80gb"}, path=path)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"objective": "throughput"}, "unknown key 'objective'"),
    "HBM of a device": ({"hbm_size": 32}, "32 is about chips to design"),
    "width that divides no heads": ({"tp": 3}, "use one of 1, 2, 4, 8, 16"),
    "context that divides no sequence": ({"cp": 3}, "use a divisor of 512"),
    "experts of none": ({"ep": 2, "dp": 2}, "has no experts"),
    "more devices than the cluster has": (
        {"dp": 8192},
        "dp 8192 needs 8192 devices, dgx_a100 has 4096; possible with the rest",
    ),
    "misspelled key": ({"micro_batch": 3}, "did you mean 'micro_batch_size'"),
    "several models": ({"model": ["bertlarge", "gpt2"]}, "non-empty text"),
    "unknown model": ({"model": "bertlagre"}, "unknown model 'bertlagre'"),
    "unknown device": ({"device": "a1000"}, "no device named 'a1000'; known: "),
    "unknown cluster": ({"cluster": "imaginary"}, "no cluster named 'imaginary'"),
    "unknown software": ({"software": "imaginary"}, "no software named 'imaginary'"),
    "zero degree": ({"tp": 0}, "whole number from 1"),
    "list for a number": ({"tp": [1, 2]}, "whole number"),
    "unknown precision": ({"precision": "int8"}, "fp16, bf16, fp8"),
    "devices that do not divide": (
        {"devices": 10, "tp": 4},
        "no multiple of tp 4 x pp 1 x cp 1 = 4; give --devices 8 or 12",
    ),
    "devices that do not agree": (
        {"devices": 16, "tp": 4, "dp": 2},
        "tp 4 x pp 1 x cp 1 x dp 2 = 8; give --dp 4 or --devices 8",
    ),
    "1F1B of several chunks": (
        {"pp": 2, "interleave": 2, "schedule": "1f1b"},
        "schedule 1f1b runs one chunk per stage",
    ),
    "interleaved without chunks": ({"pp": 2, "schedule": "interleaved"}, "interleave 2 or more"),
    "GPipe of several chunks": (
        {"pp": 2, "interleave": 2, "schedule": "gpipe"},
        "schedule gpipe runs one chunk per stage",
    ),
    "too few stages": ({"pp": 2, "stage_layers": [26]}, "stage_layers has 1 entries"),
    "interleaving of one stage": (
        {"interleave": 2},
        "needs pp and interleave of at least 2, given pp 1 and interleave 2",
    ),
    "more chunks than blocks": (
        {"pp": 8, "interleave": 4, "global_batch_size": 8},
        "pp x interleave is 32, for 24 blocks; give at most 24",
    ),
    "small batch": ({"dp": 8, "global_batch_size": 4}, "need a global batch of at least 8"),
}


@pytest.mark.parametrize(("asked", "said"), BAD.values(), ids=BAD)
def test_what_contradicts_itself_is_refused_from_flags_and_files(
    tmp_path: Path, asked: dict[str, Any], said: str
) -> None:
    for above, path in ((asked, None), ({}, written(tmp_path, **(BERT | asked)))):
        with pytest.raises(InputError) as refused:
            asked_for(above, path=path)
        assert said in str(refused.value)


NO_PLANS = [
    "[1, 2]",
    "just words",
    "{tp: [",
    "\x00",
    '{"tp": 1, "optimal": true}',
    '{"optimal": 1, "models": 3}',
]


@pytest.mark.parametrize("name", ["plan.yaml", "plan.json"])
@pytest.mark.parametrize("text", NO_PLANS)
def test_files_that_are_no_plan_are_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        asked_for({"device": "a100_80gb"}, path=path)
    with pytest.raises(InputError, match="cannot read"):
        asked_for(path=tmp_path / "nowhere" / name)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.dictionaries(
        st.sampled_from(settings_for(Mode.EVALUATE).keys) | st.text(), values, max_size=4
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_mapping_gives_a_plan_or_an_input_error(tmp_path: Path, asked: dict[str, Any]) -> None:
    (tmp_path / "any.yaml").write_text(yaml.safe_dump(BERT | asked))
    (tmp_path / "any.json").write_text(
        json.dumps({"optimal": True, "models": {"bertlarge": asked}, "hardware": asked})
    )
    for path, above in (
        (None, BERT | asked),
        (tmp_path / "any.yaml", {}),
        (tmp_path / "any.json", {"device": "a100_80gb"}),
    ):
        try:
            found = evaluate_request(path, above)
        except InputError as error:
            assert str(error)
        else:
            assert evaluate_request(None, found.as_mapping()) == found
