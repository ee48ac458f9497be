"""Training plans from flags, YAML and the best.json of a search: what they mean, which one wins, what is refused."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from Solver.placement.problem import GroupOrder
from Studies.adapters import evaluation

from Common.choices import Objective, Optimizer
from Common.errors import InputError
from Common.settings import Kind
from Estimator.chips.accelerator import Accelerator
from Estimator.devices.device_yaml import device_yaml
from Estimator.devices.files import load_device
from Estimator.hardware_files import HARDWARE
from GraphExtractor.graph import Attention, Recompute
from Plans.pipeline.schedule import PipelineSchedule
from Plans.plan import Precision, TrainingPlan
from Plans.results import PipelineReport, StageReport, Status
from Solver.results import Counts, DesignPoint, ModelPlan, SearchResult, TimeBreakdown
from Studies.annotations import Mode
from Studies.evaluation import Evaluation
from Studies.plan_files import evaluate_request
from Studies.request import settings_for
from Studies.resolve import resolve
from Studies.run_directory import best_json

PIPELINE = PipelineReport("1f1b", 2, 16, (0.1, 0.1), (0.2, 0.2), (0.0, 0.01), (0.01, 0.0), (0.0,), (0.0,), False, (0.5, 0.5), 0.0)
BERT = {"model": "bertlarge", "device": "a100_80gb"}


ONE = TrainingPlan(overlap_gradients=False, overlap_tensor=False)  # as the framework of the device does


def plan_of(*layers: dict[str, Any], path: Path | None = None) -> TrainingPlan:
    """The plan of the command line given, over BERT-large on A100."""
    return evaluated(*layers, path=path).plan


def evaluated(*layers: dict[str, Any], path: Path | None = None) -> Evaluation:
    asked: dict[str, Any] = {} if path else dict(BERT)
    for layer in layers:
        asked |= layer
    return evaluation(evaluate_request(path, asked))


def written(folder: Path, **plan: object) -> Path:
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(plan))
    return path


def test_the_default_is_one_device_one_micro_batch() -> None:
    found = evaluated()
    assert found.plan == ONE
    assert (found.model, found.sequence_length, found.device.name) == ("bertlarge", 512, "a100_80gb")
    assert (found.cluster.name, found.software.name) == (found.device.cluster, found.device.software)


def test_every_field_of_a_plan_can_be_asked_for() -> None:
    asked = {field.name for field in fields(TrainingPlan)} - {"gpipe"} | {"schedule"}
    assert asked <= set(settings_for(Mode.EVALUATE).keys)
    assert asked | {"sequence_length"} == set(evaluated().plan_mapping())


def test_the_names_of_choices_are_those_of_the_records() -> None:
    choices = {setting.key: setting.choices for setting in settings_for(Mode.EVALUATE).settings if setting.kind is Kind.CHOICE}
    records = {
        "schedule": PipelineSchedule,
        "recompute": Recompute,
        "optimizer": Optimizer,
        "precision": Precision,
        "attention": Attention,
        "group_order": GroupOrder,
    }
    assert {key: set(names) for key, names in choices.items()} == {
        key: {name.value for name in names} for key, names in records.items()
    }


degrees = st.sampled_from([1, 2, 3, 4, 8])
dividing = st.sampled_from([1, 2, 4, 8])  # BERT-large's heads and sequence
plans = st.builds(
    TrainingPlan,
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
    group_order=st.sampled_from(GroupOrder),
    overlap_gradients=st.booleans(),
    overlap_tensor=st.booleans(),
)


@given(plans, st.booleans(), st.booleans(), st.sampled_from([None, 128]))
@settings(max_examples=40)
def test_a_resolved_plan_reads_back_as_itself(plan: TrainingPlan, gpipe: bool, cut: bool, length: int | None) -> None:
    if gpipe and plan.interleave == 1:
        plan = replace(plan, gpipe=True)
    if cut:
        plan = replace(plan, stage_layers=tuple(1 + chunk % 3 for chunk in range(plan.chunks)))
    first = evaluated({**replace(evaluated(), plan=plan).plan_mapping(), "sequence_length": length})
    assert first.plan == plan
    again = evaluated(yaml.safe_load(yaml.safe_dump(first.plan_mapping())))
    assert again == first


def test_flags_beat_the_file_and_null_is_the_default(tmp_path: Path) -> None:
    path = written(tmp_path, **BERT, tp=8, dp=4, **{"global-batch-size": 64}, recompute="full", cp=None)
    assert plan_of(path=path) == replace(ONE, tp=8, dp=4, global_batch_size=64, recompute=Recompute.FULL)
    changed = plan_of({"tp": "2", "recompute": None, "model": "bertbase"}, path=path)
    assert changed == replace(ONE, tp=2, dp=4, global_batch_size=64)


def test_what_the_command_line_changes_outdates_what_the_file_derived_from_it(tmp_path: Path) -> None:
    path = written(tmp_path, **BERT, pp=2, stage_layers=[20, 6], dp=4, global_batch_size=64)
    assert plan_of(path=path).stage_layers == (20, 6)
    assert plan_of({"pp": 2}, path=path).stage_layers == (20, 6)
    assert plan_of({"pp": 4}, path=path).stage_layers is None
    assert plan_of({"devices": 16}, path=path).dp == 8
    interleaved = written(tmp_path, **BERT, pp=2, interleave=2, schedule="interleaved", global_batch_size=64)
    assert plan_of(path=interleaved).schedule is PipelineSchedule.INTERLEAVED
    assert plan_of({"interleave": 1}, path=interleaved).schedule is PipelineSchedule.ONE_F_ONE_B
    assert plan_of({"schedule": "gpipe"}, path=interleaved).schedule is PipelineSchedule.GPIPE


@pytest.mark.parametrize(("asked", "dp"), [({}, 24), ({"tp": 2, "pp": 3}, 4), ({"tp": 2, "cp": 2, "dp": 6}, 6)])
def test_replicas_are_what_a_number_of_devices_leaves(asked: dict[str, Any], dp: int) -> None:
    plan = plan_of(asked, {"devices": 24, "global_batch_size": 24})
    assert (plan.dp, plan.devices) == (dp, 24)


def test_the_global_batch_is_one_micro_batch_per_replica_unless_given() -> None:
    assert plan_of({"dp": 4, "micro_batch_size": 2}).global_batch_size == 8


def test_fully_sharded_is_zero_stage_3(tmp_path: Path) -> None:
    assert plan_of({"fsdp": True}).zero_stage == plan_of({"zero_stage": 3}).zero_stage == 3
    assert plan_of({"fsdp": False}).zero_stage == 0
    assert plan_of({"zero_stage": 1}, path=written(tmp_path, **BERT, fsdp=True)).zero_stage == 1
    with pytest.raises(InputError, match="fsdp and zero_stage contradict"):
        plan_of({"fsdp": True, "zero_stage": 2})


def test_a_device_without_bf16_trains_in_fp16(tmp_path: Path) -> None:
    a100 = load_device("a100_80gb")
    peak = {name: value for name, value in a100.matrix.peak.items() if name != "bfloat16"}
    (tmp_path / "old.yaml").write_text(device_yaml(replace(a100, matrix=replace(a100.matrix, peak=peak))))
    asked = {"device": str(tmp_path / "old.yaml")}
    assert plan_of().precision is Precision.BF16
    assert plan_of(asked).precision is Precision.FP16
    with pytest.raises(InputError, match="no matrix units for bfloat16; it has them for float16"):
        plan_of(asked, {"precision": "bf16"})


def test_hardware_files_of_a_plan_are_beside_it_and_those_of_a_flag_are_not(tmp_path: Path) -> None:
    for kind, name in (("devices", "a100_80gb"), ("clusters", "phaze_icml24"), ("software", "megatron_2022")):
        (tmp_path / f"{kind}.yaml").write_text((HARDWARE / kind / f"{name}.yaml").read_text())
    hardware = {"device": "devices.yaml", "cluster": "clusters.yaml", "software": "software.yaml"}
    path = written(tmp_path, model="bertlarge", **hardware)
    found = evaluated(path=path)
    assert (found.device.name, found.cluster.name, found.software.name) == ("a100_80gb", "phaze_icml24", "megatron_2022")
    with pytest.raises(InputError, match=r"device 'devices\.yaml' is not a file"):
        evaluated({"device": "devices.yaml"}, path=path)


def test_batches_that_do_not_divide_are_noted() -> None:
    assert evaluate_request(None, BERT).notes == ()
    (note,) = evaluate_request(None, BERT | {"dp": 3, "micro_batch_size": 2, "global_batch_size": 10}).notes
    assert note.startswith("global batch size 10 is not a multiple of micro-batch size x dp = 6")


def search_result(folder: Path, *names: str) -> Path:
    """The best.json of a search over ``names``, and the study beside it, as a run writes them."""
    chip = Accelerator(num_tc=8, num_vc=2, width=64, depth=128, width_vc=32, glb_bytes=2**24, area_mm2=123.0)
    plan = ModelPlan(
        throughput_samples_per_s=400.0,
        time_per_batch_s=10.0,
        time_per_batch_bound_s=10.0,
        micro_batch_size=4,
        hbm_bytes=32 * 2**30,
        recompute="selective",
        tp=2,
        pp=2,
        dp=8,
        micro_batches_per_pipeline=128,
        devices_used=32,
        stages=tuple(
            StageReport(tuple(f"layer {each}" for each in range(count)), 16, 0.1, 1e9, 5e8, 4e8, 1e8) for count in (9, 17)
        ),
        pipeline=PIPELINE,
        breakdown_s=TimeBreakdown(3.0, 5.0, 0.0, 0.5, 1.0, 0.5, 0.0, 0.2),
        model_flops_utilization=0.4,
        energy_per_sample_j=3.0,
        tc_utilization=0.5,
        vc_utilization=0.4,
        expert=None,
        speedup_over_expert=None,
    )
    plans = {name: replace(plan, tp=2 ** (place + 1)) for place, name in enumerate(names)}
    best = DesignPoint(Status.OPTIMAL, True, Objective.THROUGHPUT, 400.0, chip, 32 * 2**30, plans, None) if names else None
    result = SearchResult("s", Status.OPTIMAL, best, (), (), (), Counts(1, 1, 0, 0), str(folder))
    folder.mkdir(exist_ok=True)
    (folder / "best.json").write_bytes(best_json(result))
    return folder / "best.json"


def test_the_plan_of_a_search(tmp_path: Path) -> None:
    path = search_result(tmp_path / "run", "bertlarge", "bertbase")
    found = evaluated({"device": "a100_80gb"}, path=path)
    assert found.model == "bertlarge"
    wanted = replace(
        ONE,
        micro_batch_size=4,
        global_batch_size=4096,
        tp=2,
        pp=2,
        dp=8,
        recompute=Recompute.SELECTIVE,
        stage_layers=(9, 17),
    )
    assert found.plan == wanted
    other = evaluated({"device": "a100_80gb", "model": "bertbase", "zero-stage": 1}, path=path)
    assert (other.model, other.plan) == ("bertbase", replace(wanted, tp=4, zero_stage=1))
    with pytest.raises(InputError, match="holds no plan of gpt2; it holds those of bertlarge, bertbase"):
        evaluated({"device": "a100_80gb", "model": "gpt2"}, path=path)


def test_a_search_brings_what_its_study_fixed(tmp_path: Path) -> None:
    path = search_result(tmp_path / "run", "bertlarge")
    asked = {"model": "bertlarge", "sequence_length": 256, "attention": "eager", "optimizer": "sgd", "zero_stage": 1}
    study = resolve({}, asked | {"global_batch_size": 4100, "sequence_parallel": True, "micro_batch_size": 4})
    path.with_name("study.yaml").write_text(study.to_yaml())
    found = evaluated({"device": "a100_80gb"}, path=path)
    plan = found.plan
    assert (found.sequence_length, plan.attention, plan.optimizer, plan.zero_stage) == (256, Attention.EAGER, "sgd", 1)
    assert (plan.global_batch_size, plan.sequence_parallel, found.cluster.name) == (4100, True, found.device.cluster)


def test_a_search_on_devices_brings_them(tmp_path: Path) -> None:
    path = search_result(tmp_path / "run", "bertlarge")
    hardware = {"device": "v100_32gb", "cluster": "phaze_icml24", "software": None}
    searched = {"zero_stage": [0, 1], "sequence_parallel": None, "global_batch_size": 64}
    path.with_name("study.yaml").write_text(yaml.safe_dump({"model": "bertlarge", **hardware, **searched}))
    content = json.loads(path.read_text())
    chosen = {"zero_stage": 1, "sequence_parallel": True, "cp": 2, "interleave": 2, "schedule": "interleaved"}
    stages = [{"layers": ["layer"] * count} for count in (5, 8, 7, 6)]
    content["models"]["bertlarge"] |= chosen | {"precision": "fp16", "stages": stages}
    path.write_text(json.dumps(content))
    found = evaluated({}, path=path)
    plan = found.plan
    assert (found.device.name, found.cluster.name, found.software.name) == ("v100_32gb", "phaze_icml24", found.device.software)
    assert (plan.zero_stage, plan.sequence_parallel, plan.cp, plan.schedule) == (1, True, 2, PipelineSchedule.INTERLEAVED)
    assert (plan.stage_layers, plan.global_batch_size, plan.precision) == ((5, 8, 7, 6), 64, Precision.FP16)
    moved = evaluated({"device": "a100_80gb"}, path=path)
    assert (moved.device.name, moved.cluster.name, moved.plan) == ("a100_80gb", moved.device.cluster, plan)


def test_a_search_that_found_nothing_holds_no_plan(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"best\.json holds no plan: nothing was feasible"):
        evaluated({"device": "a100_80gb"}, path=search_result(tmp_path / "run"))


@pytest.mark.parametrize("missing", ["stages", "micro_batch_size", "dp"])
def test_a_search_file_that_lacks_something_is_refused(tmp_path: Path, missing: str) -> None:
    path = search_result(tmp_path / "run", "bertlarge")
    content = json.loads(path.read_text())
    del content["models"]["bertlarge"][missing]
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="not one that a search wrote"):
        evaluated({"device": "a100_80gb"}, path=path)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"objective": "throughput"}, "unknown key 'objective'"),
    "HBM of a device": ({"hbm_size": 32}, "hbm_size is about chips to design"),
    "width that divides no heads": ({"tp": 3}, "use one of 1, 2, 4, 8, 16"),
    "context that divides no sequence": ({"cp": 3}, "use a divisor of 512"),
    "experts of none": ({"ep": 2, "dp": 2}, "has no experts"),
    "more devices than the cluster has": ({"dp": 8192}, "dp 8192 needs 8192 devices, dgx_a100 has 4096; possible with the rest"),
    "misspelled key": ({"micro_batch": 3}, "did you mean 'micro_batch_size'"),
    "several models": ({"model": ["bertlarge", "gpt2"]}, "non-empty text"),
    "unknown model": ({"model": "bertlagre"}, "unknown model 'bertlagre'"),
    "unknown device": ({"device": "a1000"}, "no device named 'a1000'; known: "),
    "unknown cluster": ({"cluster": "imaginary"}, "no cluster named 'imaginary'"),
    "unknown software": ({"software": "imaginary"}, "no software named 'imaginary'"),
    "zero degree": ({"tp": 0}, "whole number from 1"),
    "list for a number": ({"tp": [1, 2]}, "whole number"),
    "unknown precision": ({"precision": "int8"}, "fp16, bf16, fp8"),
    "devices that do not divide": ({"devices": 10, "tp": 4}, "no multiple of tp 4 x pp 1 x cp 1 = 4"),
    "devices that do not agree": ({"devices": 16, "tp": 4, "dp": 2}, "devices is 16, but tp 4 x pp 1 x cp 1 x dp 2 = 8"),
    "1F1B of several chunks": ({"pp": 2, "interleave": 2, "schedule": "1f1b"}, "schedule 1f1b runs one chunk per stage"),
    "interleaved without chunks": ({"pp": 2, "schedule": "interleaved"}, "interleave 2 or more"),
    "GPipe of several chunks": ({"pp": 2, "interleave": 2, "schedule": "gpipe"}, "GPipe runs one chunk per stage"),
    "too few stages": ({"pp": 2, "stage_layers": [26]}, "stage_layers has 1 entries"),
    "small batch": ({"dp": 8, "global_batch_size": 4}, "need a global batch of at least 8"),
}


@pytest.mark.parametrize(("asked", "said"), BAD.values(), ids=BAD)
def test_what_contradicts_itself_is_refused_from_flags_and_files(tmp_path: Path, asked: dict[str, Any], said: str) -> None:
    for above, path in ((asked, None), ({}, written(tmp_path, **(BERT | asked)))):
        with pytest.raises(InputError) as refused:
            evaluated(above, path=path)
        assert said in str(refused.value)


NO_PLANS = ["[1, 2]", "just words", "{tp: [", "\x00", '{"tp": 1, "optimal": true}', '{"optimal": 1, "models": 3}']


@pytest.mark.parametrize("name", ["plan.yaml", "plan.json"])
@pytest.mark.parametrize("text", NO_PLANS)
def test_files_that_are_no_plan_are_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        evaluated({"device": "a100_80gb"}, path=path)
    with pytest.raises(InputError, match="cannot read"):
        evaluated(path=tmp_path / "nowhere" / name)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(settings_for(Mode.EVALUATE).keys) | st.text(), values, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_mapping_gives_a_plan_or_an_input_error(tmp_path: Path, asked: dict[str, Any]) -> None:
    (tmp_path / "any.yaml").write_text(yaml.safe_dump(BERT | asked))
    (tmp_path / "any.json").write_text(json.dumps(asked | {"optimal": True, "models": {"bertlarge": asked}}))
    for path, above in ((None, BERT | asked), (tmp_path / "any.yaml", {}), (tmp_path / "any.json", {"device": "a100_80gb"})):
        try:
            found = evaluation(evaluate_request(path, above))
        except InputError as error:
            assert str(error)
        else:
            assert evaluated({**found.plan_mapping()}).plan == found.plan
