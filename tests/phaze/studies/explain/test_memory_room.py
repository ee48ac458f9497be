"""What leaving room in memory costs, against searches of the optimum's hardware with less
memory."""

import io
import json
import shutil
from dataclasses import replace

import pytest

from phaze.report.sentences.designs import capitalised, tight_memory_text
from phaze.report.sentences.explanation import explain
from phaze.report.tables.explain_tables import print_explanation
from phaze.report.tables.sweep_tables import result_text
from phaze.runs.finished_run import open_run
from phaze.studies.explain.repeat import request_of, run_of
from phaze.studies.limits.memory_room import MOST_SHARE, tight_memory
from phaze.studies.sweep.results import point_result
from phaze_common.errors import InputError
from phaze_common.progress import SilentProgress
from phaze_common.units import GIB
from Solver.designs.re_solve import priced
from Solver.results import TightMemory
from tests.builders.forged_runs import forged_answer
from tests.phaze.studies.explain.test_limits import value_on
from tests.Solver.designs.small_study import small_study, solved

FULL = 0.97  # of the memory, that the optimum is to use


@pytest.fixture(scope="module")
def tight(finished, tmp_path_factory):
    """The study of ``finished`` with hardly more memory than its optimum uses, in a folder that can
    be opened."""
    folder = tmp_path_factory.mktemp("tight")
    shutil.copytree(finished.folder / "GraphExtractor", folder / "out" / "GraphExtractor")
    (plan,) = finished.result.best.models.values()
    solved(small_study(folder, hbm_size=[plan.memory_bytes / FULL / GIB]))
    return open_run(folder / "out")


def used(point):
    return max(plan.memory_bytes for plan in point.models.values()) / point.hbm_bytes


def test_an_optimum_with_room_has_no_runner_up(finished):
    assert used(finished.result.best) <= MOST_SHARE
    assert finished.result.tight_memory is None
    assert (
        tight_memory(run_of(request_of(finished), SilentProgress()), finished.result.best) is None
    )


def test_the_runner_up_is_what_a_search_with_less_memory_finds(tight, tmp_path):
    best, room = tight.result.best, tight.result.tight_memory
    assert room.used_share == used(best) > MOST_SHARE == room.most_share
    assert room.runner_up.accelerator == best.accelerator
    assert used(room.runner_up) <= MOST_SHARE
    assert room.runner_up.hbm_bytes == best.hbm_bytes
    assert room.runner_up.value < best.value
    less = int(MOST_SHARE * best.hbm_bytes) / GIB
    assert room.runner_up.value == pytest.approx(value_on(tight, tmp_path, hbm_gib=less), rel=1e-9)


def test_it_is_told_in_words_and_in_best_json(tight):
    best, room = tight.result.best, tight.result.tight_memory
    text = tight_memory_text(room, best)
    (plan,) = room.runner_up.models.values()
    for words in (
        "97%",
        "more than 95%",
        "on the same chip",
        f"tp {plan.tp} x pp {plan.pp} x dp {plan.dp}",
        "less",
    ):
        assert words in text
    whole = json.loads((tight.folder / "best.json").read_text())
    assert whole["tight_memory"]["runner_up"]["value"] == room.runner_up.value


def test_an_explanation_warns_of_it(tight, finished):
    best, room = tight.result.best, tight.result.tight_memory
    (warning,) = explain(tight).warnings
    assert warning == f"{capitalised(tight_memory_text(room, best))}."
    stream = io.StringIO()
    print_explanation(explain(tight), stream)
    assert "Warning: The optimum fills 97% of the memory" in stream.getvalue()
    assert explain(finished).warnings == ()


def test_the_row_of_a_sweep_names_the_share_and_the_runner_up(tight, finished):
    room = tight.result.tight_memory
    row = point_result(tight.result)
    assert (row.memory_share, row.most_share, row.value_with_room) == (
        room.used_share,
        MOST_SHARE,
        room.runner_up.value,
    )
    assert result_text(row, {}).endswith(", fills 97.0% of the memory")
    roomy = point_result(finished.result)
    assert roomy.memory_share == used(finished.result.best)
    assert (roomy.most_share, roomy.value_with_room) == (None, None)
    assert "fills" not in result_text(roomy, {})


def test_a_run_from_before_it_was_told_is_still_read(tight, tmp_path):
    folder = shutil.copytree(tight.folder, tmp_path / "old")
    forged_answer(folder, lambda whole: whole.pop("tight_memory"))
    old = open_run(folder)
    assert old.result == replace(tight.result, tight_memory=None)
    damaged = {"used_share": 0.99, "most_share": 0.95, "runner_up": {"status": "optimal"}}
    forged_answer(folder, lambda whole: whole.update(tight_memory=damaged))
    with pytest.raises(InputError, match="run the study again"):
        open_run(folder)


def test_where_nothing_else_fits_that_is_said(tight):
    text = tight_memory_text(TightMemory(0.999, 0.95, None), tight.result.best)
    assert text.endswith("No plan on the same chip uses at most 95%")
    assert "100%" in text


def test_devices_that_exist_are_told_too(finished_plans):
    run = run_of(request_of(finished_plans), SilentProgress())
    (plan,) = finished_plans.result.best.models.values()
    given = int(plan.memory_bytes / FULL)
    alone = priced(run, run.hardware)
    best = alone.design(given)
    room = tight_memory(replace(run, problem=replace(run.problem, memory_bytes=(given,))), best)
    assert room.used_share > MOST_SHARE
    assert used(room.runner_up) <= MOST_SHARE
    assert room.runner_up.value == alone.design(int(MOST_SHARE * given)).value <= best.value
    assert room.runner_up.accelerator is None
    assert "The best plan that uses at most 95% reaches" in tight_memory_text(room, best)
