"""Every kind of file that a later phaze may read, forged to be older and newer than what is read:
one sentence each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import phaze
from Estimator.chips.cost import load_prices
from Estimator.chips.design_space_files import load_chip, load_design_space
from Estimator.chips.memory_files import load_memory
from Estimator.devices.files import load_attention, load_contention, load_device, load_software
from Estimator.hardware_files import (
    HARDWARE,
    load_cluster,
    load_platform,
    load_technology,
    load_vector_functions,
)
from Estimator.profiled.machine import Clock, DeviceKind, MachineRecord, read_machine, write_machine
from GraphExtractor.graph import GraphKey
from GraphExtractor.storage import load, store
from phaze.runs.finished_run import open_run
from phaze.runs.plan_files import read_plan
from phaze.runs.robustness import kept_robustness
from phaze.runtime.training.plan_file import read_plan_to_train
from phaze.settings.config_files import read_config
from phaze.studies.sweep.axes import read_sweep
from phaze.studies.sweep.points_read import read_points
from phaze.studies.sweep.results import point_result
from phaze.studies.sweep.store import Store
from phaze.studies.trained_run import trained_run
from phaze.validation import intervals
from phaze_common import file_formats
from phaze_common.errors import ArtefactError, PhazeError
from phaze_common.file_formats import KEY, FileFormat
from phaze_common.files import pack, unpack
from phaze_common.records import to_json
from phaze_common.sealed import KEY as DIGEST
from phaze_common.sealed import sealed, unsealed, with_digest
from tests.builders.forged_runs import forged
from tests.Solver.designs.small_study import write_hardware

KINDS = {name: each for name, each in vars(file_formats).items() if isinstance(each, FileFormat)}
ONLY_WRITTEN = {"TRAINING_TIME"}
FORGED = {
    name: (each.oldest - 1, each.version + 1)
    for name, each in KINDS.items()
    if name not in ONLY_WRITTEN
}
SHIPPED = {
    "ATTENTION": ("attention/flash_3", load_attention),
    "CLUSTER": ("clusters/dgx_h100", load_cluster),
    "CONTENTION": ("contention/a100_40gb", load_contention),
    "DESIGN_SPACE": ("design_spaces/phaze_icml24", load_design_space),
    "DEVICE": ("devices/h100", load_device),
    "MEMORY": ("memories/hbm3e", load_memory),
    "PRICES": ("prices/datacenter_2025", load_prices),
    "SOFTWARE": ("software/megatron_core", load_software),
    "TECHNOLOGY": ("technologies/phaze_22nm", load_technology),
    "VECTOR_FUNCTIONS": ("vector_functions/phaze", load_vector_functions),
}
CHIP = {"num_tc": 8, "num_vc": 2, "width": 128, "depth": 128, "width_vc": 128, "glb_mib": 128}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished run."""
    folder = tmp_path_factory.mktemp("run")
    asked: dict[str, Any] = write_hardware(tmp_path_factory.mktemp("hardware"))
    study = phaze.study(
        model="bertbase",
        sequence_length=64,
        global_batch_size=64,
        recompute="none",
        hbm_size=16,
        output=folder / "run",
        **asked,
    )
    return Path(phaze.run_solver(study).run_directory)


Reader = Callable[[Path, int], object]


def of_settings(folder: Path, version: int) -> object:
    path = folder / "study.yaml"
    path.write_text(f"{KEY}: {version}\nmodel: bertbase\n")
    for read in (
        read_config,
        lambda file: read_sweep(file, {}),
        lambda file: read_plan(file, None),
    ):
        try:
            read(path)
        except PhazeError as error:
            refused = error
        else:
            refused = None
        assert (refused is None) == (version == KINDS["STUDY"].version)
    if refused is not None:
        raise refused
    return None


def of_run(run: Path, name: str) -> Reader:
    def read(folder: Path, version: int) -> object:
        shutil.copytree(run, folder / "run", ignore=shutil.ignore_patterns("points"))
        path = folder / "run" / name
        if name == "manifest.json":
            document = {**json.loads(path.read_text()), KEY: version}
            del document[DIGEST]
            path.write_text(json.dumps(with_digest(document)))
        elif name == "best.json":
            document = {**json.loads(path.read_text()), KEY: version}
            del document[DIGEST]
            forged(path.parent, name, json.dumps(with_digest(document)).encode())
        elif name == "schedules.json.gz":
            forged(
                path.parent,
                name,
                pack(json.dumps({**json.loads(unpack(path)), KEY: version}).encode()),
            )
        return open_run(folder / "run")

    return read


def of_point(run: Path) -> Reader:
    def read(folder: Path, version: int) -> object:
        points = Store(folder / "points")
        shutil.copytree(run, points.folder("k"))
        points.finish("k", point_result(open_run(run).result), 1.0)
        record = points.folder("k") / "point.json"
        document = {**json.loads(unsealed(record.read_bytes(), "")), KEY: version}
        record.write_bytes(sealed(json.dumps(document).encode()))
        return points.peek("k")

    return read


def of_shipped(name: str) -> Reader:
    place, load_file = SHIPPED[name]

    def read(folder: Path, version: int) -> object:
        path = folder / "mine.yaml"
        path.write_text(f"{KEY}: {version}\n{(HARDWARE / f'{place}.yaml').read_text()}")
        return load_file(str(path))  # type: ignore[operator]

    return read


def of_chip(folder: Path, version: int) -> object:
    path = folder / "chip.yaml"
    path.write_text(yaml.safe_dump({KEY: version, **CHIP}))
    return load_chip(path, load_design_space("phaze_icml24"))


def of_platform(folder: Path, version: int) -> object:
    path = folder / "platform.yaml"
    path.write_text(f"{KEY}: {version}\n{(HARDWARE / 'platforms' / 'phaze_hbm2.yaml').read_text()}")
    return load_platform(str(path), load_technology("phaze_22nm"), load_vector_functions("phaze"))


def of_machine(folder: Path, version: int) -> object:
    write_machine(
        folder,
        MachineRecord("mine", "a CPU", DeviceKind.CPU, 1e9, 1, 1, Clock.THREAD, "2026-01-01", {}),
    )
    path = folder / "machine.yaml"
    path.write_text(path.read_text().replace(f"{KEY}: 1", f"{KEY}: {version}"))
    return read_machine(folder)


def of_training(run: Path) -> Reader:
    def read(folder: Path, version: int) -> object:
        (folder / "train").mkdir()
        for name in ("train.json", "measured.json"):
            (folder / "train" / name).write_text(json.dumps({KEY: version}))
        best = open_run(run).result.best
        assert best is not None
        found = best.models["bertbase"]
        return trained_run(folder, found.plan, found.pipeline)

    return read


def of_robust(folder: Path, version: int) -> object:
    (folder / "robust.json").write_text(json.dumps({KEY: version}))
    return kept_robustness(folder)


def of_checkpoint(folder: Path, version: int) -> object:
    from phaze.runtime.training.checkpoints import find

    (folder / "checkpoint.json").write_text(json.dumps({KEY: version}))
    return find(folder, None)  # type: ignore[arg-type]  # what it is compared with comes later


def of_plan(run: Path) -> Reader:
    def read(folder: Path, version: int) -> object:
        best = phaze.open_run(run).result.best
        assert best is not None
        plan = json.loads(to_json(best.models["bertbase"].plan))
        (folder / "plan.json").write_text(json.dumps({KEY: version, **plan}))
        return read_plan_to_train(folder / "plan.json", None)

    return read


def of_residuals(monkeypatch: pytest.MonkeyPatch) -> Reader:
    def read(folder: Path, version: int) -> object:
        path = folder / "residuals.yaml"
        path.write_text(intervals.RESIDUALS.read_text().replace(f"{KEY}: 1", f"{KEY}: {version}"))
        monkeypatch.setattr(intervals, "RESIDUALS", path)
        return intervals.load_residuals.__wrapped__()

    return read


def of_graph(extracted: Any) -> Reader:
    def read(folder: Path, version: int) -> object:
        path = folder / "graph.json.gz"
        graph = extracted("bertbase", sequence_length=64)
        assert graph.key == GraphKey("bertbase", 1, 64, 1)
        store(graph, "made from", path)
        document = json.loads(unsealed(unpack(path), ""))
        document["graph"][KEY] = version
        if version != KINDS["GRAPH"].version:
            document["graph"]["more"] = "than this version knows"
        path.write_bytes(pack(sealed(json.dumps(document).encode())))
        return load(path)

    return read


@pytest.fixture
def readers(run: Path, extracted: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Reader]:
    """How a file of each kind is written with a version, and read as the program reads it."""
    files = {"MANIFEST": "manifest.json", "BEST": "best.json", "SCHEDULES": "schedules.json.gz"}
    return {
        **{kind: of_run(run, name) for kind, name in files.items()},
        **{kind: of_shipped(kind) for kind in SHIPPED},
        "CHECKPOINT": of_checkpoint,
        "CHIP": of_chip,
        "GRAPH": of_graph(extracted),
        "MACHINE": of_machine,
        "PLAN": of_plan(run),
        "PLATFORM": of_platform,
        "POINT": of_point(run),
        "RESIDUALS": of_residuals(monkeypatch),
        "ROBUST": of_robust,
        "STUDY": of_settings,
        "TRAINING": of_training(run),
    }


CASES = [(name, version) for name, versions in FORGED.items() for version in versions]


@pytest.mark.parametrize(("name", "version"), CASES)
def test_another_version_is_refused_in_a_sentence_that_says_what_to_do(
    name: str,
    version: int,
    readers: dict[str, Reader],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kind = KINDS[name]
    try:
        assert (
            readers[name](tmp_path, version) is None
        )  # what is not needed is left out or made again, and that is logged
        said = caplog.text
    except PhazeError as error:
        said = str(error)
    assert f"is {kind.what} of version {version}, this phaze reads" in said
    assert kind.remedy in said and ("use a newer phaze" in said) == (version > kind.version)
    assert str(tmp_path) in said


@pytest.mark.parametrize(
    "name", sorted(set(FORGED) - {"CHECKPOINT", "ROBUST", "TRAINING"})
)  # those are read in tests of their own
def test_this_version_is_read(name: str, readers: dict[str, Reader], tmp_path: Path) -> None:
    read = readers[name](tmp_path, KINDS[name].version)
    assert read is not None or name == "STUDY"


def test_every_file_of_a_run_states_its_version(run: Path) -> None:
    stated = {name: json.loads((run / name).read_text()) for name in ("manifest.json", "best.json")}
    stated |= {"study.yaml": yaml.safe_load((run / "study.yaml").read_text())}
    stated |= {"schedules.json.gz": json.loads(unpack(run / "schedules.json.gz"))}
    kinds = {
        "manifest.json": "MANIFEST",
        "best.json": "BEST",
        "study.yaml": "STUDY",
        "schedules.json.gz": "SCHEDULES",
    }
    assert {name: document[KEY] for name, document in stated.items()} == {
        name: KINDS[kind].version for name, kind in kinds.items()
    }


def test_a_run_from_before_there_were_versions_is_read(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "old")
    old = tmp_path / "old"
    for name in ("best.json", "study.yaml", "schedules.json.gz"):
        if name == "study.yaml":
            content = (old / name).read_text().replace(f"{KEY}: 1\n", "").encode()
        else:
            document = json.loads(
                unpack(old / name) if name.endswith(".gz") else (old / name).read_bytes()
            )
            del document[KEY]
            if document.pop(DIGEST, None):
                document = with_digest(document)
            content = json.dumps(document).encode()
            content = pack(content) if name.endswith(".gz") else content
        forged(old, name, content)
    manifest = json.loads((old / "manifest.json").read_text())
    for key in (KEY, DIGEST, "front"):
        del manifest[key]
    (old / "manifest.json").write_text(json.dumps(with_digest(manifest)))
    before, now = open_run(old), open_run(run)
    assert (
        before.result == now.result and before.settings == now.settings and not before.study_edited
    )
    assert before.manifest.front == ("throughput", "area", "energy")
    assert (
        read_plan(old / "best.json", None).settings["tp"]
        == read_plan(run / "best.json", None).settings["tp"]
    )
    assert read_points([old]).points[0].result == read_points([run]).points[0].result


def test_the_graph_of_another_version_is_an_artefact_that_is_made_again(
    readers: dict[str, Reader], tmp_path: Path
) -> None:
    with pytest.raises(ArtefactError):
        readers["GRAPH"](tmp_path, KINDS["GRAPH"].version + 1)


def test_every_kind_has_a_reader_here(readers: dict[str, Reader]) -> None:
    assert readers.keys() | ONLY_WRITTEN == KINDS.keys()
