"""What a pipeline's and a layer's events must satisfy, whatever is drawn."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Estimator.chips.accelerator import Accelerator
from Estimator.plans.pipeline.schedule import PipelineSchedule, costs_of
from Estimator.plans.pipeline.simulation import held_bytes, simulate
from Estimator.plans.results import PipelineReport
from phaze.report.trace.events import Counter, Event, Process, Slice, Thread, file_content
from phaze.report.trace.operators import schedule_events, schedule_names
from phaze.report.trace.pipeline import PipelineTrace
from Solver.designs.schedule_records import KeptSchedule, ScheduledOperator
from tests.phaze.report.trace.pipeline_reports import equal_stages, pipeline_reports

EVERY = 10**9


def traced(report: PipelineReport, most_bytes: float | None = None) -> PipelineTrace:
    layers = [[f"block.{chunk}", f"block.{chunk + 1}"] for chunk in range(len(report.forward_s))]
    return PipelineTrace("model", report, layers, [most_bytes] * report.pp)


def drawn(report: PipelineReport, passes: int = EVERY) -> list[Event]:
    return list(traced(report, 7e6).draw(first_pid=2, first_flow=1, passes_per_stage=passes))


def slices_by_thread(events: Iterable[Event]) -> dict[tuple[int, int], list[Slice]]:
    found = defaultdict(list)
    for event in events:
        if isinstance(event, Slice):
            found[event.pid, event.row].append(event)
    return found


def assert_nested(events: list[Event]) -> None:
    """Slices of a thread are disjoint or within each other, and what encloses comes first."""
    for slices in slices_by_thread(events).values():
        open_ends: list[int] = []
        ordered = sorted(
            slices, key=lambda each: each.start_ns
        )  # stable: as they are in the file where they start together
        for each in ordered:
            assert each.start_ns <= each.end_ns
            while open_ends and open_ends[-1] <= each.start_ns:
                open_ends.pop()
            assert not open_ends or each.end_ns <= open_ends[-1], each
            open_ends.append(each.end_ns)


@given(pipeline_reports(), st.integers(1, 12))
@settings(max_examples=150)
def test_slices_nest_whatever_the_pipeline(report: PipelineReport, passes: int) -> None:
    for limit in (EVERY, passes):
        events = drawn(report, limit)
        assert_nested(events)
        named = {(each.pid, each.row) for each in events if isinstance(each, Thread)}
        assert named >= set(slices_by_thread(events))
        assert {each.pid for each in events if isinstance(each, Process)} == set(
            range(2, 2 + report.pp)
        )
        json.loads(file_content(events, {}))


@given(pipeline_reports())
@settings(max_examples=60)
def test_the_drawing_agrees_with_the_simulation(report: PipelineReport) -> None:
    pipeline = traced(report, 7e6)
    schedule = PipelineSchedule(report.schedule)
    times = simulate(costs_of(report), schedule, report.micro_batches)
    whole, alike = report.whole_warm_up, np.ones(len(report.forward_s))
    most_held = held_bytes(alike, report.pp, schedule, report.micro_batches, whole_warm_up=whole)
    events = list(pipeline.draw(2, 1, EVERY))
    passes = [
        each
        for each in events
        if isinstance(each, Slice) and each.category in {"forward", "backward"}
    ]
    assert len(passes) == 2 * report.micro_batches * len(report.forward_s)
    assert max(each.end_ns for each in passes) == round(times[0] * 1e9)
    ready_s = times.reshape(-1, report.pp).max(axis=0) + np.array(report.sync_s)
    assert pipeline.end_s == pytest.approx(ready_s.max() + report.optimizer_s, rel=1e-12)
    for stage in range(report.pp):
        held = [
            each.values for each in events if isinstance(each, Counter) and each.pid == 2 + stage
        ]
        assert max(max(values["bytes"] for values in held), 0) == pytest.approx(7e6)
        assert held[-1]["bytes"] == 0
        counts = [next(value for key, value in values.items() if key != "bytes") for values in held]
        assert max(counts) == most_held[stage]


def test_a_transfer_that_occupies_the_sender_is_on_its_thread_and_one_that_does_not_has_its_own() -> (
    None
):
    blocking = drawn(equal_stages(PipelineSchedule.ONE_F_ONE_B, 3, 1, 6, overlap=False))
    overlapping = drawn(equal_stages(PipelineSchedule.ONE_F_ONE_B, 3, 1, 6, overlap=True))
    for events, own_thread in ((blocking, False), (overlapping, True)):
        sends = [
            each
            for each in events
            if isinstance(each, Slice) and each.name.startswith("send forward")
        ]
        assert len(sends) == 2 * 6  # not from the last stage
        assert {each.row != 0 for each in sends} == {own_thread}
        assert {each.end_ns - each.start_ns for each in sends} == {3_000_000}
    names = [each.name for each in overlapping if isinstance(each, Thread) and each.pid == 2]
    # Two sends of 3 ms go on at once where a stage computes for 2 ms.
    assert names == ["compute", "update", "activations sent", "activations sent (2)"]


def test_flows_lead_each_micro_batch_through_all_stages_and_back() -> None:
    report = equal_stages(PipelineSchedule.INTERLEAVED, 2, 2, 4, overlap=True)
    ways = defaultdict(list)
    for each in sorted(
        (each for each in drawn(report) if isinstance(each, Slice) and each.flow is not None),
        key=lambda each: each.start_ns,
    ):
        assert each.flow is not None
        ways[each.flow.number].append(
            (each.pid - 2, each.category, each.flow.comes_in, each.flow.goes_out)
        )
    there = [
        (0, "forward", False, True),
        *((chunk % 2, "forward", True, True) for chunk in (1, 2, 3)),
    ]
    back = [
        *((chunk % 2, "backward", True, True) for chunk in (3, 2, 1)),
        (0, "backward", True, False),
    ]
    assert ways == dict.fromkeys((1, 2, 3, 4), there + back)


def test_the_middle_of_a_long_pipeline_is_left_out_and_said_so() -> None:
    report = equal_stages(PipelineSchedule.ONE_F_ONE_B, 3, 1, 40, overlap=False)
    everything = slices_by_thread(drawn(report))
    for stage in range(3):
        slices = slices_by_thread(drawn(report, passes=20))[2 + stage, 0]
        (gap,) = (each for each in slices if each.category == "left out")
        assert gap.name == "60 passes that are not drawn"
        kept = {(each.name, each.start_ns, each.end_ns) for each in slices} - {
            (gap.name, gap.start_ns, gap.end_ns)
        }
        missing = [
            each
            for each in everything[2 + stage, 0]
            if (each.name, each.start_ns, each.end_ns) not in kept
        ]
        assert len([each for each in missing if each.category in {"forward", "backward"}]) == 60
        assert len(kept) + len(missing) == len(everything[2 + stage, 0])
        assert all(gap.start_ns <= each.start_ns and each.end_ns <= gap.end_ns for each in missing)
    # Only micro-batches that are drawn on their whole way have arrows.
    ways = [
        each.flow.number
        for each in drawn(report, passes=20)
        if isinstance(each, Slice) and each.flow is not None
    ]
    assert 0 < len(set(ways)) < 20
    assert {ways.count(number) for number in ways} == {6}


CHIP = Accelerator(
    num_tc=4, num_vc=1, width=64, depth=64, width_vc=64, glb_bytes=2**20, area_mm2=1.0
)


def scheduled(
    name: str, cores: str, mode: str, start_s: float, end_s: float, tc: int | None, vc: int | None
) -> ScheduledOperator:
    return ScheduledOperator(name, "gemm", cores, mode, tc, vc, start_s, end_s)


def test_operators_are_on_their_cores_and_those_on_all_cores_are_drawn_once() -> None:
    operators = (
        scheduled("all", "TC+VC", "all", 0.0, 1e-6, None, None),
        scheduled("both", "TC+VC", "single", 1e-6, 3e-6, 2, 0),
        scheduled("one", "TC", "single", 1e-6, 2.5e-6, 0, None),
    )
    schedule = KeptSchedule(2**35, "m", "block", "forward", 24, 3e-6, 3e-6, "native", operators)
    events = list(schedule_events(schedule, *schedule_names([schedule]), CHIP, pid=5))
    assert [each.name for each in events if isinstance(each, Process)] == [
        "operators: block forward (x24)"
    ]
    threads = {each.row: each.name for each in events if isinstance(each, Thread)}
    assert list(threads.values()) == [
        "all 4 TC",
        "TC 0",
        "TC 2",
        "VC 0",
    ]  # all of one vector core is that core
    assert sorted(
        (each.name, threads[each.row], each.start_ns, each.end_ns)
        for each in events
        if isinstance(each, Slice)
    ) == [
        ("all", "VC 0", 0, 1000),
        ("all", "all 4 TC", 0, 1000),
        ("both", "TC 2", 1000, 3000),
        ("both", "VC 0", 1000, 3000),
        ("one", "TC 0", 1000, 2500),
    ]


@given(st.lists(st.floats(1e-10, 1e-6), min_size=1, max_size=20), st.integers(-2, 2))
def test_operators_that_touch_do_not_overlap_after_rounding(
    lengths_s: list[float], last_digits: int
) -> None:
    operators, start_s = [], 0.0
    for number, length_s in enumerate(lengths_s):
        end_s = start_s + length_s
        operators.append(scheduled(str(number), "VC", "all", start_s, end_s, None, None))
        start_s = end_s * (1 + last_digits * 2.0**-52)
    schedule = KeptSchedule(
        1, "m", "block", "forward", 1, start_s, start_s, "native", tuple(operators)
    )
    assert_nested(list(schedule_events(schedule, "m", CHIP, pid=1)))


def test_layers_that_share_a_name_are_numbered_and_several_models_named() -> None:
    encoder = KeptSchedule(1, "m", "encoder", "backward_selective", 3, 0.0, 0.0, "native", ())
    head = KeptSchedule(1, "m", "head", "forward", 1, 0.0, 0.0, "native", ())
    other = KeptSchedule(1, "n", "head", "forward", 1, 0.0, 0.0, "native", ())
    names = ["encoder kind 1 backward (x3)", "encoder kind 2 backward (x3)", "head forward (x1)"]
    assert schedule_names([encoder, encoder, head]) == names
    assert schedule_names([encoder, encoder, head, other]) == [
        *(f"m {name}" for name in names),
        "n head forward (x1)",
    ]
