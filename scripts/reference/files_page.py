"""docs/reference/files.md: what runs, sweeps, trainings and profiles leave, key by key and column
by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from Estimator.plans.degrees import UniformPlan
from phaze_common import file_formats
from phaze_common.file_formats import FileFormat
from phaze_common.quantities import unit_of_key
from scripts.reference.markdown import plain, table
from scripts.reference.records import doc_of, keys_of, meaning_of, owner_of

HEAD = """# Files that phaze writes

`scripts/reference_pages.py files` writes this page from the records that write and read the files. What a number counts
ends its name: `_s` seconds, `_bytes` bytes, `_bytes_per_s` bytes per second, `_mm2` square millimetres, `_j` joules, `_w`
watts, `_usd` US dollars, `_kg` kilograms; shares, utilisations and gains are fractions. JSON files hold `null` where
something is not known or does not apply.

Runs go to `Solver/output/NAME` below the repository where they are started in it, else below the current folder;
`--output` says otherwise. Every file appears whole or not at all. `digest` is a hash of the content, by which edits and
damage are noticed.

## Folders

{folders}
## Versions

A file states its version under `{key}`; without it is version 1. A file of a newer version is refused in one sentence, an
older one is made into today's where that is known, and otherwise refused in a sentence that says what to do. Caches
(graphs, estimates, finished points of a search) are made again by other code whatever their version.

{versions}"""


@dataclass(frozen=True)
class LeftFile:
    """A file: who leaves it, where, and what it is."""

    folder: str
    name: str
    what: str


HEADS = ("key", "holds", "unit", "meaning")
FILES = (
    LeftFile(
        "a run (`run_solver`)", "`study.yaml`", "every setting, resolved; [keys](yaml.md#study)"
    ),
    LeftFile("", "`manifest.json`", "what the answer rests on; [keys](#manifestjson)"),
    LeftFile("", "`best.json`", "the answer, with plan and hardware by value; [keys](#bestjson)"),
    LeftFile(
        "",
        "`designs.parquet`",
        "a row per design point; [columns](#designsparquet); `designs.csv` with `--csv`",
    ),
    LeftFile(
        "",
        "`plans.parquet`",
        "a row per plan of the best hardware; [columns](#plansparquet); `plans.csv` with `--csv`",
    ),
    LeftFile(
        "", "`schedules.json.gz`", "which operator runs where and when; [keys](#schedulesjsongz)"
    ),
    LeftFile(
        "",
        "`report.html`, `trace.json`",
        "of `report` and `trace`: a page, and a timeline in the form of Chrome's traces",
    ),
    LeftFile("", "`robust.json`", "of `robust`; [keys](#robustjson)"),
    LeftFile("a sweep", "`sweep.yaml`", "what was asked; [keys](yaml.md#sweep)"),
    LeftFile(
        "",
        "`table.parquet`, `timings.parquet`",
        "a row per point; [columns](#tableparquet); `table.csv` with `--csv`",
    ),
    LeftFile(
        "",
        "`points/KEY/`",
        "a run for each point, with `point.json` that says it is whole; [keys](#pointjson)",
    ),
    LeftFile(
        "`training-time --output`",
        "`training_time.json`",
        "the answer, beside `study.yaml` and `manifest.json`; [keys](#training_timejson)",
    ),
    LeftFile(
        "`train`", "`train.json`", "what was measured beside what was predicted; [keys](#trainjson)"
    ),
    LeftFile("", "`measured.json`", "what each process measured; [keys](#measuredjson)"),
    LeftFile("", "`trace.json`, `report.html`", "the timeline and the page of the training"),
    LeftFile(
        "",
        "`checkpoints/step-N/`",
        "`checkpoint.json` ([keys](#checkpointjson)), weights and optimizer state as safetensors",
    ),
    LeftFile("`profile`", "`machine.yaml`", "the machine; [keys](#machineyaml)"),
    LeftFile("", "`*.parquet`, `*.csv`", "measured operators, exchanges and passes"),
    LeftFile(
        "`calibrate`", "a YAML file", "a device, a cluster or a framework; [keys](yaml.md#device)"
    ),
    LeftFile(
        "`export`, `report`, `trace`, `train`, `calibrate`",
        "`.phaze-written`",
        "digests of what was written there: a file that is not as phaze left it is not replaced "
        "without `--force`",
    ),
    LeftFile(
        "caches", "`GraphExtractor/out/FAMILY/*_graph.json.gz`", "training graphs; [keys](#graphs)"
    ),
    LeftFile(
        "",
        "`Estimator/estimates/MODEL/`",
        "prices of operators, layer times and bounds of shapes, as arrays",
    ),
    LeftFile(
        "",
        "`Estimator/arch_configs/cores.json`",
        "of `accelerators`: the design space in the original's form",
    ),
)


def page() -> str:
    """The page."""
    folders = table(
        ("left by", "file", "what"), ((each.folder, each.name, each.what) for each in FILES)
    )
    head = (
        HEAD.replace("{key}", file_formats.KEY)
        .replace("{folders}", folders)
        .replace("{versions}", _versions())
    )
    return "".join([head, *_documents(), *_tables(), _graphs()])


def formats() -> Mapping[str, FileFormat]:
    """Every kind of file with versions, by its name in the code."""
    return {name: each for name, each in vars(file_formats).items() if isinstance(each, FileFormat)}


def _versions() -> str:
    rows = [
        (
            each.files,
            f"{each.version}",
            f"{each.oldest} to {each.version}" if each.migrations else f"{each.version}",
        )
        for each in formats().values()
    ]
    without = (
        "\nTables have no version of their own: those of a run and of a profile go by its "
        "`manifest.json` or `machine.yaml`.\n"
    )
    return table(("file", "version", "read"), rows) + without


@dataclass(frozen=True)
class Document:
    """A JSON or YAML file, and the records that make it: at its top level, all of them."""

    name: str
    about: str
    records: tuple[type[Any], ...]
    left_out: frozenset[str] = frozenset()


def _documents() -> Iterator[str]:
    described: dict[type[Any], str] = {}
    for document in documents():
        yield f"\n## {document.name}\n\n{document.about}\n"
        waiting = [*document.records]
        every = {
            row[0]: row
            for record in document.records
            for row in _rows(record, described, waiting, document.left_out)
        }
        rows = list(every.values())
        yield f"\n{table(HEADS, rows)}"
        described |= dict.fromkeys(document.records, document.name)
        for record in waiting[len(document.records) :]:
            yield _section(record, described)


def documents() -> Iterator[Document]:
    """Every file of which the code knows the keys."""
    from Estimator.profiled.machine import MachineRecord
    from phaze.runs.robustness import Robustness
    from phaze.runs.run_directory import Manifest
    from phaze.runtime.training.checkpoints import Checkpoint
    from phaze.runtime.training.records import JobRecord, TrainRecord
    from phaze.studies.sweep.store import FinishedPoint
    from phaze.studies.training_time.records import TrainingTime
    from Solver.designs.schedule_records import KeptSchedules
    from Solver.results import DesignPoint, SearchResult

    best = (
        "The fields of the best design at the top level, then all else that was found; "
        "`digest` guards both."
    )
    yield Document("best.json", best, (DesignPoint, SearchResult), frozenset({"best"}))
    yield Document(
        "manifest.json", "`digest` guards it, `files` has those of the other files.", (Manifest,)
    )
    yield Document("schedules.json.gz", "JSON, compressed.", (KeptSchedules,))
    yield Document("robust.json", "", (Robustness,))
    yield Document("point.json", "`content` of a document with its `digest`:", (FinishedPoint,))
    about = (
        "The answer, with `model`, `device`, `accelerator`, `cluster`, `software`, `plan` by the "
        "keys of its settings, `settings` as asked, and `digest`."
    )
    yield Document("training_time.json", about, (TrainingTime,), frozenset({"plan"}))
    yield Document("train.json", "", (TrainRecord,))
    yield Document("measured.json", "", (JobRecord,))
    yield Document("checkpoint.json", "", (Checkpoint,))
    yield Document(
        "machine.yaml",
        "Written by `phaze profile`, into the folder that `--device` and `--cluster` take.",
        (MachineRecord,),
    )


def _section(record: type[Any], described: dict[type[Any], str]) -> str:
    if record in described:
        return ""
    described[record] = record.__name__
    waiting: list[type[Any]] = []
    more = ""
    if _is_more_than_a_plan(record):
        more = f" It has all keys of a plan ({_link(UniformPlan)}), and these:"
        waiting.append(UniformPlan)
    rows = list(_rows(record, described, waiting))
    own = f"\n### {_title(record)}\n\n{doc_of(record)}{more}\n\n{table(HEADS, rows)}"
    return own + "".join(_section(each, described) for each in waiting)


def _rows(
    record: type[Any],
    described: dict[type[Any], str],
    waiting: list[type[Any]],
    left_out: frozenset[str] = frozenset(),
) -> Iterator[tuple[str, ...]]:
    for key in keys_of(record):
        of_plans = _is_more_than_a_plan(record) and issubclass(
            UniformPlan, owner_of(record, key.name)
        )
        if key.name in left_out or of_plans:
            continue
        links = [_link(inner) for _, inner in key.records]
        waiting += [
            inner
            for _, inner in key.records
            if inner not in waiting and inner not in described and inner not in _elsewhere()
        ]
        takes = f"{key.takes} ({', '.join(links)})" if links else key.takes
        yield f"`{key.name}`", takes, _unit(key.name), _meaning(record, key.name)


def _is_more_than_a_plan(record: type[Any]) -> bool:
    """Whether it has all keys of a plan, which are told once."""
    return issubclass(record, UniformPlan) and record is not UniformPlan


def _meaning(record: type[Any], name: str) -> str:
    """What a key means: by its record, else by the columns of the same name.

    Raises:
        KeyError: nothing says it; a comment behind the field is the place.
    """
    from phaze.runs.column_meanings import OF_DESIGNS, OF_PLANS

    return meaning_of(record, name) or plain({**OF_PLANS, **OF_DESIGNS}[name])


@cache
def _elsewhere() -> Mapping[type[Any], str]:
    """Records that have their place in another page or section."""
    from Estimator.chips.design_space import DesignSpace
    from Estimator.devices.device import Device
    from Estimator.devices.software import Software
    from Estimator.network.cluster import Cluster
    from Estimator.quantity import Quantity, UncertainQuantity

    pages = {
        DesignSpace: "design-space",
        Device: "device",
        Software: "software",
        Cluster: "cluster",
    }
    described = {record: f"yaml.md#{anchor}" for record, anchor in pages.items()} | dict.fromkeys(
        (Quantity, UncertainQuantity), "yaml.md"
    )
    return described | {
        record: f"#{document.name.replace('.', '')}"
        for document in documents()
        for record in document.records
    }


def _link(record: type[Any]) -> str:
    place = _elsewhere().get(record, f"#{_title(record).lower()}")
    return f"[{_title(record)}]({place})"


def _title(record: type[Any]) -> str:
    return record.__name__.removeprefix("_")


def _tables() -> Iterator[str]:
    from phaze.runs import column_meanings

    yield _columns("designs.parquet", "A row per design point.", column_meanings.OF_DESIGNS)
    yield _columns(
        "plans.parquet", "A row per plan of the best hardware.", column_meanings.OF_PLANS
    )
    prefixes = {f"{prefix}...": meaning for prefix, meaning in column_meanings.BY_PREFIX.items()}
    about = "A row per point of a sweep: the swept settings by their keys, then"
    yield _columns("table.parquet", about, {**column_meanings.OF_SWEEPS, **prefixes})
    yield _columns(
        "timings.parquet", "A row per finished point of a sweep.", column_meanings.OF_TIMINGS
    )


def _columns(name: str, about: str, meanings: Mapping[str, str]) -> str:
    rows = ((f"`{column}`", _unit(column), plain(meaning)) for column, meaning in meanings.items())
    return f"\n## {name}\n\n{about}\n\n{table(('column', 'unit', 'meaning'), rows)}"


_UNITS = {  # by the end of a name, where files that people write have none of the kind
    "_samples_per_s": "samples/s",
    "tokens_per_s": "tokens/s",
    "model_flops": "FLOP",
    "hardware_flops": "FLOP",
    "_tflops_per_device": "TFLOP/s",
    "_pflops_of_cluster": "PFLOP/s",
    "_g_per_kwh": "g/kWh",
    "_kwh": "kWh",
    "_ns": "ns",
    "_v": "V",
    "share_of_seconds": "",
    "seconds": "s",
    "part_...": "s",
    "_per_million_tokens": "",
}


def _unit(name: str) -> str:
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), unit_of_key(name))


def _graphs() -> str:
    from GraphExtractor.graph import GraphKey, LayerGraph, ModelGraph
    from GraphExtractor.operator_records import Operator

    parts = [
        "\n## Graphs\n\nCompressed JSON: `content` of a document with its `digest`, `made_from` "
        "(a hash) and `graph`.\n"
    ]
    for record in (ModelGraph, GraphKey, LayerGraph, Operator):
        rows = [
            (f"`{key.name}`", key.takes, _unit(key.name), _meaning(record, key.name))
            for key in keys_of(record)
        ]
        parts.append(f"\n### {record.__name__}\n\n{doc_of(record)}\n\n{table(HEADS, rows)}")
    return "".join(parts)
