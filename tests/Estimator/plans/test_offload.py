"""What is kept in host memory: what it takes, what it spares, and how it is written."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Estimator.compiled import outer
from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster, Hosts
from Estimator.network.contention import joint_s
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.host_traffic import (
    HostRates,
    PassTraffic,
    host_seconds,
    together_s,
)
from Estimator.plans.many_rates import plan_rates
from Estimator.plans.offload import (
    NOTHING,
    RATIOS,
    Offload,
    OffloadShare,
    offload_of,
    offloads_searched,
)
from Estimator.plans.rates import device_machine
from Estimator.plans.results import Breakdown, Iteration, Status
from GraphExtractor.graph import Recompute
from phaze_common.choices import OffloadKind
from phaze_common.errors import InputError
from tests.builders.training_cases import device_model, graph_for, iteration_of, plan_of

CLOSE = 1 + 1e-9
KINDS = tuple(each.name for each in fields(Offload))
SECONDS = st.one_of(st.just(0.0), st.floats(1e-6, 1e3))
SLOW = st.floats(0.0, 4.0)
MATRICES = st.lists(SLOW, min_size=9, max_size=9).map(
    lambda values: np.array(values).reshape(3, 3) * (1 - np.eye(3))
)

joint = outer(lambda busy_s, to_s, from_s, slowdown: together_s(busy_s, to_s, from_s, slowdown))
seconds = outer(lambda host, traffic, busy_s, layers: host_seconds(host, traffic, busy_s, layers))


def rates(slowdown: np.ndarray, seconds_per_byte: float) -> HostRates:
    none = np.zeros(2)
    return HostRates(
        True, seconds_per_byte, slowdown, none, none, none, none, none, none, 0.0, 1.0, np.inf
    )


@settings(max_examples=200, deadline=None)
@given(times=st.tuples(SECONDS, SECONDS, SECONDS), slowdown=MATRICES)
def test_what_runs_together_is_as_the_contention_model_has_it(
    times: tuple[float, ...], slowdown: np.ndarray
) -> None:
    assert joint(*times, slowdown) == pytest.approx(
        joint_s(np.array([times]), slowdown)[0], rel=1e-9
    )


@settings(max_examples=200, deadline=None)
@given(
    busy_s=SECONDS,
    more_s=SECONDS,
    traffic=st.tuples(SECONDS, SECONDS),
    faster=st.floats(1.0, 10.0),
    slowdown=MATRICES,
    layers=st.integers(1, 50),
)
def test_more_bandwidth_and_less_computation_are_never_slower(
    busy_s: float,
    more_s: float,
    traffic: tuple[float, float],
    faster: float,
    slowdown: np.ndarray,
    layers: int,
) -> None:
    moved = PassTraffic(*traffic)
    slow, fast = rates(slowdown, 1.0), rates(slowdown, 1.0 / faster)
    shown_s, hidden_s = seconds(slow, moved, busy_s, float(layers))
    alone_s = joint(0.0, *(each * slow.seconds_per_byte for each in moved), slow.slowdown)
    assert shown_s + hidden_s == pytest.approx(alone_s)
    assert 0.0 <= shown_s <= alone_s * CLOSE
    assert seconds(fast, moved, busy_s, float(layers)).exposed_s <= shown_s * CLOSE + 1e-9
    assert (
        busy_s + shown_s
        <= (busy_s + more_s + seconds(slow, moved, busy_s + more_s, float(layers)).exposed_s)
        * CLOSE
        + 1e-9
    )
    assert shown_s >= alone_s / layers / CLOSE


def on(sharing: int, memory_bytes: float | None = None) -> Cluster:
    return replace(load_cluster("dgx_a100"), hosts=Hosts(8, sharing, memory_bytes))


def priced(plan: UniformPlan, cluster: Cluster) -> Iteration:
    return iteration_of(graph_for(plan), plan, device_model(), cluster)


PLANS = [
    plan_of(micro_batch_size=2, global_batch_size=8),
    plan_of(
        micro_batch_size=1,
        global_batch_size=8,
        tp=2,
        pp=2,
        sequence_parallel=True,
        recompute=Recompute.SELECTIVE,
    ),
    plan_of(micro_batch_size=1, global_batch_size=16, pp=3, dp=2, zero_stage=1),
    plan_of(micro_batch_size=1, global_batch_size=16, pp=2, dp=2, interleave=3, zero_stage=2),
    plan_of(micro_batch_size=1, global_batch_size=32, dp=16, zero_stage=3, overlap_gradients=True),
    plan_of(
        micro_batch_size=1, global_batch_size=8, pp=2, dp=4, gpipe=True, recompute=Recompute.FULL
    ),
]
OFFLOADS = [
    *(Offload(**{kind: 1.0}) for kind in KINDS),
    Offload(activations=0.5),
    Offload(0.5, 1.0, 0.5, 1.0),
    Offload(1, 1, 1, 1),
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_offload_spares_memory_costs_time_and_adds_up(plan: UniformPlan) -> None:
    bare = priced(plan, on(2))
    for offload in OFFLOADS:
        there, quick = (priced(replace(plan, offload=offload), on(sharing)) for sharing in (2, 1))
        assert bare.iteration_s < there.iteration_s
        assert bare.iteration_s <= quick.iteration_s < there.iteration_s
        for mine, without in zip(there.stages, bare.stages, strict=True):
            assert mine.memory_bytes <= without.memory_bytes * CLOSE
            assert mine.host_bytes > 0.0
            assert (
                mine.memory_bytes + mine.host_bytes >= without.memory_bytes / CLOSE
            )  # nothing is lost
            assert (
                mine.parameter_state_bytes + mine.activation_bytes
                < without.parameter_state_bytes + without.activation_bytes
            )
        assert there.breakdown.total_s == pytest.approx(there.iteration_s, rel=1e-12)
        assert there.breakdown.host_communication_s > 0.0
        assert min(vars(there.breakdown).values()) >= 0.0
        assert there.breakdown.optimizer_s == pytest.approx(bare.breakdown.optimizer_s, rel=1e-12)
    assert bare.breakdown.host_communication_s == 0.0 and not any(
        stage.host_bytes for stage in bare.stages
    )


def test_optimizer_state_goes_over_the_link_once_each_way() -> None:
    plan, model = plan_of(micro_batch_size=2, global_batch_size=8), device_model()
    cluster, parts = on(2), Offload(optimizer=1.0)
    software = replace(model.software, contention=None)
    free = type(model)(model.device, software, model.number_format)
    bare, there = (
        iteration_of(graph_for(plan), replace(plan, offload=what), free, cluster)
        for what in (NOTHING, parts)
    )
    assert model.device.host is not None
    state_bytes = 12 * bare.stages[0].parameters
    alone_s = (
        2 * state_bytes / model.device.host.bytes_per_s
    )  # two devices share a link; both directions at once
    assert there.stages[0].host_bytes == pytest.approx(state_bytes)
    breakdown = there.breakdown
    assert breakdown.host_communication_s + breakdown.hidden_host_communication_s == pytest.approx(
        alone_s
    )
    assert there.iteration_s - bare.iteration_s == pytest.approx(breakdown.host_communication_s)


def test_a_host_without_room_is_said() -> None:
    plan = replace(plan_of(micro_batch_size=2, global_batch_size=8), offload=Offload(optimizer=1.0))
    tight = priced(plan, on(2, 8e6))
    assert (
        tight.status is Status.INFEASIBLE
        and "in host memory, a host of dgx_a100 has" in tight.reason
    )
    assert priced(plan, on(2, 8e12)).status is priced(plan, on(2)).status is Status.FEASIBLE


def test_without_a_link_nothing_can_be_kept_there() -> None:
    machine = replace(device_machine(device_model(), on(2)), host=None)
    with pytest.raises(InputError, match="is not known, so nothing can be kept in host memory"):
        plan_rates(replace(plan_of(), offload=Offload(optimizer=1.0)), machine)
    assert not plan_rates(plan_of(), machine).host.used


@given(parts=st.tuples(*(st.sampled_from([0.0, 0.25, 0.5, 1.0]) for _ in KINDS)))
def test_what_is_written_is_read_again(parts: tuple[float, ...]) -> None:
    offload = Offload(*parts)
    assert Offload.parsed(str(offload)) == offload
    assert bool(offload) == any(parts)


def test_terms_say_what_is_kept_and_what_is_tried() -> None:
    half = OffloadShare.parsed("activations=0.5")
    assert offload_of([OffloadKind.OPTIMIZER, half]) == Offload(optimizer=1.0, activations=0.5)
    tried = offloads_searched([OffloadKind.OPTIMIZER, half])
    assert tried[0] == NOTHING and {*tried} == {
        Offload(o, activations=a) for o in RATIOS for a in (0.0, 0.5)
    }
    assert len(offloads_searched([OffloadKind.AUTO])) == len(RATIOS) ** len(KINDS)
    assert len(offloads_searched([OffloadKind.AUTO, half])) == 2 * len(RATIOS) ** (len(KINDS) - 1)
    assert offloads_searched([]) == (NOTHING,)
    for wrong in ("activations=2", "weight=1", "optimizer=x", "auto=1", "optimizer=nan"):
        with pytest.raises(InputError, match="offload has"):
            OffloadShare.parsed(wrong)
    with pytest.raises(InputError, match="twice"):
        offload_of([OffloadKind.ACTIVATIONS, half])


def test_every_part_of_a_breakdown_has_words() -> None:
    from phaze.report.sentences.designs import PARTS as WORDS

    assert {
        each.name.removesuffix("_s")
        for each in fields(Breakdown)
        if not each.name.startswith("hidden_")
    } == {*WORDS}
