"""``phaze calibrate``: fits a device, a cluster or a framework to measurements and writes its
YAML."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.cli import mode
from phaze.cli.exit_status import DONE
from phaze.cli.printing import print_answer
from phaze.settings.folders import cached_folders
from phaze_common.errors import InputError
from phaze_common.file_formats import CLUSTER, DEVICE, KEY, SOFTWARE
from phaze_common.files import check_ending, user_path, write_atomically
from phaze_common.settings import COMMAND_LINE

if TYPE_CHECKING:
    from Estimator.devices.device import Calibration
    from phaze.report.table import Table
    from phaze.validation.fitted_runs import RunFit
    from phaze.validation.own_plan_runs import PricedFile
    from phaze.validation.records import ValidationReport

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Calibrated:
    """A fitted device, cluster or framework as the text of its file, and how good the fit is."""

    text: str
    errors: tuple[Calibration, ...]


_START = "to start from, by name or YAML file; fits tables of"
_SETTINGS = {
    "device": f"device {_START} operators",
    "cluster": f"cluster {_START} collectives",
    "software": f"framework {_START} what runs at once",
}


@dataclass(frozen=True, kw_only=True)
class Calibrate(mode.Command):
    """Fit a device, a cluster or a framework to measured operators, collectives or both at once and
    write its YAML."""

    settings: Mapping[str, object] = mode.setting_flags(mode.plan_settings, only=_SETTINGS)
    tables: tuple[str, ...] = mode.flag(
        (), "CSV of measurements; may be repeated", "FILE", ("--table",)
    )
    runs_file: str | None = mode.flag(
        None,
        "CSV of training runs, as of validate, to fit a device or a cluster to",
        "FILE",
        ("--runs",),
    )
    output: str | None = mode.flag(None, "YAML file to write", "FILE")
    force: bool = mode.force_flag()


def run(command: Calibrate) -> int:
    """Fit what was named to the tables, write it and print the errors of the fit."""
    from phaze.settings.hardware import HardwareFiles
    from phaze_common.sealed import text_with_digest

    named = mode.plan_settings().read(command.settings, COMMAND_LINE)
    if len(named) != 1:
        flags = " and ".join(f"--{key}" for key in named)
        what = f"{flags} were given" if named else f"none of --{', --'.join(_SETTINGS)} was given"
        raise InputError(f"{what}; name what is to be fitted with one of them")
    if command.runs_file is not None:
        return _to_runs(command, *next(iter(named.items())))
    if not command.tables:
        raise InputError(
            "no table was given; name the measurements with --table, for instance --table "
            "gemm.csv, or runs with --runs runs.csv"
        )
    tables = [user_path(table) for table in command.tables]
    output = _output(command)
    (key, text) = next(iter(named.items()))
    fit = {"device": _device, "cluster": _cluster, "software": _software}
    fitted = fit[key](HardwareFiles().named(key, text), tables, output.stem)
    write_atomically(output, text_with_digest(_versioned(key, fitted.text)).encode())
    report = {"file": str(output), "tables": [asdict(error) for error in fitted.errors]}
    print_answer(json.dumps(report, indent=2), lambda: [_error_table(fitted.errors)], command)
    logger.info("the fit is in %s", output)
    return DONE


def _to_runs(command: Calibrate, key: str, name: object) -> int:
    from phaze.settings.hardware import HardwareFiles
    from phaze.validation.fitted_runs import cluster_text, device_text, fit_runs
    from phaze.validation.run import validate
    from phaze_common.sealed import text_with_digest

    assert command.runs_file is not None
    if command.tables:
        raise InputError("--runs and --table are given; fit to one kind of measurements at a time")
    if key == "software":
        raise InputError(
            "--runs fits a device or a cluster, no software; give --device or --cluster"
        )
    output = _output(command)
    runs = user_path(command.runs_file)
    start = HardwareFiles().named(key, str(name))
    graphs = cached_folders().graphs

    def compared(hardware: str) -> ValidationReport:
        device, cluster = (hardware if key == each else None for each in ("device", "cluster"))
        return validate(runs, device, cluster, None, graphs, command.progress, _no_plans)

    fit = fit_runs(compared(start).runs)
    written = device_text if key == "device" else cluster_text
    text = _versioned(key, written(start, fit, output.stem, runs.name))
    write_atomically(output, text_with_digest(text).encode())
    fitted = compared(str(output))
    again = fitted.overall.time_mape
    answer = {"file": str(output), **asdict(fit), "priced_again": again}
    print_answer(json.dumps(answer, indent=2), lambda: [_fit_table(fit, key, again)], command)
    logger.info("the fit is in %s", output)
    return DONE


def _versioned(key: str, text: str) -> str:
    """The file of a device, a cluster or a framework, with its version first."""
    kind = {"device": DEVICE, "cluster": CLUSTER, "software": SOFTWARE}[key]
    return f"{KEY}: {kind.version}\n{text}"


def _no_plans(plan: Path, database: Path) -> PricedFile:
    raise InputError(
        f"{plan} is the file of a plan; fits are to runs whose plans stand in the table"
    )


def _fit_table(fit: RunFit, key: str, again: float | None) -> Table:
    from phaze.report.table import plain_table

    moved = {"products": "device", "memory": "device", "communication": "cluster"}
    rows: list[dict[str, object]] = [
        {
            "what": f"time of {name}",
            "value": f"{factor:.3f}x"
            + ("" if moved[name] == key else f" (not written: --{moved[name]})"),
        }
        for name, factor in fit.factors.items()
    ]
    rows += [
        {"what": f"mean error of {fit.rows} runs before", "value": f"{fit.before:.1%}"},
        {"what": "after", "value": f"{fit.after:.1%}"},
        {"what": "priced again with the file", "value": "-" if again is None else f"{again:.1%}"},
        {"what": "of each run by a fit to the others", "value": f"{fit.left_out:.1%}"},
    ]
    return plain_table("the fit", rows)


def _output(command: Calibrate) -> Path:

    if command.output is None:
        raise InputError(
            "no file to write was given; name it with --output, for instance --output "
            "my_device.yaml"
        )
    path = user_path(command.output)
    check_ending(path, {".yaml", ".yml"}, "read as YAML", ".yaml")
    try:
        exists, is_file = path.exists(), path.is_file()
    except OSError as error:  # a name the file system cannot hold
        raise InputError(
            f"--output {command.output!r:.120} cannot name a file: {error.strerror}; give another"
        ) from error
    if exists and not (command.force and is_file):
        remedy = "give another, or --force to replace it" if is_file else "give the name of a file"
        raise InputError(f"--output {path} exists; {remedy}")
    return path


def _device(start: str, tables: Sequence[Path], name: str) -> Calibrated:
    from Estimator.devices.calibration import calibrate as fit
    from Estimator.devices.calibration import read_measurements
    from Estimator.devices.files import load_device
    from Estimator.devices.written_yaml import written_yaml
    from Estimator.profiled.database import read_database
    from Estimator.profiled.machine import profile_folder
    from Estimator.profiled.tables import operator_table

    measured = [
        read_measurements(table)
        if profile_folder(table) is None
        else operator_table(read_database(table))
        for table in tables
    ]
    fitted = replace(fit(load_device(start), measured).device, name=name, profile=None)
    own = {table.name for table in measured}
    return Calibrated(
        written_yaml(fitted),
        tuple(each for each in fitted.calibration if each.table.partition(": ")[0] in own),
    )


def _cluster(start: str, tables: Sequence[Path], name: str) -> Calibrated:
    from Estimator.devices.device import Calibration
    from Estimator.hardware_files import load_cluster
    from Estimator.network.calibration import cluster_yaml, fit_collectives
    from Estimator.network.calibration_errors import LARGE_BYTES, network_errors
    from Estimator.network.calibration_tables import read_collectives
    from Estimator.profiled.database import read_database
    from Estimator.profiled.machine import profile_folder
    from Estimator.profiled.tables import collective_samples

    measured = [
        (
            table.name,
            read_collectives(table)
            if profile_folder(table) is None
            else collective_samples(read_database(table)),
        )
        for table in tables
    ]
    cluster = load_cluster(start)
    fit = fit_collectives([sample for _, samples in measured for sample in samples], cluster)
    fit = replace(fit, cluster=replace(fit.cluster, name=name))
    errors = []
    for table, samples in measured:
        found = network_errors(samples, fit.cluster)
        errors.append(Calibration(table, found.all.rows, found.all.mape, found.all.bias))
        if found.large is not None:
            large = f"{table}: above {LARGE_BYTES / 1e6:.0f} MB"
            errors.append(Calibration(large, found.large.rows, found.large.mape, found.large.bias))
    return Calibrated(
        cluster_yaml(fit, ", ".join(table for table, _ in measured), cluster.name), tuple(errors)
    )


def _software(start: str, tables: Sequence[Path], name: str) -> Calibrated:
    """What a framework's overlap costs on the device that the tables name."""
    from Estimator.chips.technology import Quantity
    from Estimator.devices.device import Calibration
    from Estimator.devices.files import device_of_run, load_software
    from Estimator.devices.operator_cost import DeviceModel
    from Estimator.devices.written_yaml import written_yaml
    from Estimator.hardware_files import load_cluster
    from Estimator.network.contention import Contention
    from Estimator.network.contention_fit import fit_contention, of_one_device, read_joint_rows

    software = load_software(start)
    rows = of_one_device([read_joint_rows(table) for table in tables])
    device = device_of_run(rows.device)
    links = load_cluster(device.cluster).tiers[0].bandwidth_bytes_per_s
    memory = DeviceModel(device, software, next(iter(device.matrix.peak))).stream_bytes_per_s
    fit, table = fit_contention(rows), ", ".join(table.name for table in tables)
    share = Quantity(
        links / memory,
        "fraction",
        f"links within a node of {device.cluster} over the memory of {device.name}",
    )
    fitted = replace(
        software, name=name, contention=Contention(name, share, fit.by_name(), f"fitted to {table}")
    )
    held_out = Calibration(
        f"{table}: held out", fit.held_out_rows, fit.held_out_mape, fit.held_out_bias
    )
    return Calibrated(
        written_yaml(fitted), (Calibration(table, fit.rows, fit.mape, fit.bias), held_out)
    )


def _error_table(errors: Sequence[Calibration]) -> Table:
    from phaze.report.table import plain_table

    rows: list[dict[str, object]] = [
        {
            "table": each.table,
            "rows": each.rows,
            "MAPE": f"{each.mape:.1%}",
            "bias": f"{each.bias:+.1%}",
        }
        for each in errors
    ]
    return plain_table("errors of the fit", rows)


MODE = mode.Mode("calibrate", mode.CHECK_AND_FIT, Calibrate, run)
