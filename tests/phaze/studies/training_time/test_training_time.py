"""A whole training from its iterations: totals in literal arithmetic, what adds up, what grows with
what."""

import math
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.hardware_files import load_cluster
from Estimator.plans.checkpoint import checkpoint_bytes
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.rates import device_machine
from Estimator.plans.results import Breakdown, Status
from GraphExtractor.graph import Recompute
from phaze.studies.evaluation import PreparedPlan
from phaze.studies.training_time.records import TrainingTime
from phaze.studies.training_time.settings import TrainingSettings
from phaze.studies.training_time.training import training_time_of
from phaze.studies.training_time.warm_up import BatchSizeWarmUp
from phaze_common.choices import TensorLayout
from phaze_common.errors import InputError
from tests.builders.training_cases import SEQUENCE, device_model, graph_for, plan_of

PLAN = plan_of(micro_batch_size=1, global_batch_size=8, pp=2, dp=2)
ITERATION_TOKENS = 8 * SEQUENCE


@lru_cache
def prepared(plan: UniformPlan = PLAN, memory_bytes: float | None = None) -> PreparedPlan:
    model, cluster = device_model(memory_bytes, host_issue_s=0.0), load_cluster("dgx_a100")
    costs = DeviceCosts(model, cluster).layer_costs(
        graph_for(plan), plan.recompute, layer_groups(plan, cluster)
    )
    return PreparedPlan(plan, costs, device_machine(model, cluster))


def iteration_s(plan: UniformPlan = PLAN) -> float:
    found = prepared(plan)
    return price_iteration(plan, found.costs, found.machine).iteration_s


def trained(
    warm_up: BatchSizeWarmUp | None = None, board_power_w: float | None = None, **stated: Any
) -> TrainingTime:
    return training_time_of(prepared(), TrainingSettings(**stated), warm_up, board_power_w)


def test_totals_in_literal_arithmetic() -> None:
    found = trained(
        tokens=1000 * ITERATION_TOKENS,
        price_per_device_hour=3.0,
        device_power_w=400.0,
        pue=1.25,
        grid_intensity_g_per_kwh=500.0,
    )
    seconds = 1000 * iteration_s()
    assert (found.iterations, found.samples, found.tokens) == (1000, 8000, 8000 * 256)
    assert found.wall_clock_s == pytest.approx(seconds) == pytest.approx(found.work_s)
    assert found.wall_clock_days == pytest.approx(seconds / 86400)
    assert found.device_hours == pytest.approx(4 * seconds / 3600)
    assert found.price == pytest.approx(3 * 4 * seconds / 3600)
    assert found.energy is not None and found.energy.carbon_kg is not None
    assert found.energy.energy_kwh == pytest.approx(0.4 * 4 * seconds / 3600 * 1.25)
    assert found.energy.carbon_kg == pytest.approx(0.4 * 4 * seconds / 3600 * 1.25 * 0.5)
    assert found.micro_batches_per_pipeline == 4
    one = price_iteration(PLAN, prepared().costs, prepared().machine)
    assert found.model_flops == pytest.approx(one.model_tflops_per_device * 1e12 * 4 * seconds)
    for name in (
        "model_tflops_per_device",
        "hardware_tflops_per_device",
        "model_flops_utilization",
    ):
        assert getattr(found, name) == pytest.approx(getattr(one, name))
    assert found.model_pflops_of_cluster == pytest.approx(4 * one.model_tflops_per_device / 1000)
    assert found.effective_model_flops_utilization == pytest.approx(found.model_flops_utilization)


def test_failures_in_literal_arithmetic() -> None:
    tokens, bandwidth = 1e6 * ITERATION_TOKENS, 1e9
    found = trained(
        tokens=tokens,
        device_mtbf_hours=1000.0,
        checkpoint_bandwidth_bytes_per_s=bandwidth,
        restart_time_s=60.0,
    )
    work, mtbf = 1e6 * iteration_s(), 1000 * 3600 / 4
    graph = prepared().costs.graph
    parameters = sum(
        graph.layers[index].parameter_count - graph.layers[index].tied_count
        for index in graph.sequence
    )
    written = 14 * parameters / bandwidth  # 2 bytes of weight and 12 of Adam's state
    interval = math.sqrt(2 * written * mtbf)
    report = found.failures
    assert report is not None
    assert (
        report.checkpoint_bytes
        == pytest.approx(14 * parameters)
        == pytest.approx(checkpoint_bytes(PLAN, prepared().costs))
    )
    assert (report.cluster_mtbf_s, report.checkpoint_s, report.restart_s) == pytest.approx(
        (mtbf, written, 60.0)
    )
    assert report.interval_s == report.young_daly_interval_s == pytest.approx(interval)
    assert report.checkpoints == pytest.approx(work / interval)
    whole = (
        mtbf * math.exp(60 / mtbf) * (math.exp((interval + written) / mtbf) - 1) * work / interval
    )
    assert found.wall_clock_s == pytest.approx(whole)
    assert report.failures == pytest.approx(whole / mtbf)
    parts = {part.name: part.total_s for part in found.parts}
    assert parts["checkpoints"] == pytest.approx(written * work / interval)
    assert parts["restarts"] == pytest.approx(60 * report.failures, rel=1e-3)
    assert parts["lost_work"] == pytest.approx(report.failures * (interval + written) / 2, rel=0.05)
    assert found.effective_model_flops_utilization == pytest.approx(
        found.model_flops_utilization * work / whole
    )
    assert report.longer_by == pytest.approx(whole / work - 1)


@given(st.integers(1, 500), st.sampled_from([None, (4, 4, 50), (2, 1, 333)]), st.booleans())
def test_parts_add_up_to_the_wall_clock(
    iterations: int, warm_up: tuple[int, int, int] | None, fails: bool
) -> None:
    stated = {"device_mtbf_hours": 100.0, "checkpoint_bandwidth_bytes_per_s": 1e10} if fails else {}
    grows = None if warm_up is None or warm_up[0] < 4 else BatchSizeWarmUp(*warm_up)
    found = trained(grows, samples=8.0 * iterations, **stated)
    assert math.fsum(part.total_s for part in found.parts) == pytest.approx(
        found.wall_clock_s, rel=1e-12
    )
    for part in found.parts:
        assert part.total_s == pytest.approx(
            part.forward_s + part.backward_s + part.neither_s, rel=1e-12, abs=1e-15
        )
    iterated = math.fsum(level.iterations * level.iteration_s for level in found.levels)
    names = {
        field.name.removesuffix("_s")
        for field in fields(Breakdown)
        if not field.name.startswith("hidden_")
    }
    assert math.fsum(part.total_s for part in found.parts if part.name in names) == pytest.approx(
        iterated, rel=1e-9
    )
    assert {part.name for part in found.parts} - names == (
        {"checkpoints", "lost_work", "restarts"} if fails else set()
    )


@given(st.integers(1, 10**6))
def test_twice_the_tokens_take_twice_the_time(iterations: int) -> None:
    once, twice = (
        trained(tokens=iterations * ITERATION_TOKENS),
        trained(tokens=2 * iterations * ITERATION_TOKENS),
    )
    assert twice.wall_clock_s == pytest.approx(2 * once.wall_clock_s)
    assert twice.device_hours == pytest.approx(2 * once.device_hours)


def test_a_warm_up_prices_every_batch_size_for_itself() -> None:
    found = trained(BatchSizeWarmUp(2, 2, 300), samples=1000.0)
    assert [level.global_batch_size for level in found.levels] == [2, 4, 6, 8]
    for level in found.levels:
        assert level.iteration_s == pytest.approx(
            iteration_s(replace(PLAN, global_batch_size=level.global_batch_size))
        )
        assert level.micro_batches == level.global_batch_size / 2
    assert found.samples == sum(level.samples for level in found.levels) >= 1000
    assert found.iterations > trained(samples=1000.0).iterations
    assert found.wall_clock_s > trained(samples=1000.0).wall_clock_s
    assert found.model_flops_utilization < trained(samples=1000.0).model_flops_utilization
    flops = trained(samples=1000.0).model_flops / 1000
    assert found.model_flops == pytest.approx(flops * found.samples)


def test_a_batch_that_the_plan_cannot_run_is_refused_by_the_warm_up() -> None:
    with pytest.raises(
        InputError,
        match="batch_size_warmup has batches of 1: dp 2 replicas with micro-batches of 1 need",
    ):
        trained(BatchSizeWarmUp(1, 1, 100), samples=1000.0)


def test_what_was_not_given_is_absent() -> None:
    found = trained(samples=80.0)
    assert (found.price, found.energy, found.failures) == (None, None, None)
    known = trained(samples=80.0, board_power_w=400.0)
    assert known.energy is not None and known.energy.carbon_kg is None
    assert (
        "upper bound" in known.energy.basis
        and "upper" not in trained(samples=80.0, device_power_w=9.0).energy.basis
    )
    free = trained(samples=80.0, price_per_device_hour=0.0)
    assert free.price == 0.0


def test_less_than_an_iteration_is_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"tokens is 1,000, fewer than the first iteration takes, 8 samples of 256 tokens = "
        r"2,048;",
    ):
        trained(tokens=1000.0)
    with pytest.raises(
        InputError, match="samples is 7, fewer than the first iteration takes, 8 samples; give more"
    ):
        trained(samples=7.0)
    assert trained(BatchSizeWarmUp(4, 4, 8), samples=7.0).iterations == 2


def test_checkpoints_at_a_given_interval_need_no_failures() -> None:
    found = trained(samples=8e6, checkpoint_bandwidth_bytes_per_s=1e9, checkpoint_interval_s=600.0)
    assert (
        found.failures is not None
        and found.failures.cluster_mtbf_s is None
        and found.failures.failures == 0
    )
    assert [part.name for part in found.parts][-1] == "checkpoints"
    assert found.wall_clock_s == pytest.approx(
        found.work_s * (1 + found.failures.checkpoint_s / 600)
    )


def test_sites_share_the_samples_and_totals_are_of_all_of_them() -> None:
    given: dict[str, Any] = {
        "samples": 8000.0,
        "price_per_device_hour": 3.0,
        "device_power_w": 400.0,
    }
    given |= {"device_mtbf_hours": 1e4, "checkpoint_bandwidth_bytes_per_s": 1e9}
    alone, plan = trained(**given), replace(PLAN, sites=4, outer_steps=2**20)  # hardly exchanges
    found = training_time_of(prepared(plan), TrainingSettings(**given))
    assert (found.devices, found.iterations, found.samples) == (16, 250, 8000)
    assert [level.samples for level in found.levels] == [8000]
    assert found.work_s == pytest.approx(alone.work_s / 4, rel=1e-3)
    assert found.device_hours == pytest.approx(16 * found.wall_clock_s / 3600)
    assert found.price == pytest.approx(3 * found.device_hours)
    assert found.energy is not None
    assert found.energy.energy_kwh == pytest.approx(0.4 * found.device_hours)
    assert found.model_flops == pytest.approx(alone.model_flops)
    assert found.model_tflops_per_device == pytest.approx(alone.model_tflops_per_device, rel=1e-3)
    assert found.failures is not None and alone.failures is not None
    assert found.failures.checkpoint_bytes == 4 * alone.failures.checkpoint_bytes
    assert found.failures.cluster_mtbf_s == 1e4 * 3600 / 16
    more = training_time_of(prepared(plan), TrainingSettings(samples=8001.0))
    assert (more.iterations, more.samples) == (251, 8032)
    with pytest.raises(InputError, match="the first iteration takes, 32 samples"):
        training_time_of(prepared(plan), TrainingSettings(samples=31.0))


def test_a_checkpoint_holds_a_parameter_once_however_it_is_divided() -> None:
    """But for norms and biases, which tensor-parallel devices hold alike, and the padding of the
    vocabulary."""
    sizes = [
        checkpoint_bytes(plan, prepared(plan).costs)
        for plan in (
            plan_of(global_batch_size=8),
            plan_of(global_batch_size=8, tp=2),
            plan_of(global_batch_size=8, pp=2, dp=2),
            plan_of(global_batch_size=8, dp=4, zero_stage=3),
        )
    ]
    assert sizes[0] == sizes[2] == sizes[3] <= sizes[1] <= 1.02 * sizes[0]
    for degrees in ({"tp": 2, "tp2": 2}, {"tp": 1, "tp2": 4}, {"tp": 2, "tp2": 2, "cp": 2}):
        plan = plan_of(False, global_batch_size=8, layout=TensorLayout.TWO_D, **degrees)
        assert sizes[0] <= checkpoint_bytes(plan, prepared(plan).costs) <= 1.02 * sizes[0]
    sgd = plan_of(global_batch_size=8, optimizer="sgd")
    assert checkpoint_bytes(sgd, prepared(sgd).costs) == pytest.approx(sizes[0] * 2 / 14)


def test_a_plan_that_does_not_fit_says_so_and_recomputation_is_no_model_work() -> None:
    full = plan_of(micro_batch_size=1, global_batch_size=8, pp=2, dp=2, recompute=Recompute.FULL)
    found = training_time_of(prepared(full, memory_bytes=1e6), TrainingSettings(samples=80.0))
    assert found.status is Status.INFEASIBLE and "needs" in found.reason
    assert found.hardware_flops > 1.2 * found.model_flops
    assert found.model_flops == pytest.approx(trained(samples=80.0).model_flops)
