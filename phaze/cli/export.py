"""``phaze export``: the plan of a run written out for the program that launches it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from GraphExtractor.permission import files_to_run
from phaze.cli import mode
from phaze.cli.exit_status import DONE
from phaze.exports.registry import HOMES, exporter
from phaze_common.errors import InputError
from phaze_common.files import user_path
from phaze_common.numbers import percent
from phaze_common.written_files import write_outputs

if TYPE_CHECKING:
    from phaze.exports.launch import ExportedFile

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Export(mode.Command):
    """Write the plan of a run or a file out for the program that launches it, such as Megatron-LM
    or torchtitan."""

    settings: Mapping[str, object] = mode.setting_flags(mode.plan_settings, without="output")
    output: str | None = mode.flag(None, "folder of the files (default: NAME_export)", "FOLDER")
    source: str = mode.word(
        mode.REQUIRED, "folder of a run, its best.json, or a YAML file of a plan", "RUN|PLAN"
    )
    to: str = mode.flag(mode.REQUIRED, f"program to launch with: {', '.join(HOMES)}", "NAME")
    job: str | None = mode.flag(
        None, "also write a job file that starts it on every node", "slurm|kubernetes"
    )
    nearest: bool = mode.flag(
        False,
        "export the nearest plan that the program can be told where it cannot be told this one, "
        "and say what that costs",
    )
    force: bool = mode.force_flag()
    run_code: tuple[str, ...] = mode.run_code_flag()


def run(command: Export) -> int:
    """Write the files that launch the plan of a run, or refuse what the program cannot be told."""
    from phaze.exports.jobs import check_job, job_file
    from phaze.studies.exported_plan import launch_of, nearest

    program = exporter(command.to)
    if command.job is not None:
        check_job(command.job, program.name)
    path = user_path(command.source)
    if not path.exists():
        raise InputError(
            f"there is no {path}; give the folder of a run, its best.json, or a plan file"
        )
    folder = user_path(command.output or f"{program.name}_export")
    code = files_to_run(command.run_code)
    if command.nearest:
        found = nearest(program, path, command.settings, code)
        for reason in found.reasons:
            logger.info("%s cannot be told the plan: %s", program.title, reason)
        if found.changes:
            changes = ", ".join(f"{key} {value}" for key, value in found.changes)
            how = "longer" if found.slower >= 0.0 else "less"
            logger.info(
                "changed to %s: an iteration takes %s %s", changes, percent(abs(found.slower)), how
            )
        launch = found.launch
    else:
        launch = launch_of(path, command.settings, code)
        refused = program.unsupported(launch)
        if refused is not None:
            near = ", ".join(f"{key} {value}" for key, value in refused.nearest)
            if near:
                hint = f"the nearest plan that it can has {near}: --nearest exports that"
            else:
                hint = "no plan near it can be told"
            raise InputError(f"{program.title} cannot be told this plan: {refused.what}; {hint}")
    job = () if command.job is None else (job_file(command.job, program.name, launch),)
    _write(folder, (*program.files(launch), *job), force=command.force)
    logger.info("files for %s: %s", program.title, folder)
    return DONE


def _write(folder: Path, files: Sequence[ExportedFile], *, force: bool) -> None:
    contents = {
        file.path: file.content.encode() if isinstance(file.content, str) else file.content
        for file in files
    }
    write_outputs(folder, contents, force=force)
    for file in files:
        if file.executable:
            (folder / file.path).chmod(0o755)


MODE = mode.Mode(
    "export",
    mode.RUN_FOR_REAL,
    Export,
    run,
    ("RUN|PLAN --to NAME [--output FOLDER] [FLAG ...]",),
    tables=False,
)
