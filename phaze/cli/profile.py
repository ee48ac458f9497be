"""``phaze profile``: measures the operators of a model, and exchanges between processes, on this
machine."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from phaze.cli import mode
from phaze.cli.exit_status import DONE
from phaze.cli.printing import print_answer
from phaze_common.errors import InputError
from phaze_common.files import user_path
from phaze_common.settings import COMMAND_LINE

if TYPE_CHECKING:
    from phaze.report.table import Table
    from phaze.runtime.profiling.run import ProfileRequest, ProfileSummary

logger = logging.getLogger(__name__)

SHOWN = 8  # rows named that are noise
MOST_PROCESSES = 64
LONGEST_CAP_S = 600.0


_SETTINGS = {
    "model": "model whose operators are measured, as for run_solver",
    "sequence_length": "tokens per sample (default: the model's own)",
    "tp": "tensor parallel widths (default 1)",
    "micro_batch_size": "samples per micro-batch (default 1)",
    "sequence_parallel": "whether what tensor parallelism leaves whole is split along the "
    "sequence (default false)",
    "attention": "fused and tiled, or separate products (default flash)",
    "devices": "devices of a cluster of this machine (default: its GPUs, or 8 processes)",
}


@dataclass(frozen=True, kw_only=True)
class Profile(mode.Command):
    """Measure the operators of a model and exchanges between processes on this machine, as a device
    to search on."""

    settings: Mapping[str, object] = mode.setting_flags(mode.search_settings, only=_SETTINGS)
    output: str | None = mode.flag(None, "database to write, or to go on with", "DIR")
    dtype: Literal["float32", "bfloat16", "float16"] | None = mode.flag(
        None, "number format (default float32 on CPUs, bfloat16 on GPUs)"
    )
    device_kind: Literal["cpu", "cuda"] = mode.flag("cpu", "what runs the operators (default cpu)")
    threads: int = mode.flag(1, "threads of an operator on CPUs (default 1)")
    processes: tuple[int, ...] = mode.flag(
        (2, 4), "group sizes of exchanges (default 2 4; none: no)", listed=True
    )
    no_passes: bool = mode.flag(False, "measure no whole passes beside the operators")
    noise: float = mode.flag(0.2, "spread that is said to be noise (default 0.2)")
    cap: float = mode.flag(1.0, "seconds to repeat one operator at most (default 1)", "S")


def run(command: Profile) -> int:
    """Measure what the database does not hold yet, and print what it holds."""
    request = _request(command)
    from phaze.runtime.profiling.run import profile as measure

    summary = measure(request, command.progress)
    _warn(summary, request.noise)
    report = _report(summary)
    print_answer(json.dumps(report, indent=2), lambda: [_table(report)], command)
    logger.info("the profile is in %s", summary.database.folder)
    return DONE


def _request(command: Profile) -> ProfileRequest:
    if command.output is None:
        raise InputError(
            "no database to write was given; name its folder with --output, for instance --output "
            "my_machine"
        )
    specified: dict[str, Any] = mode.search_settings().read(command.settings, COMMAND_LINE)
    models = specified.get("model", ())
    if len(models) != 1:
        raise InputError(
            f"a profile measures one model at a time, given {', '.join(models) or 'none'}; name "
            "one with --model"
        )
    lengths = specified.get("sequence_length")
    if isinstance(lengths, tuple) and len(lengths) != 1:
        raise InputError(
            "sequence_length lists several lengths; a profile measures one at a time, further "
            "ones in further runs"
        )
    _check_numbers(command)
    from Estimator.profiled.machine import DeviceKind
    from phaze.runtime.profiling.run import ProfileRequest
    from phaze.runtime.profiling.timing import Repeats

    kind = DeviceKind(command.device_kind)
    return ProfileRequest(
        model=models[0],
        folder=user_path(command.output),
        tp=tuple(sorted({*_values(specified.get("tp", (1,)), "tp")})),
        micro_batch_sizes=tuple(
            sorted({*_values(specified.get("micro_batch_size", (1,)), "micro_batch_size")})
        ),
        sequence_length=lengths[0] if isinstance(lengths, tuple) else lengths,
        **{key: specified[key] for key in ("attention",) if key in specified},
        sequence_parallel=_values(
            specified.get("sequence_parallel", (False,)), "sequence_parallel"
        ),
        dtype=command.dtype or ("float32" if kind is DeviceKind.CPU else "bfloat16"),
        device_kind=kind,
        threads=command.threads,
        devices=specified.get("devices"),
        group_sizes=command.processes,
        passes=not command.no_passes,
        noise=command.noise,
        repeats=Repeats(cap_s=command.cap),
    )


def _values(specified: Any, key: str) -> tuple[Any, ...]:
    if isinstance(specified, str):
        raise InputError(
            f"{key} is {specified!r}, but a profile measures what is listed; list the values"
        )
    return tuple(specified) if isinstance(specified, tuple | list) else (specified,)


def _check_numbers(command: Profile) -> None:
    if command.threads < 1:
        raise InputError(f"threads is {command.threads}; it must be at least 1")
    if any(not 1 <= each <= MOST_PROCESSES for each in command.processes):
        raise InputError(
            f"processes lists {', '.join(map(str, command.processes))}; each must be 1 to "
            f"{MOST_PROCESSES}"
        )
    if not 0 < command.noise < float("inf"):
        raise InputError(
            f"noise is {command.noise}; it must be a positive part of the median, such as 0.2"
        )
    if not 0 < command.cap <= LONGEST_CAP_S:
        raise InputError(
            f"cap is {command.cap}; it must be positive and at most {LONGEST_CAP_S:.0f} seconds"
        )


def _warn(summary: ProfileSummary, noise: float) -> None:
    if summary.noisy:
        worst = sorted(summary.noisy, key=lambda row: -row.spread)[:SHOWN]
        words = "; ".join(f"{row.what} ({row.spread:.0%} of {row.seconds:.2e} s)" for row in worst)
        if len(summary.noisy) > len(worst):
            more = f" and {len(summary.noisy) - len(worst)} more"
        else:
            more = ""
        logger.warning(
            "the spread is more than %s of the median for: %s%s", f"{noise:.0%}", words, more
        )
    if summary.not_run:
        logger.warning(
            "not measured, and priced from the others: %s", ", ".join(summary.not_run[:SHOWN])
        )


def _report(summary: ProfileSummary) -> dict[str, object]:
    database = summary.database
    return {
        "database": str(database.folder),
        "machine": database.machine.description,
        "operators": len(database.operators),
        "collectives": len(database.collectives),
        "passes": len(database.passes),
        "measured_now": summary.measured,
        "kept_from_before": summary.kept,
        "not_run": list(summary.not_run),
        "noisy": len(summary.noisy),
        "held_out_error": summary.held_out_error,
    }


def _table(report: dict[str, object]) -> Table:
    from phaze.report.table import plain_table

    error = report["held_out_error"]
    shown = {**report, "not_run": len(list(report["not_run"] or ()))}  # type: ignore[call-overload]
    shown["held_out_error"] = f"{error:.1%}" if isinstance(error, float) else None
    return plain_table("profile", [{"what": key, "value": value} for key, value in shown.items()])


MODE = mode.Mode("profile", mode.CHECK_AND_FIT, Profile, run)
