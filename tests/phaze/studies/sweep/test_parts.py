"""Searches in parts against the same searches as a whole: one answer, whoever runs the parts,
whatever they tell each other."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sweep_cases import DYING

from Estimator.chips.accelerator import AcceleratorSet
from Estimator.chips.design_space import DesignSpace
from Estimator.chips.space_part import SpacePart
from Estimator.plans.results import Status
from phaze import main as front_door
from phaze.runs.finished_run import open_run
from phaze.settings.problem import space_size
from phaze.settings.request import Request
from phaze.settings.resolve import resolve
from phaze.studies import context, search_run
from phaze.studies.added_limits import add_limits
from phaze.studies.parts import FOLDER, JoinedRun, parted_size, parts_of, run_parts
from phaze.studies.sweep.executors import Executor, InProcessExecutor, JoblibExecutor
from phaze.studies.sweep.store import Store
from phaze.studies.sweep.work import Outcome, Task
from phaze_common.errors import InputError, PhazeError
from phaze_common.progress import SilentProgress
from Solver.designs.shared_incumbent import SharedIncumbent
from Solver.results import SearchResult
from tests.builders.samples import sampled
from tests.Solver.designs.small_study import CLUSTER, SPACE, solved

AXES: dict[str, list[int]] = {
    "num_tc": [1, 2, 4, 8, 16],
    "num_vc": [1, 4, 16, 64],
    "width": [32, 64, 128],
    "depth": [32, 64, 128],
    "glb_mib": [1, 4, 16, 32],
}
SEEDS = range(8)


def asked(
    folder: Path, graphs: Path, *, axes: dict[str, Any] | None = None, **settings: Any
) -> Request:
    """BERT-base at 64 tokens on the chips of some ``axes``; graphs are those of ``graphs``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "space.yaml").write_text(
        yaml.safe_dump(SPACE | {"axes": SPACE["axes"] | (axes or {})})
    )
    (folder / "cluster.yaml").write_text(yaml.safe_dump(CLUSTER))
    files = {"design_space": str(folder / "space.yaml"), "cluster": str(folder / "cluster.yaml")}
    small = {
        "model": "bertbase",
        "sequence_length": 64,
        "global_batch_size": 64,
        "hbm_size": 2,
        "recompute": "none",
    }
    (folder / "out" / "GraphExtractor").mkdir(parents=True, exist_ok=True)
    if not (folder / "out" / "GraphExtractor" / "out").exists():
        (folder / "out" / "GraphExtractor" / "out").symlink_to(graphs / "GraphExtractor" / "out")
    return resolve({}, small | files | {"output": str(folder / "out")} | settings)


def joined(
    request: Request, count: int, executor: Executor | None = None, *, limits: bool = False
) -> JoinedRun:
    return run_parts(
        request,
        count,
        executor or InProcessExecutor(),
        "test",
        SilentProgress(),
        lambda part, found: None,
        limits=limits,
    )


def whole_of(request: Request, folder: Path) -> SearchResult:
    """The same search as a whole, without a front."""
    return solved(
        request.with_settings(
            front=resolve({}, {"model": "bertbase", "front": "none"}).search.front, output=folder
        )
    )


@pytest.fixture(params=sampled(SEEDS, [1]))
def random_request(request: pytest.FixtureRequest, warm: Path, tmp_path: Path) -> Request:
    random = np.random.default_rng(request.param)
    axes = {
        name: sorted(random.choice(all_, random.integers(1, 3), replace=False).tolist())
        for name, all_ in AXES.items()
    }
    axes["width_vc"] = None if random.random() < 0.5 else [32, 128]  # type: ignore[assignment]
    sizes = [[2], [1, 16]][int(random.integers(2))]
    return asked(tmp_path / "parts", warm, axes=axes, hbm_size=sizes, micro_batch_size=[1, 2])


def test_parts_find_the_best_of_the_whole(
    random_request: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = whole_of(random_request, tmp_path / "whole")
    found = joined(random_request, 3)
    agrees(found.result, whole)
    monkeypatch.setattr(
        context,
        "_best_known",
        lambda request: None if request.hardware.space_part is None else SharedIncumbent(),
    )
    apart = joined(random_request.with_settings(output=tmp_path / "apart"), 3)
    agrees(apart.result, whole)
    assert not list((tmp_path / "apart").glob(f"{FOLDER}/known-*"))


def agrees(found: SearchResult, whole: SearchResult) -> None:
    """The same best design, with a certificate; what became of all points adds up to the space."""
    assert (found.status, found.counts.space) == (whole.status, whole.counts.space)
    assert found.counts.complete
    if whole.best is None:
        assert found.best is None and found.reason == whole.reason
        return
    assert found.best is not None and found.best.optimal and whole.best.optimal
    assert found.best.value == pytest.approx(whole.best.value, rel=1e-12)
    assert (found.best.accelerator, found.best.hbm_bytes) == (
        whole.best.accelerator,
        whole.best.hbm_bytes,
    )
    assert [plan.plan for plan in found.best.models.values()] == [
        plan.plan for plan in whole.best.models.values()
    ]
    best_of = {(row.hbm_bytes, row.micro_batch_size): row.value for row in whole.rows}
    assert all(
        row.value <= best_of[row.hbm_bytes, row.micro_batch_size] * (1 + 1e-12)
        for row in found.rows
    )
    assert all(
        not point.optimal or point.value == whole_point(whole, point.hbm_bytes)
        for point in found.per_hbm
    )
    assert {each.name: each.value for each in found.references} == {
        each.name: each.value
        for each in whole.references
        if each.hbm_bytes in {point.hbm_bytes for point in found.per_hbm}
    }
    bounds = {(axis.axis, each.value): each for axis in whole.best.axes for each in axis.values}
    for axis in found.best.axes:
        for value in axis.values:
            assert (
                value.bound
                >= bounds[axis.axis, value.value].reached * (1 - 1e-9)
                >= value.reached * (1 - 2e-9)
            )


def whole_point(whole: SearchResult, hbm_bytes: int) -> float:
    return next(point.value for point in whole.per_hbm if point.hbm_bytes == hbm_bytes)


@pytest.fixture(scope="module")
def run_in_parts(warm: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Request, JoinedRun]:
    request = asked(tmp_path_factory.mktemp("joined"), warm, name="joined")
    return request, joined(request, 3)


def test_the_run_is_one_of_the_whole_study(run_in_parts: tuple[Request, JoinedRun]) -> None:
    request, found = run_in_parts
    run = open_run(request.folders.run)
    assert "space_part" not in run.settings and run.result.part is None
    assert run.result.best == found.result.best and run.manifest.parts == found.parts
    assert [each.part for each in found.parts.parts] == [
        "1/3",
        "2/3",
        "3/3",
    ] and not found.parts.failed
    assert {each.machine for each in found.parts.parts} == {os.uname().nodename}
    assert len(run.designs) == run.result.counts.space - run.result.counts.unlisted
    assert (run.designs["status"] == "evaluated").sum() == run.result.counts.evaluated
    assert run.schedules and run.operators and len(run.plans)
    best, values = (
        run.result.best,
        [each.value for each in found.parts.parts if each.value is not None],
    )
    assert best is not None and best.value == max(values)
    assert best.certificate is not None and best.certificate.schedules
    assert all((each.bound or 0.0) <= best.value * (1 + 1e-12) for each in found.parts.parts)
    assert (best.certificate.best_open_bound or 0.0) <= best.value


def test_other_modes_take_the_run_as_any_other(
    run_in_parts: tuple[Request, JoinedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_in_parts[0].folders.run
    assert front_door(["evaluate", "--plan", str(folder / "best.json"), "--quiet"]) == 0
    assert front_door(["explain", str(folder), "--instead", "num_tc=1", "--quiet"]) == 0
    assert front_door(["report", str(folder), "--quiet"]) == 0
    assert "proven optimal over" in capsys.readouterr().out


def test_nothing_is_searched_again(
    run_in_parts: tuple[Request, JoinedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    request, found = run_in_parts

    def refused(*_arguments: object) -> None:
        raise AssertionError("a part was searched again")

    monkeypatch.setattr(search_run, "run_search", refused)
    again = joined(request, 3)
    assert again.parts == found.parts and again.result.best == found.result.best


def test_a_part_that_others_close_says_so_and_is_no_infeasible_one(
    warm: Path, tmp_path: Path
) -> None:
    request = asked(tmp_path / "parts", warm)
    found = joined(request, 12)
    agrees(found.result, whole_of(request, tmp_path / "whole"))
    closed = [each for each in found.parts.parts if each.status is Status.CLOSED]
    best = found.result.best
    assert closed and best is not None
    assert all(
        each.value is None and each.bound is not None and 0.0 < each.bound <= best.value
        for each in closed
    )
    runs = [run for run in open_parts(request) if run.result.status is Status.CLOSED]
    assert len(runs) == len(closed)
    for run in runs:
        assert run.result.reason.startswith("nothing here is better than ")
        assert (
            run.result.counts.complete
            and run.result.counts.space == run.result.counts.pruned
            and not len(run.designs)
        )


def test_what_is_closed_by_a_design_that_nobody_has_proves_nothing(
    warm: Path, tmp_path: Path
) -> None:
    request = asked(tmp_path / "parts", warm)
    best = joined(request, 2).result.best
    assert best is not None
    (known,) = request.folders.run.glob(f"{FOLDER}/known-*")
    SharedIncumbent(known, "forged").tell(100 * best.value)
    loser = min(open_parts(request), key=lambda run: float(run.result.part.bound))
    (loser.folder / "point.json").unlink()
    again = joined(request, 2)
    closed = next(each for each in again.parts.parts if each.status is Status.CLOSED)
    point = again.result.best
    assert (
        point is not None
        and point.value == best.value
        and point.certificate is not None
        and closed.bound is not None
    )
    assert point.optimal == (closed.bound <= best.value)
    assert point.optimal or point.certificate.best_open_bound == closed.bound
    for run in open_parts(request):
        (run.folder / "point.json").unlink()
    with pytest.raises(
        PhazeError, match="closed by a design that none of them has; remove that folder"
    ):
        joined(request, 2)


def open_parts(request: Request) -> list[Any]:
    return [
        open_run(path.parent) for path in sorted(request.folders.run.glob(f"{FOLDER}/*/best.json"))
    ]


def test_where_nothing_fits_the_run_says_why(warm: Path, tmp_path: Path) -> None:
    request = asked(tmp_path / "parts", warm, hbm_size=0.001)
    found = joined(request, 2).result
    assert (found.status, found.best, found.counts.complete) == (Status.INFEASIBLE, None, True)
    assert "per device; the leanest needs" in found.reason
    assert open_run(request.folders.run).result.status is Status.INFEASIBLE


@dataclass
class Failing:
    """Fails one of the parts, as an executor whose worker is killed does."""

    part: str

    def outcomes(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        from phaze.studies.sweep.work import died

        failing = [task for task in tasks if task.point.request.hardware.space_part == self.part]
        yield from map(died, failing)
        yield from InProcessExecutor().outcomes([task for task in tasks if task not in failing])


def test_a_failed_part_leaves_the_answer_unproven_until_it_is_searched(
    warm: Path, tmp_path: Path
) -> None:
    request = asked(tmp_path / "parts", warm)
    whole = whole_of(request, tmp_path / "whole")
    found = joined(request, 3, Failing("2/3"))
    best = found.result.best
    assert best is not None and (best.optimal, best.status) == (False, Status.FEASIBLE)
    assert (
        best.certificate is not None and best.certificate.best_open_bound is None
    )  # how much better another could be: unknown
    assert [each.part for each in found.parts.failed] == [
        "2/3"
    ] and "worker process died" in found.parts.failed[0].problem
    assert found.result.counts.space < whole.counts.space
    assert open_run(request.folders.run).result.status is Status.FEASIBLE
    agrees(joined(request, 3).result, whole)


def test_where_all_parts_fail_there_is_no_run(warm: Path, tmp_path: Path) -> None:
    request = asked(tmp_path / "parts", warm)
    with pytest.raises(
        PhazeError,
        match=r"no design was found: 1 of 1 parts failed: part 1/1 \(its worker process died",
    ):
        joined(request, 1, Failing("1/1"))
    assert not (request.folders.run / "best.json").exists()


def test_the_command_says_which_part_failed_and_ends_with_1(
    warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    request, whole_search = asked(tmp_path / "parts", warm), search_run.run_search
    path = tmp_path / "study.yaml"
    path.write_text(request.to_yaml())
    words = ["run_solver", "--config", str(path), "--parts", "3", "--workers", "1"]

    def broken(asked_: Request, progress: object, **_: object) -> SearchResult:
        if asked_.hardware.space_part == "3/3":
            raise MemoryError
        return whole_search(asked_, SilentProgress())

    with monkeypatch.context() as patch:
        patch.setattr(search_run, "run_search", broken)
        assert front_door(words) == 1
        said = capsys.readouterr()
        assert "not proven optimal (feasible)" in said.out
        assert (
            "1 of 3 parts failed: part 3/3 (out of memory" in said.err
            and "the same command goes on with them" in said.err
        )
    assert front_door(words) == 0
    said = capsys.readouterr()
    assert (
        "proven optimal over the whole space" in said.out and said.err.count("already there") == 2
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--parts", "0"], "--parts 0 is not possible; give a whole number from 1 to"),
        (["--parts", "-2"], "--parts -2 is not possible"),
        (["--parts", "abc"], "--parts abc is not possible; give a whole number from 1 to 10,000"),
        (["--parts", "2.5"], "--parts 2.5 is not possible; give a whole number from 1 to 10,000"),
        (
            ["--parts", "2", "--device", "h100"],
            "the device h100 is given, and no space of chips to divide",
        ),
        (["--parts", "2", "--chip", "tpu_v4"], "the chip tpu_v4 is given, which has no parts"),
        (
            ["--parts", "2", "--front", "energy"],
            "a front of throughput and energy is one over the whole space",
        ),
        (
            ["--parts", "2", "--model", "bertbase", "gpt2"],
            "a space is searched in parts for one model, given bertbase, gpt2",
        ),
        (["--parts", "2", "--space-part", "1/2"], "space_part is 1/2, one part alone"),
        (
            ["--parts", "2", "--force_reextract_model"],
            "would extract every graph once for each part",
        ),
        (["--parts", "2", "--workers", "0"], "--workers 0 is not possible"),
        (["--parts", "2", "--address", "here:1"], "--address is that of a Ray cluster"),
        (["--workers", "2"], "are about the parts of a search; add --parts"),
        (["--space-part", "3/2"], "space_part '3/2' is no part of a space"),
    ],
)
def test_what_cannot_be_searched_in_parts_is_one_sentence(
    more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = [] if "--model" in more else ["--model", "bertbase"]
    assert front_door(["run_solver", *model, "--output", str(tmp_path / "out"), *more]) == 2
    refused = capsys.readouterr()
    assert refused.out == "" and said in refused.err and len(refused.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_dry_run_counts_the_whole_and_its_largest_part(
    warm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.yaml"
    request = asked(tmp_path / "parts", warm)
    path.write_text(request.to_yaml())
    words = ["run_solver", "--config", str(path), "--dry-run", "--quiet"]
    assert front_door([*words, "--format", "json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["parts"] is whole["largest_part"] is None
    largest = max(space_size(part).configurations for part in parts_of(request, 5))
    assert front_door([*words, "--format", "json", "--parts", "5"]) == 0
    assert json.loads(capsys.readouterr().out) == whole | {"parts": 5, "largest_part": largest}
    assert front_door([*words, "--parts", "5"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["parts", "5"] in lines and [
        "accelerators",
        "of",
        "the",
        "largest",
        "part",
        f"{largest:,}",
    ] in lines


def test_a_dry_run_of_very_many_parts_generates_the_space_once(
    warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated, generate = [], DesignSpace.generate

    def counted(space: DesignSpace, *part: SpacePart) -> AcceleratorSet:
        generated.append(part)
        return generate(space, *part)

    monkeypatch.setattr(DesignSpace, "generate", counted)
    size = parted_size(asked(tmp_path / "parts", warm), 10_000)
    assert size.parts == 10_000 and len(generated) < 4


@pytest.mark.cluster
def test_processes_give_the_same_answer(warm: Path, tmp_path: Path) -> None:
    request = asked(tmp_path / "parts", warm)
    found = joined(request, 4, JoblibExecutor(2))
    agrees(found.result, whole_of(request, tmp_path / "whole"))
    assert list(request.folders.run.glob(f"{FOLDER}/known-*/*.value"))


@pytest.mark.cluster
def test_parts_of_machines_that_do_not_see_the_store_are_joined(
    warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from phaze.studies.sweep import work

    request = asked(tmp_path / "parts", warm)
    monkeypatch.setattr(Store, "is_called", lambda *_: False)
    monkeypatch.setattr(
        work, "_private_folder", lambda: asked(tmp_path / "private", warm).output.output
    )
    agrees(joined(request, 2).result, whole_of(request, tmp_path / "whole"))


@pytest.mark.thorough
@pytest.mark.ray
@pytest.mark.cluster
def test_ray_gives_the_same_answer(warm: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    from phaze.studies.sweep.ray_executor import RayExecutor

    request = asked(tmp_path / "parts", warm)
    agrees(joined(request, 3, RayExecutor(2, None)).result, whole_of(request, tmp_path / "whole"))


@pytest.mark.thorough
@pytest.mark.kill
@pytest.mark.cluster
def test_parts_whose_workers_are_killed_go_on(warm: Path, tmp_path: Path) -> None:
    marker, model = tmp_path / "deadly", tmp_path / "dying.py"
    marker.touch()
    model.write_text(DYING.format(marker=str(marker)))
    request = asked(tmp_path / "parts", tmp_path / "none", model=str(model))
    (request.folders.graphs).unlink()
    with pytest.raises(
        PhazeError, match=r"3 of 3 parts failed: part 1/3 \(its worker process died"
    ):
        joined(request, 3, JoblibExecutor(2))
    marker.unlink()
    found = joined(request, 3, JoblibExecutor(2))
    assert found.result.best is not None and found.result.best.optimal and not found.parts.failed


def test_one_part_by_itself_is_a_run_of_that_part(warm: Path, tmp_path: Path) -> None:
    request = asked(tmp_path / "parts", warm, space_part="2/3")
    result = search_run.run_search(request, SilentProgress())
    assert result.part is not None and result.part.part == "2/3"
    run = open_run(request.folders.run)
    assert run.settings["space_part"] == "2/3" and run.result.part == result.part
    assert not list(request.folders.run.parent.glob("known-*"))
    with pytest.raises(InputError, match="is one over the whole space"):
        asked(tmp_path / "front", warm, space_part="2/3", front=["energy"])


def test_what_limits_the_best_chip_of_all_parts_is_told_when_it_is_asked_for(
    warm: Path, tmp_path: Path
) -> None:
    request, again = asked(tmp_path / "parts", warm), asked(tmp_path / "again", warm)
    joined(request, 2)
    run = open_run(request.folders.run)
    assert run.result.best is not None and not run.result.best.limits
    added = add_limits(run, SilentProgress()).result.best
    at_once = joined(again, 2, limits=True).result.best
    assert added is not None and at_once is not None and added.limits
    assert (added.limits, added.axes) == (at_once.limits, at_once.axes)
