"""The best.json of a search, alone in a folder, is priced by ``evaluate --plan`` to the same
seconds and bytes."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_study import CLUSTER, SPACE, small_study, solved

from Estimator.devices.files import load_device
from Estimator.devices.written_yaml import written_yaml
from Estimator.hardware_files import HARDWARE
from phaze.runs.plan_files import evaluate_request
from phaze.settings.resolve import resolve
from phaze.studies.evaluation import evaluated
from phaze_common.errors import InputError
from Solver.results import SearchResult

TINY = "bert:layers=4,hidden=128,heads=4,vocabulary=1000"
GPT = "gpt:layers=4,hidden=128,heads=4,vocabulary=1000,sequence_length=128"
NAMED = "bert-layers4-hidden128-heads4-vocabulary1000"  # as weights are given
WIDER = "bert-layers3-hidden256-heads4-vocabulary1000"
TIERS = [
    {"name": "node", "group_size": 4, "bandwidth_bytes_per_s": 2.0e11, "latency_s": 1.0e-6},
    {"name": "link", "group_size": 16, "bandwidth_bytes_per_s": 2.0e10, "latency_s": 5.0e-6},
]
FEW: dict[str, Any] = {"micro_batch_size": 1, "hbm_size": [0.05, 2]}
NARROW: dict[str, Any] = {
    "micro_batch_size": 1,
    "sequence_parallel": False,
    "recompute": ["none", "full"],
}
SEARCHES: dict[str, dict[str, Any]] = {
    "chips, several models": FEW
    | {"model": {NAMED: 2.0, WIDER: 1.0}, "tp": 1, "micro_batch_size": [1, 4]},
    "chips, branching": FEW | {"model": "t5-small", "hbm_size": 0.3, "pp": 8, "recompute": "none"},
    "chips, interleaved and sharded": FEW
    | {"model": TINY, "pp": 2, "interleave": 2, "zero_stage": 2, "overlap_gradients": True},
    "chips, two tiers": FEW
    | {"model": TINY, "tp": 4, "sequence_parallel": True, "cp": 2, "pp": 2, "group_order": "all"},
    "chips, 2d": FEW
    | {
        "model": GPT,
        "layout": "2d",
        "tp": 2,
        "tp2": 2,
        "cp": 1,
        "exchange": "ring",
        "pp": 2,
        **NARROW,
    },
    "chips, ring": FEW
    | {"model": GPT, "layout": "sequence", "tp": 2, "cp": 2, "exchange": "ring", "pp": 2, **NARROW},
    "device": {
        "model": TINY,
        "device": "device.yaml",
        "devices": 8,
        "tp": [1, 2],
        "pp": [2, 4],
        **NARROW,
    },
    "device, interleaved": {
        "model": TINY,
        "device": "a100_80gb",
        "devices": 8,
        "pp": 2,
        "interleave": 2,
        "tp": 1,
        **NARROW,
    },
    "device, experts": {
        "model": "mixtral-8x7b",
        "device": "h100",
        "devices": 16,
        "ep": 8,
        "tp": 1,
        "pp": 2,
        **NARROW,
    },
}
LIMITED = (
    "chips, interleaved and sharded",
    "device",
)  # whose files say what limits their best design: one of each kind


def asked(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a search, with hardware files of its own in ``folder``."""
    tiers = {"tiers": TIERS} if "cp" in settings else {}
    axes = SPACE["axes"] | {"num_tc": [4, 16], "num_vc": [16], "glb_mib": [4]}
    (folder / "space.yaml").write_text(yaml.safe_dump(SPACE | {"axes": axes}))
    (folder / "cluster.yaml").write_text(yaml.safe_dump(CLUSTER | tiers))
    (folder / "device.yaml").write_text(written_yaml(load_device("a100_40gb")))
    (folder / "software.yaml").write_text(
        (HARDWARE / "software" / "megatron_2022.yaml").read_text()
    )
    files = {"design_space": "space.yaml", "cluster": "cluster.yaml"}
    if settings.get("device") == "device.yaml":
        files = {"device": "device.yaml", "cluster": "cluster.yaml", "software": "software.yaml"}
    elif "device" in settings:
        files = {}
    common = {"sequence_length": 128, "global_batch_size": 64, "output": str(folder / "out")}
    return common | settings | {key: str(folder / name) for key, name in files.items()}


@pytest.fixture(scope="module", params=SEARCHES)
def searched(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, SearchResult]:
    """A folder with graphs, one with nothing but a best.json, and what it says. The hardware files
    of the search are gone."""
    folder = tmp_path_factory.mktemp("searched")
    result = solved(
        resolve({}, asked(folder, SEARCHES[request.param])), limits=request.param in LIMITED
    )
    assert result.best is not None
    alone = tmp_path_factory.mktemp("alone") / "best.json"
    shutil.move(folder / "out" / "best.json", alone)
    for file in (*folder.glob("*.yaml"), *(folder / "out").glob("*.*")):
        file.unlink()
    return folder / "out", alone, result


@pytest.mark.some(3)
def test_a_best_plan_is_priced_again_from_its_file_alone(
    searched: tuple[Path, Path, SearchResult],
) -> None:
    graphs, file, result = searched
    assert result.best is not None
    for model, plan in result.best.models.items():
        again = evaluated(evaluate_request(file, {"model": model, "output": str(graphs)}))
        assert again.iteration.iteration_s == pytest.approx(plan.time_per_batch_s, rel=1e-9)
        assert [stage.layers for stage in again.iteration.stages] == [
            stage.layers for stage in plan.stages
        ]
        for now, found in zip(again.iteration.stages, plan.stages, strict=True):
            assert (now.degrees, now.recomputed_layers) == (None, None)
            assert astuple(now)[1:-2] == pytest.approx(astuple(found)[1:-2], rel=1e-9)
        assert vars(again.iteration.breakdown) == pytest.approx(vars(plan.breakdown_s), rel=1e-9)
        assert again.plan.stages == plan.plan.stages
        assert again.hardware.accelerator == result.best.accelerator
        assert again.hardware.records == result.hardware.records


@pytest.mark.some(3)  # those of the test above
def test_stages_of_a_branching_model_leave_execution_order(
    searched: tuple[Path, Path, SearchResult],
) -> None:
    graphs, file, result = searched
    assert result.best is not None
    for model, plan in result.best.models.items():
        again = evaluated(evaluate_request(file, {"model": model, "output": str(graphs)}))
        assert (again.degrees.layer_order is not None) == (model == "t5-small")
        assert (again.plan.interleave, again.plan.group_order) == (
            plan.interleave,
            plan.plan.group_order,
        )


@pytest.mark.some(3)
def test_layers_in_an_order_that_cannot_run_are_refused_with_their_file(
    searched: tuple[Path, Path, SearchResult], tmp_path: Path
) -> None:
    graphs, file, _ = searched
    content = json.loads(file.read_text())
    model, stated = next(iter(content["models"].items()))
    stages = stated["stages"]
    stages.reverse()
    stated["stage_layers"].reverse()
    path = tmp_path / "best.json"
    path.write_text(json.dumps(content))
    request = evaluate_request(path, {"model": model, "output": str(graphs)})
    if len(stages) == 1:
        return
    with pytest.raises(
        InputError,
        match=rf"^{re.escape(str(path))}: chunk \d+ holds a layer that needs what chunk \d+ makes",
    ):
        evaluated(request)


def test_what_the_command_line_says_comes_first(tmp_path: Path) -> None:
    study = small_study(tmp_path, model=TINY, micro_batch_size=1, pp=2, hbm_size=2)
    best = solved(study).best
    assert best is not None and best.accelerator is not None
    file, graphs = tmp_path / "out" / "best.json", {"output": str(tmp_path / "out")}
    found = evaluated(evaluate_request(file, graphs))

    smaller = evaluate_request(file, graphs | {"hbm_size": 1, "dp": 4})
    assert (smaller.hardware.hbm_size, smaller.plan.dp, smaller.records.chip) == (
        (1.0,),
        (4,),
        best.accelerator,
    )
    assert evaluated(smaller).degrees.stage_layers == found.degrees.stage_layers
    recut = evaluate_request(file, graphs | {"pp": 4, "dp": 4})
    assert (recut.plan.stage_layers, recut.chunk_layers) == (None, None)
    moved = evaluate_request(file, graphs | {"stage_layers": [1, 5]})
    assert moved.chunk_layers is None and evaluated(moved).degrees.stage_layers == (1, 5)

    reference = evaluate_request(file, graphs | {"chip": "outside"})
    assert reference.records.chip == study.records.space.references[0].accelerator  # type: ignore[union-attr]
    assert reference.hardware.cluster == study.hardware.cluster
    assert reference.chunk_layers is not None and reference.chunk_layers.layers == tuple(
        stage.layers for stage in found.plan.stages
    )
    own = tmp_path / "own.yaml"
    own.write_text("{num_tc: 8, num_vc: 2, width: 128, depth: 128, width_vc: 128, glb_mib: 32}")
    assert evaluate_request(file, graphs | {"chip": str(own)}).records.chip.num_tc == 8  # type: ignore[union-attr]
    device = evaluate_request(file, graphs | {"device": "a100_80gb"})
    assert (
        device.hardware.cluster,
        device.hardware.software,
        device.hardware.chip,
        device.hardware.hbm_size,
    ) == (
        "dgx_a100",
        "megatron_2022",
        None,
        (),
    )
    assert device.plan.pp == (found.degrees.pp,) and device.records.space is None
    with pytest.raises(InputError, match="has no known chip 'imaginary'"):
        evaluate_request(file, graphs | {"chip": "imaginary"})


def test_a_chip_is_priced_with_the_plan_of_a_device(tmp_path: Path) -> None:
    settings = asked(tmp_path, SEARCHES["device"])
    solved(resolve({}, settings))
    file, graphs = tmp_path / "out" / "best.json", {"output": str(tmp_path / "out")}
    plan = evaluate_request(file, graphs)
    chip = evaluate_request(file, graphs | {"chip": "tpu_v4", "hbm_size": 32})
    assert (
        chip.hardware.device,
        chip.hardware.software,
        chip.hardware.cluster,
        chip.hardware.hbm_size,
    ) == (
        None,
        None,
        "phaze_icml24",
        (32.0,),
    )
    assert chip.chunk_layers == plan.chunk_layers
    assert [getattr(chip.plan, name) for name in ("tp", "pp", "dp")] == [
        getattr(plan.plan, name) for name in ("tp", "pp", "dp")
    ]
    assert evaluated(chip).hardware.accelerator == chip.records.chip
    same = evaluate_request(file, graphs | {"cluster": settings["cluster"]})
    assert same.records.cluster.num_devices == CLUSTER["num_devices"], (
        "a flag reads the file that it names"
    )


def test_a_known_chip_needs_no_plan_file(tmp_path: Path) -> None:
    flags = {
        "chip": "tpu_v4",
        "model": TINY,
        "sequence_length": 128,
        "pp": 4,
        "dp": 8,
        "hbm_size": 32,
        "output": str(tmp_path),
    }
    found = evaluated(evaluate_request(None, flags))
    assert (found.hardware.title, found.hardware.accelerator.width_vc) == ("tpu_v4", 2048)  # type: ignore[union-attr]
    assert found.iteration.devices == 32 and found.iteration.iteration_s > 0
    assert found.machine.memory_bytes == 32 * 2**30


def test_files_that_lack_something_are_refused(
    searched: tuple[Path, Path, SearchResult], tmp_path: Path
) -> None:
    content = json.loads(searched[1].read_text())
    model = next(iter(content["models"]))
    for damage in (
        ("models", model, "stage_layers"),
        ("models", model, "stages"),
        ("hardware",),
        ("hardware", "records"),
    ):
        broken = json.loads(json.dumps(content))
        place = broken
        for key in damage[:-1]:
            place = place[key]
        del place[damage[-1]]
        (tmp_path / "best.json").write_text(json.dumps(broken))
        with pytest.raises(InputError, match="not one that this version of phaze wrote"):
            evaluate_request(tmp_path / "best.json", {})
    with pytest.raises(InputError, match="holds no plan of gpt2; it holds those of"):
        evaluate_request(searched[1], {"model": "gpt2"})
