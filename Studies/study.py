"""A study: everything the user asked for, resolved and checked.

Precedence, weakest first: defaults, the ``--config`` file, the command line (flags and ``--set`` alike, the later one wins).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from Common.errors import InputError
from Common.files import beside, content_key, named_file, user_path
from Common.units import GIB
from GraphExtractor.graph import Attention, GraphKey, Recompute
from GraphExtractor.names import is_path, label
from Solver.results import Objective
from Studies.settings import HOUSEKEEPING, MODEL, STUDY

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_WEIGHT = re.compile(r"(?P<name>[^=:]+|[^:]+:.*)(=(?P<weight>[^:]*))?", re.DOTALL)


class Optimizer(StrEnum):
    """Optimizers whose bytes per parameter are known (``Solver/policies.yaml``)."""

    ADAM = "adam"
    SGD = "sgd"
    SGD_MOMENTUM = "sgd_momentum"


class SolverName(StrEnum):
    """Who schedules operators during the search; optima are confirmed by an ILP solver in any case."""

    NATIVE = "native"
    GUROBI = "gurobi"
    HIGHS = "highs"


@dataclass(frozen=True)
class WeightedModel:
    """A model, as ``canonical_name`` has it, and its weight in the mean of several."""

    name: str
    weight: float = 1.0


@dataclass(frozen=True)
class Folders:
    """Where artefacts go: graphs per family, estimates per model, the generated design space, and this study's run."""

    graphs: Path
    estimates: Path
    arch_configs: Path
    run: Path


@dataclass(frozen=True)
class Study:
    """What is asked. HBM sizes are GiB per device; ``sequence_length`` None means each model's own; tp widths as searched.

    ``cluster``, ``design_space`` and ``technology`` are names of files under ``Estimator/hardware`` or absolute paths of YAML
    files; ``technology`` None is that of the design space.
    ``output`` None puts artefacts where the original puts them, under the repository; ``run_folder`` is where the run itself
    goes, if not there or in ``output``.
    """

    models: tuple[WeightedModel, ...]
    micro_batch_sizes: tuple[int, ...] = (1,)
    tp_widths: tuple[int, ...] = (1,)
    sequence_length: int | None = None
    hbm_sizes_gb: tuple[float, ...] = (32.0,)
    recompute: tuple[Recompute, ...] = tuple(Recompute)
    attention: Attention = Attention.FLASH
    sequence_parallel: bool = False
    global_batch_size: int = 4096
    optimizer: Optimizer = Optimizer.ADAM
    zero_stage: int = 0
    cluster: str = "phaze_icml24"
    design_space: str = "phaze_icml24"
    technology: str | None = None
    objective: Objective = Objective.THROUGHPUT
    solver: SolverName = SolverName.NATIVE
    name: str = ""  # resolved by ``study_from``: never empty there
    output: Path | None = None
    csv: bool = False
    strict: bool = False
    force_reextract: bool = False
    run_folder: Path | None = None

    @property
    def hbm_sizes_bytes(self) -> tuple[int, ...]:
        """HBM per device in bytes."""
        return tuple(round(size * GIB) for size in self.hbm_sizes_gb)

    def graph_key(self, model: str, micro_batch_size: int, tp: int) -> GraphKey:
        """What the graph of ``model`` for one micro-batch size and tensor parallel width is made for."""
        from GraphExtractor.models.registry import find_model

        length = self.sequence_length or find_model(model).sequence_length
        return GraphKey(model, micro_batch_size, length, tp, self.attention, self.sequence_parallel and tp > 1)

    @property
    def folders(self) -> Folders:
        """Where this study's artefacts go; with ``output`` the run itself is in that folder and the rest below it."""
        root = self.output or (REPOSITORY if (REPOSITORY / "pyproject.toml").exists() else Path.cwd())
        run = self.run_folder or self.output or root / "Solver" / "output" / self.name
        return Folders(
            root / "GraphExtractor" / "out", root / "Estimator" / "estimates", root / "Estimator" / "arch_configs", run
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about how the request is understood."""
        return tuple(
            f"global batch size {self.global_batch_size} is not a multiple of micro-batch size {size}: "
            f"the last micro-batch is counted as a whole one"
            for size in self.micro_batch_sizes
            if self.global_batch_size % size
        )

    def as_mapping(self) -> dict[str, Any]:
        """Every setting under its key, as plain values; ``study_from`` of it gives the same study."""
        return {
            "model": [f"{model.name}={model.weight:g}" if model.weight != 1 else model.name for model in self.models],
            "micro_batch_size": list(self.micro_batch_sizes),
            "tp": list(self.tp_widths),
            "sequence_length": self.sequence_length,
            "hbm_size": [int(size) if size == int(size) else size for size in self.hbm_sizes_gb],
            "recompute": [mode.value for mode in self.recompute],
            "attention": self.attention.value,
            "sequence_parallel": self.sequence_parallel,
            "global_batch_size": self.global_batch_size,
            "optimizer": self.optimizer.value,
            "zero_stage": self.zero_stage,
            "cluster": self.cluster,
            "design_space": self.design_space,
            "technology": self.technology,
            "objective": self.objective.value,
            "solver": self.solver.value,
            "name": self.name,
            "output": None if self.output is None else str(self.output),
            "csv": self.csv,
            "strict": self.strict,
            "force_reextract_model": self.force_reextract,
        }

    def to_yaml(self) -> str:
        """The resolved study as a file that ``--config`` reads back.

        A name made from the inputs stays open: with another input it is another study, which must not overwrite this one.
        """
        import yaml

        own_name = None if self.name == _default_name(self) else self.name
        return yaml.safe_dump(self.as_mapping() | {"name": own_name}, sort_keys=False)


def study_from(config: Mapping[str, object], given: Mapping[str, object], config_source: str = "the configuration") -> Study:
    """Resolve a study from the ``--config`` mapping and what the command line says, both under any names of the settings.

    Relative paths in ``config`` must already be resolved against its folder (see ``read_config``).

    Raises:
        InputError: unknown keys or models, values that are not allowed or contradict each other.
    """
    below = STUDY.read(config, config_source)
    above = STUDY.read(given, "command line")
    values = {key: value for key, value in STUDY.override(below, above).items() if value is not None}
    if "model" not in values:
        raise InputError("no model was given; name one or more with --model, for instance --model bertlarge")
    study = Study(
        models=_models(values.pop("model")),
        tp_widths=tp_widths_of(values.pop("tp", None), values.pop("max_tp", 1)),
        **_fields(values),
    )
    _check(study)
    return replace(study, name=study.name or _default_name(study))


def design_space_from(given: Mapping[str, object]) -> str:
    """The design space among ``given`` settings, as ``Study.design_space`` states it.

    Raises:
        InputError: a path that is no file.
    """
    values = _fields(STUDY.read(given, "command line"))
    return str(values.get("design_space", Study.design_space))


def read_config(path: Path) -> dict[str, object]:
    """Mapping in a YAML file of settings, with relative paths to other YAML files made absolute against its folder.

    Raises:
        InputError: the file is not readable, not YAML, or not a mapping.
    """
    from Common.records import read_yaml

    content = read_yaml(path)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InputError(
            f"{path} holds a {type(content).__name__}, but a study is a mapping of settings such as 'model: bertlarge'"
        )
    return {key: _beside(path.parent, str(key).replace("-", "_"), value) for key, value in content.items()}


def _beside(folder: Path, key: str, value: object) -> object:
    if key in {MODEL.key, *MODEL.aliases}:
        return model_beside(folder, value)
    return beside(folder, value) if key in {"cluster", "design_space", "technology"} else value


def model_beside(folder: Path, value: object) -> object:
    """Models of a file in ``folder``, with paths made absolute against it."""
    if isinstance(value, Mapping):
        return {model_beside(folder, name): weight for name, weight in value.items()}
    if isinstance(value, list):
        return [model_beside(folder, item) for item in value]
    if not isinstance(value, str) or not is_path(split_weight(value)[0]) or value.startswith("~"):
        return value
    return str(folder / value)


def _fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Read settings as the remaining fields of ``Study``."""
    converters: dict[str, tuple[str, Any]] = {
        "micro_batch_size": ("micro_batch_sizes", tuple),
        "hbm_size": ("hbm_sizes_gb", tuple),
        "recompute": ("recompute", lambda modes: tuple(Recompute(mode) for mode in modes)),
        "attention": ("attention", Attention),
        "optimizer": ("optimizer", Optimizer),
        "objective": ("objective", Objective),
        "solver": ("solver", SolverName),
        "force_reextract_model": ("force_reextract", bool),
        "cluster": ("cluster", lambda text: named_file("cluster", text)),
        "design_space": ("design_space", lambda text: named_file("design_space", text)),
        "technology": ("technology", lambda text: named_file("technology", text)),
        "output": ("output", user_path),
    }
    unchanged = {key: (key, lambda value: value) for key in values}
    return {field: convert(values[key]) for key, (field, convert) in (unchanged | converters).items() if key in values}


def _models(texts: tuple[str, ...]) -> tuple[WeightedModel, ...]:
    from GraphExtractor.models.registry import canonical_name

    models = []
    for text in texts:
        name, weight_text = split_weight(text)
        try:
            weight = 1.0 if weight_text is None else float(weight_text)
        except ValueError:
            weight = 0.0
        if not 0 < weight < 1e12:
            raise InputError(f"the weight in {text!r} must be a positive number, as in bertlarge=2")
        models.append(WeightedModel(canonical_name(name), weight))
    names = [model.name for model in models]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"model {twice!r} is given twice; list every model once, with a weight if it counts more: {twice}=2")
    return tuple(models)


def split_weight(text: str) -> tuple[str, str | None]:
    """Name and weight in the text of a model; a path keeps an equals sign of its own where there is such a file."""
    head, equals, weight = text.rpartition("=")
    if is_path(text) or (equals and is_path(head)):
        whole = not equals or not is_path(head) or Path(text).expanduser().exists()
        return (text, None) if whole else (head, weight)
    parts = _WEIGHT.fullmatch(text)
    return (parts["name"], parts["weight"]) if parts else (text, None)


def tp_widths_of(listed: tuple[int, ...] | None, largest: int) -> tuple[int, ...]:
    """Widths as listed, else ``largest`` and the powers of two dividing it: whatever allows ``largest`` allows them all."""
    if listed is not None:
        return tuple(sorted(listed))
    powers = [2**exponent for exponent in range(largest.bit_length()) if largest % 2**exponent == 0]
    return tuple(sorted({*powers, largest}))


def _check(study: Study) -> None:
    """Refuse what does not fit together or does not exist, before anything long is started."""
    if study.name and not FOLDER_NAME.fullmatch(study.name):
        raise InputError(
            f"name {study.name!r} cannot name a folder; use letters, digits, '.', '_' and '-', at most 100, no leading '.'"
        )
    too_large = [size for size in study.micro_batch_sizes if size > study.global_batch_size]
    if too_large:
        raise InputError(
            f"micro-batch size {too_large[0]} exceeds the global batch size {study.global_batch_size}; "
            f"make the micro-batch smaller or raise --global-batch-size"
        )
    if study.output is not None:
        _check_output(study.output)
    from Estimator.chips.design_space import load_design_space
    from Estimator.hardware_files import load_cluster
    from GraphExtractor.models.registry import find_model
    from GraphExtractor.widths import check_key

    load_design_space(study.design_space, study.technology)
    cluster = load_cluster(study.cluster)
    for width in study.tp_widths:
        if width > cluster.num_devices:
            raise InputError(
                f"tensor parallel width {width} exceeds the {cluster.num_devices} devices of cluster {cluster.name}; "
                f"make it smaller or give a larger --cluster"
            )
        for model in study.models:
            check_key(study.graph_key(model.name, 1, width), find_model(model.name))


def _check_output(folder: Path) -> None:
    try:
        str(folder).encode()
        taken = folder.exists() and not folder.is_dir()
    except (UnicodeEncodeError, OSError) as error:  # bytes that are no text, or a name the file system cannot hold
        raise InputError(f"output {str(folder)!r:.120} cannot name a folder; give another") from error
    if taken:
        raise InputError(f"output {folder} is a file; give a folder")


def _default_name(study: Study) -> str:
    """Models and a hash of everything that can change the answer, so that different studies have different folders."""
    inputs = {key: value for key, value in study.as_mapping().items() if key not in HOUSEKEEPING}
    return "-".join(label(model.name) for model in study.models)[:60] + "-" + content_key(inputs)[:8]
