"""Tables of plans priced from Python."""

from pathlib import Path

import pandas as pd
import pytest

import phaze
from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.rates import device_machine
from GraphExtractor import extract
from GraphExtractor.graph import Recompute
from phaze.settings.defaults import usual_precision
from phaze.settings.resolve import resolve
from phaze.studies.evaluation import evaluated
from phaze_common.errors import InputError
from phaze_common.setting_fields import Mode

SMALL = {"model": "gpt3-125m", "device": "a100_80gb", "sequence_length": 64, "global_batch_size": 8}


def test_rows_are_priced_as_plans_are_alone(tmp_path: Path) -> None:
    device, software = load_device("a100_80gb"), load_software("megatron_2022")
    table = {
        "pp": [1, 2, 4, 1],
        "dp": 2,
        "interleave": [1, 3, 1, 1],
        "recompute": ["none", "none", "none", "full"],
    }
    found = phaze.evaluate_many(
        pd.DataFrame({**table, "overlap_gradients": [None, True, False, None]}),
        model="bertbase",
        device="a100_80gb",
        software="megatron_2022",
        cluster="dgx_a100",
        sequence_length=64,
        global_batch_size=32,
        output=tmp_path,
    )
    assert found["feasible"].tolist() == [True] * 4
    cluster = load_cluster("dgx_a100")
    precision = usual_precision(device)
    model = DeviceModel(device, software, precision.matrix_format)
    for row, overlap in zip(found.itertuples(), (None, True, False, None), strict=True):
        plan = UniformPlan(
            pp=row.pp,
            dp=row.dp,
            interleave=row.interleave,
            recompute=Recompute(row.recompute),
            global_batch_size=32,
            precision=precision,
            overlap_gradients=overlap,
        )
        graph = extract.extract_graph(plan.graph_key("bertbase", 64))
        alone = price_iteration(
            plan,
            DeviceCosts(model, cluster).layer_costs(
                graph, plan.recompute, layer_groups(plan, cluster)
            ),
            device_machine(model, cluster),
        )
        assert row.iteration_s == pytest.approx(alone.iteration_s, rel=1e-9)
        assert row.memory_bytes == pytest.approx(alone.memory_bytes, rel=1e-9)
        assert row.samples_per_s == pytest.approx(alone.samples_per_s, rel=1e-9)


def test_layouts_and_assignments_cost_in_a_table_what_they_cost_alone(tmp_path: Path) -> None:
    settings = {
        "model": "gpt3-125m",
        "device": "a100_80gb",
        "cluster": "dgx_a100",
        "sequence_length": 64,
        "global_batch_size": 32,
    }
    rows = [
        {"layout": "2d", "tp": 2, "tp2": 2, "panels": 4, "dp": 3, "pp": 2, "zero_stage": 1},
        {"layout": "2d", "tp": 2, "tp2": 2, "panels": 12, "dp": 3, "pp": 2, "zero_stage": 1},
        {
            "layout": "2d",
            "tp": 1,
            "tp2": 2,
            "dp": 2,
            "exchange": "ring",
            "group_order": "row2/dp2",
            "panels": 2,
        },
        {
            "layout": "sequence",
            "cp": 4,
            "tp": 2,
            "dp": 2,
            "exchange": "ring",
            "sequence_parallel": True,
        },
        {"cp": 2, "tp": 2, "dp": 4, "exchange": "ulysses", "group_order": "tp2.dp4/cp2"},
        {"tp": 2, "dp": 4, "pp": 2, "group_order": "tp2.dp2.pp2/dp2"},
    ]
    plain = {
        "layout": "1d",
        "tp": 1,
        "tp2": 1,
        "panels": 1,
        "cp": 1,
        "dp": 1,
        "pp": 1,
        "exchange": "gather",
        "zero_stage": 0,
    }
    plain |= {"sequence_parallel": False, "group_order": "tensor-data-pipeline"}
    table = pd.DataFrame([plain | row for row in rows])
    found = phaze.evaluate_many(table, **settings, output=tmp_path)
    for place, row in enumerate(rows):
        alone = evaluated(
            resolve({}, settings | row | {"output": str(tmp_path)}, Mode.EVALUATE)
        ).iteration
        assert found["iteration_s"][place] == pytest.approx(alone.iteration_s, rel=1e-9), row
        assert found["memory_bytes"][place] == pytest.approx(alone.memory_bytes, rel=1e-9), row


def test_panels_that_a_table_leaves_out_are_those_of_a_plan_alone(tmp_path: Path) -> None:
    settings = {
        "model": "gpt3-125m",
        "device": "a100_80gb",
        "sequence_length": 64,
        "output": str(tmp_path),
    }
    settings |= {"global_batch_size": 8}
    table = {"layout": ["2d", "2d", "1d"], "tp": [2, 1, 2], "tp2": [2, 1, 1]}
    found = phaze.evaluate_many(table, **settings)
    stated = phaze.evaluate_many(table | {"panels": [4, 1, 1]}, **settings)
    assert found["iteration_s"].tolist() == stated["iteration_s"].tolist()
    alone = evaluated(
        resolve({}, settings | {"layout": "2d", "tp": 2, "tp2": 2}, Mode.EVALUATE)
    ).iteration
    assert found["iteration_s"][0] == pytest.approx(alone.iteration_s, rel=1e-9)


def test_plans_use_as_many_devices_as_their_degrees_say(tmp_path: Path) -> None:
    """A global batch that no plan on all 4,096 devices of the cluster could share out refuses none
    of the smaller plans."""
    table = {"tp": [2, 2, 1], "pp": [1, 2, 3], "dp": [2, 4, 1]}
    found = phaze.evaluate_many(table, **SMALL, output=tmp_path)
    for place in range(3):
        row = {name: values[place] for name, values in table.items()}
        alone = evaluated(
            resolve({}, SMALL | row | {"output": str(tmp_path)}, Mode.EVALUATE)
        ).iteration
        assert found["iteration_s"][place] == pytest.approx(alone.iteration_s, rel=1e-9), row


def test_data_parallel_degrees_follow_from_devices_as_of_a_plan_alone(tmp_path: Path) -> None:
    table = {"tp": [2, 1, 2], "pp": [1, 2, 2]}
    found = phaze.evaluate_many(table, **SMALL, devices=8, output=tmp_path)
    stated = phaze.evaluate_many(table | {"dp": [4, 4, 2]}, **SMALL, devices=8, output=tmp_path)
    assert found["iteration_s"].tolist() == stated["iteration_s"].tolist()
    alone = evaluated(
        resolve(
            {}, SMALL | {"tp": 2, "pp": 2, "devices": 8, "output": str(tmp_path)}, Mode.EVALUATE
        )
    ).iteration
    assert found["iteration_s"][2] == pytest.approx(alone.iteration_s, rel=1e-9)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"tp": [2, 2], "dp": [4, 2]},
            "^plan 1: devices is 8, but tp 2 x pp 1 x cp 1 x dp 2 = 4; give dp 4 or devices 4$",
        ),
        (
            {"tp": [2, 1], "pp": [1, 3]},
            "^plan 1: devices is 8, which is no multiple of tp 1 x pp 3 x cp 1 = 3",
        ),
        ({"tp": [2, 1], "cp": [1, 0]}, "^plan 1: cp is 0; it must be at least 1"),
    ],
)
def test_plans_on_another_number_of_devices_than_asked_are_refused(
    columns: dict[str, list[int]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        phaze.evaluate_many(columns, **SMALL, devices=8)


def test_a_refusal_names_the_row_of_the_table() -> None:
    with pytest.raises(InputError, match=r"^plan 2: dp 9 replicas"):
        phaze.evaluate_many({"tp": [2, 1, 1], "dp": [1, 1, 9]}, **SMALL)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"layout": "2d", "tp": 2, "tp2": 2, "panels": 7},
            "panels is 7, which does not divide the 768 hidden columns",
        ),
        (
            {"layout": "1d", "tp": 2, "panels": 4},
            "only products of a 2d layout on several devices run in panels",
        ),
        ({"layout": "2d", "tp": 2, "tp2": 2, "panels": 0}, "panels is 0; it must be at least 1"),
    ],
)
def test_panels_in_a_table_that_cannot_be_are_refused(row: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        phaze.evaluate_many(
            {name: [value] for name, value in row.items()}, model="gpt3-125m", device="a100_80gb"
        )


def test_unknown_columns_and_several_chips_are_refused() -> None:
    with pytest.raises(InputError, match="no 'ppp'; their columns are layout, tp"):
        phaze.evaluate_many({"ppp": [1]}, model="bertbase", device="a100_80gb")
    with pytest.raises(InputError, match="device= or chip="):
        phaze.evaluate_many({"pp": [1]}, model="bertbase")
