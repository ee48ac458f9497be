"""Aceso's cost model: its own predictions of stored plans, plans written and read again, and small
stages worked out by hand."""

import csv
import json
from pathlib import Path

import pytest
from aceso_databases import write_database

from phaze_common.errors import InputError
from third_party.aceso.database import OPERATOR_COLUMNS, read_database
from third_party.aceso.evaluation import evaluate
from third_party.aceso.models import find_model
from third_party.aceso.plans import Plan, StagePlan, plan_document, plan_from, read_plan
from third_party.aceso.resharding import Choice

PRECISION = 1e-6


def test_plans_that_aceso_found_cost_what_it_predicted(shared_data: Path) -> None:
    """Iteration, every stage and its memory, which were written with two digits behind the
    point."""
    folder = shared_data / "aceso"
    predictions = json.loads((folder / "plans" / "predictions.json").read_text())["plans"]
    assert len(predictions) >= 12
    for predicted in predictions:
        plan = read_plan(folder / "plans" / predicted["plan"])
        priced = evaluate(plan, read_database(folder / predicted["database"], plan.model))
        assert priced.iteration_s * 1e3 == pytest.approx(predicted["iteration_ms"], rel=PRECISION)
        for seconds, stage, of in zip(
            priced.stage_s, priced.stages, predicted["stages"], strict=True
        ):
            number = plan.global_batch // plan.micro_batch
            assert seconds * 1e3 == pytest.approx(of["stage_iteration_ms"], rel=PRECISION)
            assert stage.memory_mib == pytest.approx(of["memory_MB"], rel=PRECISION)
            assert stage.forward_us * number / 1e3 == pytest.approx(
                of["fwd_comp_ms"], rel=PRECISION
            )
            assert stage.recompute_us * number / 1e3 == pytest.approx(
                of["recomp_ms"], rel=PRECISION, abs=0.01
            )


def test_plans_that_mist_ran_cost_what_aceso_predicted(shared_data: Path) -> None:
    folder = shared_data / "mist"
    with (folder / "runs.csv").open() as file:
        runs = list(csv.DictReader(file))
    assert len(runs) >= 14
    for run in runs:
        plan = read_plan(folder / "plans" / run["plan"])
        priced = evaluate(plan, read_database(folder / "operators" / run["database"], plan.model))
        assert priced.iteration_s == pytest.approx(float(run["peer_predicted_s"]), rel=PRECISION)


def test_plan_files_are_written_as_they_were_read(shared_data: Path) -> None:
    paths = sorted((shared_data / "aceso" / "plans").glob("*stages.json")) + sorted(
        (shared_data / "mist" / "plans").glob("*.json")
    )
    assert len(paths) >= 26
    for path in paths:
        document = json.loads(path.read_text())
        written = plan_document(plan_from(document, str(path)))
        assert list(written) == list(document) and written == document


ONE, WIDE = Choice(1, 1, 0), Choice(2, 1, 0)
HEADER = ",".join(OPERATOR_COLUMNS)
ROWS = {
    "enc-1st-layernorm": "100,200,4,8,10,3,1,2",
    "enc-attention-softmax": "50,60,8,8,0,7,5,1",
    "enc-attention-dropout": "10,20,8,16,0,2,0,4",
    "enc-post-MLP-dropout": "30,40,16,32,6,5,0,0",
}


def by_hand(folder: Path) -> None:
    """Four operators of a GPT, the same at both widths, and the tables of 1 GiB/s and 1 ms for
    everything."""
    for width in (1, 2):
        text = "\n".join([HEADER, *(f"{name},{values}" for name, values in ROWS.items())])
        (folder / f"gpt_tiny_mbs1_tp{width}_algo0.csv").write_text(text + "\n")
    (folder / "p2p_intra_node.csv").write_text(
        ",".join(str(2**at) for at in range(11)) + "\n" + ",".join(["1"] * 11) + "\n"
    )
    for name in ("all_gather", "all_to_all"):
        sizes = "".join(f"{mib},1\n" for mib in (4, 8, 16))
        (folder / f"prim_gpt_tiny_{name}_2gpus.csv").write_text("data_size(MB),time(ms)\n" + sizes)


def test_one_stage_by_hand(tmp_path: Path) -> None:
    by_hand(tmp_path)
    model = find_model("gpt", "tiny", 1)
    flags = (False, True, True, True)
    plan = Plan(model, 4, 1, (StagePlan(1, (ONE,) * 4, flags),))
    priced = evaluate(plan, read_database(tmp_path, model))
    (stage,) = priced.stages
    assert (stage.forward_us, stage.backward_us, stage.recompute_us) == (190, 320, 90)
    assert (stage.receive_us, stage.send_us, stage.resharding_us) == (4 / 0.001, 32 / 0.001, 0)
    assert priced.iteration_s == pytest.approx(4 * (190 + 320 + 90 + 4000 + 32000) * 1e-6)
    # kept: input 4, activations 3 + 0 (a shared buffer) + 1.5 x 2 + 5, of which the dropout's 3 are
    # saved
    assert (stage.weights_mib, stage.gradients_mib, stage.optimizer_mib) == (3 * 16, 16, 4 * 16)
    assert stage.kept_mib == 0
    assert stage.working_mib == pytest.approx(
        4 + 3 + 0 + 3 + 5 - 3
    )  # the run ends behind attention dropout: no peak is charged
    assert stage.reserved_mib == max(5 + 4, 16)


def test_stages_behind_and_changes_of_width_by_hand(tmp_path: Path) -> None:
    by_hand(tmp_path)
    model = find_model("gpt", "tiny", 1)
    two = Choice(1, 2, 0)
    database = read_database(tmp_path, model)
    plan = Plan(
        model,
        4,
        1,
        (StagePlan(1, (ONE,) * 2, (False,) * 2), StagePlan(2, (WIDE, WIDE), (False,) * 2)),
    )
    with pytest.raises(InputError, match="more than one node"):
        evaluate(plan, database, devices_per_node=2)
    first, second = evaluate(plan, database).stages
    assert first.kept_mib == 4 + 3 and second.kept_mib == 0
    assert first.send_us == 8 / 0.001 and second.receive_us == 8 / 0.001
    assert (
        second.resharding_us == 1000
    )  # heads over two devices become replicas: gathered forward, split backward
    with pytest.raises(InputError, match="cannot be divided"):
        evaluate(Plan(model, 4, 1, (StagePlan(2, (two,) * 4, (False,) * 4),)), database)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_stages": 2}, "num_gpus must be a list"),
        ({"recompute_ops": [[0, 0, 2]]}, "one value for each of the 4 operators"),
        ({"recompute_ops": [[0, 0, 2, 0]]}, "recompute_ops"),
        (
            {"data_parallel_size_of_each_op": [[2, 2, 2, 2]]},
            "their product must be the number of GPUs",
        ),
        ({"model_name": "bert"}, "not one that Aceso profiles"),
        ({"num_layers": 2}, "the plan has 4 operators, the model 8"),
        ({"model_size": "other"}, "give the two of one model"),
        ({"micro_batch_size": 3}, "not a whole number of micro-batches"),
        ({"micro_batch_size": 4}, "did not profile"),
        ({"algo_of_each_op": [[0, 1, 0, 0]]}, "did not profile"),
        ({"global_batch_size": None}, "global_batch_size"),
    ],
)
def test_plans_that_contradict_themselves_or_the_database(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    by_hand(tmp_path)
    model = find_model("gpt", "tiny", 1)
    database = read_database(tmp_path, model)
    document = plan_document(Plan(model, 4, 1, (StagePlan(1, (ONE,) * 4, (False,) * 4),)))
    assert evaluate(plan_from(document, "plan"), database).iteration_s > 0
    with pytest.raises(InputError, match=message):
        evaluate(plan_from(document | change, "plan"), database)


def test_what_failed_while_it_was_profiled_is_not_priced(tmp_path: Path) -> None:
    by_hand(tmp_path)
    path = tmp_path / "gpt_tiny_mbs1_tp1_algo0.csv"
    path.write_text(
        path.read_text().replace(
            ROWS["enc-attention-softmax"], ",".join(["10000000"] * 5 + ["0"] * 3)
        )
    )
    (tmp_path / "prim_gpt_tiny_all_gather_2gpus.csv").write_text(
        "data_size(MB),time(ms)\n16,2000000\n"
    )
    model = find_model("gpt", "tiny", 1)
    database = read_database(tmp_path, model)
    assert not database.measured(1, 1) and database.measured(1, 2)
    with pytest.raises(InputError, match="no measurement of enc-attention-softmax"):
        evaluate(Plan(model, 4, 1, (StagePlan(1, (ONE,) * 4, (False,) * 4),)), database)
    with pytest.raises(InputError, match="no measured collective"):
        evaluate(Plan(model, 4, 1, (StagePlan(2, (WIDE,) * 4, (False,) * 4),)), database)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gpt_tiny_mbs1_tp1_algo0.csv", "nothing\n", "does not begin with"),
        ("gpt_tiny_mbs1_tp1_algo0.csv", HEADER + "\n", "holds no operators"),
        ("gpt_tiny_mbs1_tp1_algo0.csv", HEADER + "\na,1,2,3\n", "damaged or repeated row"),
        ("gpt_tiny_mbs1_tp1_algo0.csv", HEADER + "\na,1,2,3,x,5,6,7,8\n", "must be a number"),
        ("gpt_tiny_mbs1_tp1_algo0.csv", HEADER + "\na,1,2,3,4,5,6,7,8\n", "lists other operators"),
        ("p2p_intra_node.csv", "1,2\n1,2\n", "does not hold 11 bandwidths"),
    ],
)
def test_damaged_databases_are_refused(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    by_hand(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_database(tmp_path, find_model("gpt", "tiny", 1))


def test_layers_are_chosen_only_where_the_files_hold_one(tmp_path: Path) -> None:
    write_database(tmp_path, 1, "resnet")
    with pytest.raises(InputError, match="cannot be chosen"):
        find_model("resnet", "tiny", 2)
    with pytest.raises(InputError, match="add --layers"):
        find_model("gpt", "scale-layer")
    with pytest.raises(InputError, match="holds no measurements of gpt_tiny"):
        read_database(tmp_path, find_model("gpt", "tiny", 1))
