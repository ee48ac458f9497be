"""Traces as Perfetto's own trace processor reads them, beside what the run's files say."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import phaze
from Estimator.plans.pipeline.schedule import PipelineSchedule, costs_of
from Estimator.plans.pipeline.simulation import simulate, timeline
from Estimator.plans.results import PipelineReport
from phaze.report.trace.events import file_content
from phaze.report.trace.pipeline import PipelineTrace
from phaze.report.trace.timeline import timeline_of
from phaze.runs.finished_run import FinishedRun, open_run
from Solver.plan_report import PlanReport
from tests.phaze.report.trace.perfetto_engine import Engine, opened
from tests.phaze.report.trace.pipeline_reports import equal_stages
from tests.Solver.designs.small_study import small_study, solved

SLICES = """
    select process.name as process, thread.name as thread, slice.name as name, slice.category as category, slice.ts as ts,
           slice.dur as dur, slice.depth as depth, slice.arg_set_id as arg_set_id
    from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A pipeline of several stages that synchronise their gradients, on the slow network of two
    sites."""
    folder = tmp_path_factory.mktemp("traced")
    study = small_study(
        folder,
        hbm_size=[1, 2],
        micro_batch_size=1,
        cluster="phaze_icml24",
        pp=4,
        dp=2,
        global_batch_size=256,
    )
    solved(study)
    return open_run(study.folders.run)


@pytest.fixture(scope="module")
def plan(run: FinishedRun) -> PlanReport:
    assert run.result.best is not None
    (plan,) = run.result.best.models.values()
    assert plan.pp > 1
    return plan


@pytest.fixture(scope="module")
def engine(run: FinishedRun, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    written = run.folder / "trace.json"
    assert phaze.main(["trace", str(run.folder), "--quiet"]) == 0
    with opened(written.read_bytes(), tmp_path_factory.mktemp("engine") / "log") as engine:
        yield engine


def assert_read_without_loss(engine: Engine) -> None:
    lost = engine.query(
        "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
    )
    assert lost == []


def test_perfetto_reads_everything(engine: Engine, run: FinishedRun) -> None:
    assert_read_without_loss(engine)
    events = json.loads((run.folder / "trace.json").read_bytes())["traceEvents"]
    kinds = Counter(event["ph"] for event in events)
    (count,) = engine.query("select count(*) as slices from slice")
    assert count.slices == kinds["X"]
    (count,) = engine.query(
        "select count(*) as unnamed from thread where name is null and utid in (select utid from "
        "thread_track)"
    )
    assert count.unnamed == 0


def test_operators_are_where_the_schedules_have_them(engine: Engine, run: FinishedRun) -> None:
    assert run.result.best is not None
    best = run.result.best
    chip = best.accelerator
    wanted = Counter[tuple[str, str, str, str, int, int]]()
    for schedule in run.schedules:
        if schedule.hbm_bytes != best.hbm_bytes:
            continue
        process = (
            f"operators: {schedule.layer} {schedule.graph.split('_')[0]} (x{schedule.repeats})"
        )
        for each in schedule.operators:
            for kind, count, number in (("TC", chip.num_tc, each.tc), ("VC", chip.num_vc, each.vc)):
                if kind in each.cores.split("+"):
                    everywhere = each.mode == "all"
                    thread = (
                        f"all {count} {kind}"
                        if everywhere and count > 1
                        else f"{kind} {0 if everywhere else number}"
                    )
                    start_ns, end_ns = round(each.start_s * 1e9), round(each.end_s * 1e9)
                    wanted[process, thread, each.name, each.kind, start_ns, end_ns - start_ns] += 1
    rows = engine.query(SLICES + " where process.name glob 'operators: *'")
    found = Counter(
        (row.process, row.thread, row.name, row.category, row.ts, row.dur) for row in rows
    )
    assert len(found) > 20
    assert found == wanted
    assert {row.depth for row in rows} == {0}
    (block,) = engine.query(
        "select distinct int_value as repeats from args join slice using (arg_set_id) join "
        "thread_track on track_id = thread_track.id join thread using (utid) join process using "
        "(upid) where process.name glob 'operators: block forward *' and key = 'args.repeats'"
    )
    assert block.repeats == 12


def test_stages_run_their_passes_when_the_simulation_has_them(
    engine: Engine, plan: PlanReport
) -> None:
    report = plan.pipeline
    passes = timeline(costs_of(report), PipelineSchedule(report.schedule), report.micro_batches)
    rows = engine.query(SLICES + " where process.name glob 'pipeline *' order by slice.ts, depth")
    for stage in range(report.pp):
        process = f"pipeline bertbase: stage {stage + 1} of {report.pp}"
        own = [row for row in rows if row.process == process]
        wanted = [
            (
                f"{'forward' if forward else 'backward'} {batch + 1}",
                round(start_s * 1e9),
                round(end_s * 1e9) - round(start_s * 1e9),
            )
            for forward, batch, start_s, end_s in zip(
                passes.forward[stage],
                passes.micro_batch[stage],
                passes.start_s[stage].tolist(),
                passes.end_s[stage].tolist(),
                strict=True,
            )
        ]
        computed = [row for row in own if row.thread == "compute" and row.category != "transfer"]
        assert [(row.name, row.ts, row.dur) for row in computed] == wanted
        assert {row.depth for row in own} == {0}
        sent = {row.dur for row in own if row.category == "transfer"}
        onward, back = (
            report.transfer_s[stage : stage + 1],
            report.backward_transfer_s[max(stage - 1, 0) : stage],
        )
        seconds = {*onward, *back} - {0.0}
        assert all(min(abs(dur - each * 1e9) for each in seconds) <= 1 for dur in sent) and bool(
            sent
        ) == bool(seconds)
        updates = {row.name: row for row in own if row.thread == "update"}
        last_end_s = float(passes.end_s[stage][~passes.forward[stage]].max())
        assert updates["gradient synchronisation"].ts == round(last_end_s * 1e9)
        assert updates["gradient synchronisation"].dur == pytest.approx(
            report.sync_s[stage] * 1e9, abs=1
        )
        assert updates["optimizer step"].dur == pytest.approx(report.optimizer_s * 1e9, abs=1)
    iteration = engine.query(SLICES + " where slice.category = 'iteration'")
    assert [(row.thread, row.dur) for row in iteration] == [
        ("bertbase", round(plan.time_per_batch_s * 1e9))
    ]
    ends = max(row.ts + row.dur for row in rows if row.process.startswith("pipeline"))
    assert ends == pytest.approx(iteration[0].dur, abs=2)


def test_what_a_stage_holds_at_most_is_what_its_report_says(
    engine: Engine, plan: PlanReport
) -> None:
    rows = engine.query(
        "select process.name as process, max(value) as most from counter join "
        "process_counter_track as track on counter.track_id = track.id join process using (upid) "
        "where track.name = 'saved activations: bytes' group by 1"
    )
    most = {row.process: row.most for row in rows}
    for number, stage in enumerate(plan.stages, start=1):
        assert most[f"pipeline bertbase: stage {number} of {plan.pp}"] == pytest.approx(
            stage.activation_bytes
        )


def test_arrows_follow_each_micro_batch_from_stage_to_stage(
    engine: Engine, plan: PlanReport
) -> None:
    rows = engine.query(
        "select a.name as out_of, b.name as goes_to, pa.pid as source, pb.pid as target from flow "
        "join slice a on slice_out = a.id join slice b on slice_in = b.id join thread_track ta on "
        "a.track_id = ta.id join thread ha on ta.utid = ha.utid join process pa on ha.upid = "
        "pa.upid join thread_track tb on b.track_id = tb.id join thread hb on tb.utid = hb.utid "
        "join process pb on hb.upid = pb.upid"
    )
    first = min(row.source for row in rows)
    found = {(row.out_of, row.goes_to, row.source - first, row.target - first) for row in rows}
    numbers, last = range(1, plan.micro_batches_per_pipeline + 1), plan.pp - 1
    forward = {
        (f"forward {each}", f"forward {each}", stage, stage + 1)
        for each in numbers
        for stage in range(last)
    }
    turns = {(f"forward {each}", f"backward {each}", last, last) for each in numbers}
    backward = {
        (f"backward {each}", f"backward {each}", stage + 1, stage)
        for each in numbers
        for stage in range(last)
    }
    assert found == forward | turns | backward


def test_processes_and_threads_are_shown_in_order(engine: Engine, plan: PlanReport) -> None:
    names = [
        row.name for row in engine.query("select name from process where pid > 0 order by pid")
    ]
    assert names[0].startswith("study bertbase-")
    assert names[1 : 1 + plan.pp] == [
        f"pipeline bertbase: stage {stage + 1} of {plan.pp}" for stage in range(plan.pp)
    ]
    assert all(name.startswith("operators: ") for name in names[1 + plan.pp :])
    # Perfetto shows the thread whose number is the process' first, and the others by number.
    rows = engine.query(
        "select process.name as process, thread.name as thread from thread join process using "
        "(upid) where pid > 1 and thread.name is not null order by pid, tid = pid desc, tid"
    )
    threads = defaultdict(list)
    for row in rows:
        threads[row.process].append(row.thread)
    for process, shown in threads.items():
        if process.startswith("pipeline"):
            assert shown == ["compute", "update"]
        else:
            kinds = [("VC" in name, not name.startswith("all")) for name in shown]
            assert kinds == sorted(kinds)


@pytest.mark.parametrize(
    "report",
    [
        equal_stages(PipelineSchedule.INTERLEAVED, 3, 2, 6, overlap=True),
        equal_stages(PipelineSchedule.INTERLEAVED, 2, 3, 4, overlap=False),
        equal_stages(PipelineSchedule.GPIPE, 4, 1, 8, overlap=True),
    ],
    ids=["interleaved-overlap", "interleaved-blocking", "gpipe-overlap"],
)
def test_other_schedules(report: PipelineReport, tmp_path: Path) -> None:
    layers = [[f"block.{chunk}"] for chunk in range(len(report.forward_s))]
    pipeline = PipelineTrace("m", report, layers, [None] * report.pp)
    with opened(file_content(pipeline.draw(1, 1, 10**6), {}), tmp_path / "log") as engine:
        assert_read_without_loss(engine)
        rows = engine.query(SLICES + " order by slice.ts")
        times = simulate(costs_of(report), PipelineSchedule(report.schedule), report.micro_batches)
        assert max(
            row.ts + row.dur for row in rows if row.category in {"forward", "backward"}
        ) == round(times[0] * 1e9)
        for stage in range(report.pp):
            name = f"pipeline m: stage {stage + 1} of {report.pp}"
            own = [
                row
                for row in rows
                if row.process == name and row.category in {"forward", "backward"}
            ]
            mine = slice(stage, None, report.pp)
            busy_s = report.micro_batches * sum((*report.forward_s[mine], *report.backward_s[mine]))
            assert sum(row.dur for row in own) == pytest.approx(busy_s * 1e9, rel=1e-9)
        sends = [row for row in rows if row.category == "transfer"]
        assert len(sends) == 2 * report.micro_batches * (len(report.forward_s) - 1)
        assert {row.thread == "compute" for row in sends} == {not report.overlap_transfers}
        (flows,) = engine.query("select count(*) as number from flow")
        assert flows.number == report.micro_batches * (2 * len(report.forward_s) - 1)


def test_plans_on_given_devices_are_drawn_to_the_end_that_was_predicted(tmp_path: Path) -> None:
    words = (
        "--model bertbase --sequence-length 64 --device a100_80gb --cluster dgx_a100 "
        "--devices 4 --global-batch-size 16"
    )
    search = (
        "--tp 1 --micro-batch-size 1 --recompute none --interleave 2 --zero-stage 0 "
        "--sequence-parallel false --quiet"
    )
    folder = tmp_path / "run"
    assert phaze.main(["run_solver", *words.split(), *search.split(), "--output", str(folder)]) == 0
    run = open_run(folder)
    assert run.result.best is not None and run.on_device
    (plan,) = run.result.best.models.values()
    assert (plan.interleave, plan.pp > 1) == (2, True)
    with opened(timeline_of(run).content, tmp_path / "log") as engine:
        assert_read_without_loss(engine)
        rows = engine.query(SLICES + " where process.name glob 'pipeline *'")
        assert max(row.ts + row.dur for row in rows) == pytest.approx(
            plan.time_per_batch_s * 1e9, abs=2
        )
        assert {row.process for row in rows} == {
            f"pipeline bertbase: stage {stage + 1} of {plan.pp}" for stage in range(plan.pp)
        }
        assert "forward 3, chunk 2" in {row.name for row in rows}


def test_where_the_trace_goes(
    run: FinishedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["trace", str(run.folder), "--quiet", "--output"]
    assert phaze.main([*words, str(tmp_path / "t.json.gz"), "--format", "json"]) == 0
    content = gzip.decompress((tmp_path / "t.json.gz").read_bytes())
    (row,) = json.loads(capsys.readouterr().out)
    assert row["file"] == str(tmp_path / "t.json.gz")
    events = json.loads(content)["traceEvents"]
    assert row["processes"] == sum(event["name"] == "process_name" for event in events)
    assert phaze.main([*words, "-"]) == 0
    assert capsys.readouterr().out == content.decode()
    about = json.loads(content)["otherData"]
    assert about["study"] == run.result.study and about["versions"]["numpy"]
    assert phaze.main([*words, str(tmp_path)]) == 2
    assert "is a folder or a device; give the file to write" in capsys.readouterr().err


def test_a_long_pipeline_is_cut_with_a_sentence(
    run: FinishedRun, caplog: pytest.LogCaptureFixture
) -> None:
    whole, part = timeline_of(run), timeline_of(run, most_events=1200)
    assert whole.left_out == "" and "left out" not in json.loads(whole.content)["otherData"]
    assert part.events < 0.8 * whole.events
    assert "passes of each stage of bertbase" in part.left_out
    assert caplog.messages == [part.left_out]


def test_without_a_design_there_is_nothing_to_draw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = small_study(tmp_path, hbm_size=0.01, micro_batch_size=1)
    solved(study)
    assert phaze.main(["trace", str(study.folders.run)]) == 3
    said = capsys.readouterr().err
    assert "found no design" in said and said.count("\n") == 1
    assert not (study.folders.run / "trace.json").exists()
