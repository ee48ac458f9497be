"""Content keys: equal questions are found again, different ones never taken for each other."""

from dataclasses import MISSING, fields, replace

import pytest
import yaml
from sweep_cases import CLUSTER, SMALL, small_sweep, write

from Estimator.plans.results import Breakdown
from phaze.report.sentences.designs import degrees_text
from phaze.settings.problem import graph_keys
from phaze.studies.sweep import points as sweep_points
from phaze.studies.sweep.axes import read_sweep
from phaze.studies.sweep.points import key_of
from phaze.studies.sweep.results import PlanRow
from phaze.studies.sweep.run import resolved_points
from phaze_common.choices import KeyExchange, TensorLayout
from phaze_common.file_formats import POINT
from phaze_common.records import to_record

GPT = {"model": "gpt3-125m", "sequence_length": 64, "global_batch_size": 64}


def key(folder, **asked):
    (point,) = resolved_points(small_sweep(folder, **asked))
    assert point.point is not None, point.problem
    return point.point.key


@pytest.mark.parametrize(
    "change",
    [
        {"model": "bertlarge"},
        {"model": "bertbase=2"},
        {"micro_batch_size": 2},
        {"sequence_length": 128},
        {"hbm_size": 64},
        {"tp": [[1, 2]]},
        {"recompute": "none"},
        {"global_batch_size": 128},
        {"optimizer": "sgd"},
        {"zero_stage": 1},
        {"cluster": "dgx_a100"},
        {"design_space": "phaze_icml24"},
        {"objective": "throughput_per_area"},
        {"strict": True},
        {"device": "a100_80gb", "design_space": None},
    ],
    ids=str,
)
def test_every_setting_changes_the_key(tmp_path, change):
    assert key(tmp_path, **change) != key(tmp_path)


def test_names_and_places_do_not(tmp_path):
    same = {
        "name": "other",
        "csv": True,
        "max_tp": 1,
        "recompute": [["none", "selective", "full"]],
        "hbm_size": 32.0,
    }
    assert key(tmp_path / "elsewhere", **same) == key(tmp_path)
    assert key(tmp_path, sequence_length=None) == key(tmp_path, sequence_length=512)


def test_the_content_of_hardware_files_counts_and_so_does_that_of_files_they_name(tmp_path):
    before = key(tmp_path)
    asked = SMALL | {"cluster": "wide.yaml"}
    path = write(tmp_path, asked)
    (tmp_path / "wide.yaml").write_text(yaml.safe_dump(CLUSTER | {"num_devices": 8}))
    (wide,) = resolved_points(read_sweep(path, {}, str(tmp_path / "out")))
    (tmp_path / "wide.yaml").write_text("# the same but for this line\n" + yaml.safe_dump(CLUSTER))
    (same,) = resolved_points(read_sweep(path, {}, str(tmp_path / "out")))
    assert wide.point.key != before == same.point.key
    assert key_of(wide.point.request) == wide.point.key, "what was read when it was resolved counts"


def test_a_model_of_the_users_own_counts_with_what_it_imports(tmp_path):
    own = tmp_path / "mine.py"
    lines = (
        "import sizes\n\n\ndef build():\n    ...\n\n\ndef example_inputs(micro_batch_size, "
        "sequence_length=8):\n    ...\n"
    )
    own.write_text(lines)
    (tmp_path / "sizes.py").write_text("WIDTH = 1\n")
    first = key(tmp_path, model="./mine.py")
    (tmp_path / "sizes.py").write_text("WIDTH = 2\n")
    second = key(tmp_path, model="./mine.py")
    own.write_text(lines + "\n# changed\n")
    assert len({first, second, key(tmp_path, model="./mine.py")}) == 3


def test_other_code_or_libraries_change_every_key(tmp_path, monkeypatch):
    before = key(tmp_path)
    sweep_points._code.cache_clear()
    monkeypatch.setattr(sweep_points, "library_version", lambda name: "0.0")
    try:
        assert key(tmp_path) != before
    finally:
        sweep_points._code.cache_clear()


def test_points_of_one_family_share_their_layer_times_and_others_do_not(tmp_path):
    def families(**asked):
        return {point.point.family for point in resolved_points(small_sweep(tmp_path, **asked))}

    assert len(families(hbm_size=[1, 2], zero_stage=[0, 1], global_batch_size=[64, 128])) == 1
    assert len(families(micro_batch_size=[1, 2], sequence_length=[64, 128])) == 4


@pytest.mark.parametrize(
    "asked",
    [
        {"layout": ["2d", "auto"], "tp2": 2, "tp": 2},
        {"layout": "2d", "tp2": [2, 4], "tp": 2},
        {"layout": "sequence", "cp": 2, "exchange": ["gather", "ring", "ulysses"]},
        {"precision": ["bf16", "fp16"]},
        {"solver": ["native", "highs"]},
    ],
    ids=str,
)
def test_points_of_one_family_have_the_same_graphs(tmp_path, asked):
    found = [each.point for each in resolved_points(small_sweep(tmp_path, **GPT, **asked))]
    graphs = {point.family: graph_keys(point.request) for point in found}
    assert all(graphs[point.family] == graph_keys(point.request) for point in found)
    assert len(graphs) == len(found) > 1


def test_a_plan_s_row_tells_its_layout_and_one_of_an_earlier_version_is_read():
    numbers = {
        each.name: 1
        for each in fields(PlanRow)
        if each.default is MISSING and each.name != "breakdown_s"
    }
    parts = {each.name: 0.5 for each in fields(Breakdown)}
    plan = {"recompute": "none", "group_order": "tensor-data-pipeline", "layout": ""}
    before = {"plans": [numbers | plan | {"model": "m", "tp": 2, "breakdown_s": parts}]}

    def read(**changes: object) -> PlanRow:
        document = {"schema_version": 2, "plans": [before["plans"][0] | changes]}
        (row,) = POINT.current(document, "point.json")["plans"]
        return to_record(PlanRow, row, "point.json")

    assert (degrees_text(read()), read().layout_name) == ("2 x 1 x 1", "1d")
    now = read(tp=1, cp=4, layout="sequence", exchange="ulysses")
    assert degrees_text(now) == "1 x 1 x 1 x cp 4 (ulysses)"
    assert (
        degrees_text(
            replace(now, cp=1, tp2=2, layout=TensorLayout.TWO_D, exchange=KeyExchange.RING, ep=2)
        )
        == "1 x 1 x 1 x tp2 2 (ring), 2d layout, ep 2"
    )
