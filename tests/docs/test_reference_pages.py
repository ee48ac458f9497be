"""The pages of docs/reference are what the code says: written again they are equal, and real files
hold what they tell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

import phaze
from Estimator.chips.axes import VARIED
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
from GraphExtractor.models.registry import listed_models
from phaze import library
from phaze.cli.arguments import mode_parsers
from phaze.cli.modes import MODES
from phaze.runs import column_meanings
from phaze.runs.design_tables import BOUGHT, TOTAL_ENERGY
from phaze.runs.plan_files import evaluate_request
from phaze.settings.config_files import defaults_of, read_config
from phaze.settings.resolve import resolve
from phaze.studies.sweep.axes import read_sweep
from phaze.studies.sweep.table import write_table
from phaze.studies.training_time.request import training_request
from phaze_common.errors import InputError
from phaze_common.files import unpack
from scripts.reference import cli_page, files_page, yaml_page
from scripts.reference.examples import EXAMPLES
from scripts.reference.models_page import HEADS, ModelFacts, facts, page_of, row
from scripts.reference.records import constants, keys_of
from scripts.reference_pages import REFERENCE, writers
from tests.phaze.studies.sweep.sweep_cases import run, small_sweep
from third_party.amped.configuration import read_configuration
from third_party.amped.lookup import shipped_tables

REPOSITORY = REFERENCE.parent.parent


def text_of(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["cli", "yaml", "files"])
def test_a_page_is_what_the_code_says(name: str) -> None:
    assert text_of(name) == writers()[name](), (
        f"write it again: .venv/bin/python scripts/reference_pages.py {name}"
    )


def sections(text: str) -> dict[str, str]:
    """Text behind every second-level heading."""
    return {part.partition("\n")[0]: part for part in text.split("\n## ")[1:]}


@pytest.mark.parametrize("mode", MODES)
def test_every_flag_of_a_mode_is_in_its_section_or_where_that_leads(mode: str) -> None:
    told = sections(text_of("cli"))
    leads = re.findall(r"as of \[(\S+)\]", told[mode])
    there = told[mode] + "".join(told[each] for each in leads)
    lacking = [
        flag for flag in mode_parsers()[mode].flags if flag != "--help" and f"`{flag}`" not in there
    ]
    assert lacking == []


def test_every_exit_status_is_told() -> None:
    told = re.findall(r"^\| (\d+) \|", text_of("cli"), re.MULTILINE)
    assert (
        [int(each) for each in told]
        == sorted(cli_page.exit_statuses().values())
        == [0, 1, 2, 3, 130, 143]
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("tokens (default 1)", ("tokens", "1")),
        ("tokens (default: all (of them)), behind", ("tokens, behind", "all (of them)")),
        ("tokens (of text)", ("tokens (of text)", "")),
    ],
)
def test_defaults_are_taken_out_of_help_texts(text: str, parts: tuple[str, str]) -> None:
    assert cli_page.default_of(text) == parts


def test_what_is_no_default_is_refused() -> None:
    with pytest.raises(ValueError, match="no end of the default"):
        cli_page.default_of("tokens (default 1")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All examples in one folder, as the page says them."""
    folder = tmp_path_factory.mktemp("examples")
    told = dict(
        re.findall(r'^```yaml title="(\S+)"\n(.*?)^```$', text_of("yaml"), re.MULTILINE | re.DOTALL)
    )
    assert told == EXAMPLES
    for name, text in told.items():
        (folder / name).write_text(text)
    return folder


READERS: dict[str, Callable[[Path], object]] = {
    "study.yaml": lambda path: resolve(read_config(path), {}),
    "sweep.yaml": lambda path: list(read_sweep(path, {}).combinations()),
    "setting.yaml": lambda path: resolve({"model": "bertbase", **defaults_of(str(path))}, {}),
    "plan.yaml": lambda path: evaluate_request(path, {}),
    "training.yaml": lambda path: training_request(path, {}),
    "space.yaml": lambda path: load_design_space(str(path)).generate(),
    "chip.yaml": lambda path: load_chip(path, load_design_space("phaze_icml24")),
    "technology.yaml": lambda path: load_technology(str(path)),
    "platform.yaml": lambda path: load_platform(
        str(path), load_technology("phaze_22nm"), load_vector_functions("phaze")
    ),
    "functions.yaml": lambda path: load_vector_functions(str(path)),
    "memory.yaml": lambda path: load_memory(str(path)),
    "prices.yaml": lambda path: load_prices(str(path)),
    "device.yaml": lambda path: load_device(str(path)),
    "software.yaml": lambda path: load_software(str(path)),
    "attention.yaml": lambda path: load_attention(str(path)),
    "contention.yaml": lambda path: load_contention(str(path)),
    "cluster.yaml": lambda path: load_cluster(str(path)),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_valid(name: str, written: Path) -> None:
    assert READERS[name](written / name)


def required(record: type[Any]) -> Iterator[str]:
    yield from (key.name for key in keys_of(record) if key.default == "required")


@pytest.mark.parametrize("kind", list(yaml_page.hardware_files()), ids=lambda kind: kind.example)
def test_nothing_can_be_left_out_of_what_is_required(
    kind: yaml_page.HardwareFile, written: Path, tmp_path: Path
) -> None:
    stated = yaml.safe_load((written / kind.example).read_text())
    for name in EXAMPLES:
        (tmp_path / name).write_text((written / name).read_text())
    for key in required(kind.record):
        (tmp_path / kind.example).write_text(
            yaml.safe_dump({name: each for name, each in stated.items() if name != key})
        )
        with pytest.raises(InputError, match=rf"{key} is missing|without 'add'"):
            READERS[kind.example](tmp_path / kind.example)


def test_a_device_of_the_examples_prices_a_plan_in_their_cluster(written: Path) -> None:
    given = {"model": "bertbase", "device": str(written / "device.yaml")}
    request = evaluate_request(None, given)
    assert request.records.cluster.name == request.records.software.name == "mine"


@pytest.mark.parametrize("kind", list(yaml_page.hardware_files()), ids=lambda kind: kind.example)
def test_every_key_of_a_hardware_file_has_a_meaning(kind: yaml_page.HardwareFile) -> None:
    rows = [
        line.split(" | ")
        for line in sections(text_of("yaml"))[kind.title].splitlines()
        if line.startswith("| `")
    ]
    assert len(rows) >= len(list(keys_of(kind.record))) and all(
        cells[-1].removesuffix("|").strip() for cells in rows
    )


FOLDERS = {
    **{
        "space.yaml": "design_spaces",
        "technology.yaml": "technologies",
        "platform.yaml": "platforms",
    },
    **{
        "functions.yaml": "vector_functions",
        "memory.yaml": "memories",
        "prices.yaml": "prices",
        "device.yaml": "devices",
    },
    **{
        "software.yaml": "software",
        "attention.yaml": "attention",
        "contention.yaml": "contention",
        "cluster.yaml": "clusters",
    },
}


@pytest.mark.parametrize(
    "kind",
    [each for each in yaml_page.hardware_files() if each.example in FOLDERS],
    ids=lambda kind: kind.example,
)
def test_every_key_of_what_ships_is_told(kind: yaml_page.HardwareFile) -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", sections(text_of("yaml"))[kind.title], re.MULTILINE))
    files = sorted((HARDWARE / FOLDERS[kind.example]).glob("*.yaml"))
    stated = {file.name: set(yaml.safe_load(file.read_text())) - told for file in files}
    assert stated and not any(stated.values()), stated


def test_the_configuration_of_amped_is_told(tmp_path: Path) -> None:
    (example,) = (REPOSITORY / "third_party" / "amped" / "examples").glob("*.json")
    configuration = read_configuration(example, shipped_tables())
    assert all(f"`{each.parameter.name}`" in text_of("yaml") for each in configuration.settings)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small sweep, of which each point is a run."""
    folder = tmp_path_factory.mktemp("swept")
    sweep = small_sweep(folder, hbm_size=[2, 16], recompute="none")
    write_table(sweep, run(sweep))
    return sweep.folder


@pytest.fixture(scope="module")
def one_run(swept: Path) -> Path:
    return next((swept / "points").glob("*/best.json")).parent


def keys_in(document: object) -> Iterator[str]:
    """Names of all keys of a document, those of mappings by name aside."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            yield from keys_in(value)
    elif isinstance(document, list):
        for each in document:
            yield from keys_in(each)


NAMED = (
    "models",
    "own_best",
    "most",
    "plans",
    "uses",
    "amounts",
    "files",
    "versions",
    "contents",
    "over_references",
    "records",
)


def without_names(document: Any) -> Any:
    """The document with mappings by name as lists of what they hold, and hardware by value left
    out."""
    if isinstance(document, list):
        return [without_names(each) for each in document]
    if not isinstance(document, dict):
        return document
    plain = {key: value for key, value in document.items() if key != "records"}
    return {
        key: without_names(
            list(value.values()) if key in NAMED and isinstance(value, dict) else value
        )
        for key, value in plain.items()
    }


@pytest.mark.parametrize("name", ["best.json", "manifest.json", "schedules.json.gz", "point.json"])
def test_every_key_that_is_written_is_told(name: str, one_run: Path) -> None:
    content = unpack(one_run / name) if name.endswith(".gz") else (one_run / name).read_bytes()
    document = json.loads(content)
    document = document["content"] if name == "point.json" else document
    told = set(re.findall(r"^\| `(\w+)` \|", text_of("files"), re.MULTILINE)) | {
        "digest",
        "schema_version",
    }
    found = set(keys_in(without_names(document)))
    assert {"schema_version"} < found and found - told == set()


def test_the_columns_of_runs_and_sweeps_are_those_that_are_told(swept: Path, one_run: Path) -> None:
    def columns(path: Path) -> set[str]:
        return set(pq.read_schema(path).names)

    whole_dies = {"peak_w", "embodied_kg", "owning_usd", TOTAL_ENERGY, *BOUGHT, *VARIED}
    designs = columns(one_run / "designs.parquet")
    assert (
        designs <= set(column_meanings.OF_DESIGNS)
        and set(column_meanings.OF_DESIGNS) - designs == whole_dies
    )
    assert columns(one_run / "plans.parquet") == set(column_meanings.OF_PLANS)
    table = columns(swept / "table.parquet")
    beside = {each for each in table if each.startswith(tuple(column_meanings.BY_PREFIX))}
    assert beside and table - beside - {"model", "hbm_size"} == set(column_meanings.OF_SWEEPS) - {
        "plans"
    }
    assert columns(swept / "timings.parquet") == set(column_meanings.OF_TIMINGS)


def test_every_file_with_a_version_is_told() -> None:
    told = sections(text_of("files"))["Versions"]
    assert all(
        f"| {each.files} | {each.version} |" in told for each in files_page.formats().values()
    )


def model_rows() -> dict[str, tuple[str, ...]]:
    """Cells of the page of models by name."""
    lines = [line for line in text_of("models").splitlines() if line.startswith("| `")]
    cells = [
        tuple(cell.strip().replace("\\|", "|") for cell in line.strip("|").split(" | "))
        for line in lines
    ]
    return {each[0].partition(",")[0].strip("`"): each for each in cells}


def test_every_listed_model_is_told_with_what_is_known_of_it() -> None:
    told = model_rows()
    assert sorted(told) == sorted(listed_models())
    traced = {"parameters", "GFLOP per sample", "GFLOP per token"}
    for name, family in listed_models().items():
        without = row(name, family, ModelFacts(0, 0))
        for head, here, there in zip(HEADS, without, told[name], strict=True):
            assert head in traced or here == there, (
                f"{name}: write it again: .venv/bin/python scripts/reference_pages.py models"
            )
        assert family.source
    assert (
        page_of(lambda name: ModelFacts(0, 0), len(told)).partition("\n## ")[0]
        == text_of("models").partition("\n## ")[0]
    )


@pytest.mark.some(3)
@pytest.mark.parametrize("model", listed_models())
def test_flops_and_parameters_are_those_of_the_traced_graph(model: str, extracted: Any) -> None:
    traced = facts(extracted(model))
    assert model_rows()[model] == row(model, listed_models()[model], traced)


def test_names_of_the_library_are_those_that_the_page_has() -> None:
    told = re.findall(r"members: \[(.*)\]", text_of("library"))[0].split(", ")
    assert sorted(told) == sorted(
        set(dir(phaze))
        & {
            name
            for name, each in vars(library).items()
            if getattr(each, "__module__", "") == library.__name__
        }
    )


def test_records_that_stand_for_a_number_are_constants() -> None:
    assert {each.__name__ for each in constants()} == {
        "Quantity",
        "UncertainQuantity",
        "CapacityTable",
    }
