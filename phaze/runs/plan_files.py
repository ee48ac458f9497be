"""What ``evaluate`` is asked, from a file (a plan in YAML, or the best.json of a search) and the
command line.

Precedence, weakest first: defaults, the file, the command line. The best.json of a search holds its
plans and its hardware by value: no other file is read, except that of a model of one's own.
"""

import logging
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.plan import Plan, plan_mapping
from phaze.runs.found_plans import found_plan
from phaze.settings.config_files import setting_beside
from phaze.settings.hardware import HardwareFiles
from phaze.settings.request import Request, StatedChunks, StatedStages, settings_for
from phaze.settings.resolve import resolve
from phaze_common.echo import kind_of
from phaze_common.errors import InputError
from phaze_common.file_formats import BEST, STUDY
from phaze_common.records import to_record
from phaze_common.run_files import plan_document
from phaze_common.sealed import KEY, is_as_written
from phaze_common.setting_fields import Mode
from phaze_common.units import GIB
from Solver.results import HardwareReport

logger = logging.getLogger(__name__)

# what a file says about the second no longer holds where the command line changes the first
OUTDATES = {
    "device": ("cluster", "software", "chip", "design_space", "hbm_size", "solver"),
    "chip": ("device",),
    "devices": ("dp",),
    "dp": ("devices",),
    "pp": ("stage_layers",),
    "interleave": ("stage_layers", "schedule"),
    "schedule": ("interleave",),
    "stage_cuts": ("stage_layers",),
}
# what goes with the device of a file where a chip is given instead
OF_DEVICES = ("cluster", "software")


@dataclass(frozen=True)
class PlanFile:
    """Settings in a plan file; where a search wrote it, names of the layers of every chunk, and
    hardware by setting and name.

    Of a plan whose ``stages`` differ, the settings are those of the first.
    """

    settings: Mapping[str, Any]
    chunk_layers: StatedChunks | None = None
    stages: StatedStages | None = None
    hardware: Mapping[tuple[str, ...], object] = field(default_factory=dict)


def evaluate_request(
    path: Path | None, given: Mapping[str, object], run_code: frozenset[str] | None = frozenset()
) -> Request:
    """The request for one plan, of a file and of what the command line says under any names of the
    settings.

    A model file (Python) that the file names is run only where it is among ``run_code`` (None: any
    is).

    Raises: InputError: unknown keys, models or hardware, values that are not allowed or contradict
        each other.
    """
    if path is None:
        return resolve({}, given, Mode.EVALUATE)
    above = settings_for(Mode.EVALUATE).read(given, "command line")
    return plan_request(read_plan(path, above.get("model")), path, given, run_code)


def plan_request(
    file: PlanFile,
    path: Path,
    given: Mapping[str, object],
    run_code: frozenset[str] | None = frozenset(),
) -> Request:
    """As ``evaluate_request``, of a ``file`` that was read from ``path``."""
    table = settings_for(Mode.EVALUATE)
    above, below = table.read(given, "command line"), table.read(file.settings, str(path))
    lacking = [
        key
        for key, others in (("model", ()), ("device", ("chip",)))
        if not {key, *others} & {*above, *below}
    ]
    if lacking:
        raise InputError(
            f"{path} names no {' and no '.join(lacking)}; add what is lacking, or give "
            f"--{' and --'.join(lacking)}"
        )
    changed = {key for key in above if above[key] != below.get(key)}
    outdated = {old for new in changed & OUTDATES.keys() for old in OUTDATES[new]}
    if file.stages is not None:
        _check_unchanged(changed, path)
    if "chip" in changed and "device" in below:
        outdated |= {*OF_DEVICES}
    return resolve(
        {key: below[key] for key in below if key not in outdated},
        above,
        Mode.EVALUATE,
        source=str(path),
        run_code=run_code,
        files=HardwareFiles(
            {key: record for key, record in file.hardware.items() if key[0] not in above}
        ),
        chunk_layers=None if {"stage_layers"} & (outdated | changed) else file.chunk_layers,
        stages=file.stages,
    )


def _check_unchanged(changed: Set[str], path: Path) -> None:
    """Refuse what would change a plan whose stages differ, of which one value cannot stand for
    all."""
    of_hardware = {
        "device",
        "cluster",
        "software",
        "fast_domain",
        "memory_size",
        "memory_bandwidth",
        "peak_flops",
    }
    refused = sorted(changed - of_hardware - {"output", "strict"})
    if refused:
        raise InputError(
            f"the stages of the plan in {path} differ, and {refused[0]} would change them; leave "
            f"--{refused[0].replace('_', '-')} out, or change the file (hardware may be given: "
            f"{', '.join(sorted(of_hardware))})"
        )


def read_plan(path: Path, model: str | None) -> PlanFile:
    """What a plan file says, or of ``model``'s plan (None: the first model's) the best.json of a
    search.

    Raises:
        InputError: the file is not readable, not a mapping, or has no plan of the model.
    """
    content = plan_document(path)
    if content is None:
        raise InputError(
            f"{path} is empty; give a plan, a mapping of settings such as 'tp: 8', or leave "
            "--plan out"
        )
    if not isinstance(content, dict):
        raise InputError(
            f"{path} holds {kind_of(content)}, but a plan is a mapping of settings such as 'tp: "
            "8', or a best.json"
        )
    if "optimal" in content:
        current = BEST.current(content, str(path))
        if KEY in content and not is_as_written(content):
            logger.warning(
                "%s was edited since the search wrote it; its plan is priced as it is now", path
            )
        return _of_search(current, path, model)
    stated = STUDY.current(content, str(path))
    return PlanFile(
        {key: setting_beside(path.parent, str(key), value) for key, value in stated.items()}
    )


def _of_search(content: Mapping[str, Any], path: Path, model: str | None) -> PlanFile:
    """The plan that a search chose for one of its models, and the hardware it chose it for."""
    report = found_plan(content, path, model)
    try:
        hardware = to_record(HardwareReport, content.get("hardware"), "hardware")
    except InputError as error:
        raise InputError(
            f"{path} is not one that this version of phaze wrote ({error}); give the best.json of "
            "a run, or run its study again"
        ) from error
    plan = report.plan
    names, kept = _hardware(hardware, path)
    if plan.stages_differ:
        settings = _settings(plan, plan.of_first_stage)
        return PlanFile(settings | names, None, StatedStages(plan, str(path)), kept)
    chunks = StatedChunks(tuple(stage.layers for stage in plan.stages), str(path))
    try:
        uniform = plan.as_uniform(tuple(layer for chunk in chunks.layers for layer in chunk))
    except InputError as error:
        raise InputError(f"the plan of {plan.model} in {path}: {error}") from error
    return PlanFile(_settings(plan, uniform) | names, chunks, None, kept)


def _settings(plan: Plan, degrees: UniformPlan) -> dict[str, object]:
    return {"model": plan.model, "sequence_length": plan.sequence_length} | plan_mapping(degrees)


def _hardware(
    hardware: HardwareReport, path: Path
) -> tuple[dict[str, object], dict[tuple[str, ...], object]]:
    """Settings that name the hardware, and what these names stood for; an accelerator is called by
    its file."""
    records = hardware.records
    if (records.space if hardware.device is None else records.device) is None:
        raise InputError(
            f"{path} names hardware without its record; give the best.json of a run as it was "
            "written"
        )
    kept: dict[tuple[str, ...], object] = {("cluster", hardware.cluster): records.cluster}
    kept["software", hardware.software] = records.software
    names: dict[str, object] = {"cluster": hardware.cluster}
    if hardware.device is not None:
        kept["device", hardware.device] = records.device
        return names | {"device": hardware.device, "software": hardware.software}, kept
    kept["design_space", str(hardware.design_space)] = records.space
    kept["chip", str(path)] = hardware.accelerator
    chip = hardware.accelerator
    memory: dict[str, object] = {"solver": records.solver}
    if chip is None or chip.memory_system is None:
        memory |= {"hbm_size": hardware.memory_bytes / GIB}
    return names | memory | {"design_space": str(hardware.design_space), "chip": str(path)}, kept
