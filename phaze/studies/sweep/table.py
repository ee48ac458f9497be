"""The table of a sweep, a row per point in the order of the sweep. Equal sweeps give equal bytes,
however they were run."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from Estimator.chips.accelerator import Accelerator
from Estimator.plans.axes import COMPARED
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.results import Breakdown
from phaze.settings.config_files import MODELS
from phaze.studies.sweep.axes import Sweep
from phaze.studies.sweep.results import PlanRow
from phaze.studies.sweep.run import SweptPoint
from phaze_common.files import write_atomically
from phaze_common.records import to_json
from phaze_common.run_files import TABLE, TABLE_CSV
from phaze_common.units import GIB

if TYPE_CHECKING:
    import pyarrow as pa

_PLAN_TYPES = {"int": "int64", "float": "float64", "str": "string", "bool": "bool_"}


def sweep_rows(sweep: Sweep, points: Sequence[SweptPoint]) -> list[dict[str, Any]]:
    """Rows of equal keys: settings as asked, then what came out; None where there is nothing to
    say.

    The plan (``plan_*``, ``*_s`` ...) stands where the point has one model; where it has several,
    ``plans`` lists theirs as JSON.
    """
    shown = [key for key in (MODELS, *sweep.swept) if key in points[0].settings]
    shown = list(dict.fromkeys(shown))
    chips = sorted(
        {name for each in points if each.point for name in each.point.result.over_references}
    )
    several = any(each.point and len(each.point.result.plans) > 1 for each in points)
    return [_row(each, shown, chips, several=several) for each in points]


def write_table(sweep: Sweep, points: Sequence[SweptPoint]) -> None:
    """Write ``table.parquet`` (and ``table.csv`` if asked) and ``timings.parquet`` into the sweep's
    folder.

    Raises:
        PhazeError: the disk is full or the folder is not writable.
    """
    import pyarrow as pa
    from pyarrow import csv

    table = _arrow(sweep_rows(sweep, points))
    write_atomically(sweep.folder / TABLE, _parquet(table))
    if sweep.csv:
        buffer = io.BytesIO()
        csv.write_csv(table, buffer)
        write_atomically(sweep.folder / TABLE_CSV, buffer.getvalue())
    else:
        (sweep.folder / TABLE_CSV).unlink(
            missing_ok=True
        )  # of an earlier run, which this one replaces
    finished = [each for each in points if each.point]
    timings = {
        "point": pa.array([each.number for each in finished], pa.int64()),
        "key": pa.array([each.key for each in finished], pa.string()),
        "seconds": pa.array([each.point.seconds for each in finished if each.point], pa.float64()),
        "machine": pa.array([each.point.machine for each in finished if each.point], pa.string()),
    }
    write_atomically(sweep.folder / "timings.parquet", _parquet(pa.table(timings)))


def value_text(value: Any) -> str:
    """A value of a setting as text: parts of a list with blanks between, a mapping as
    name=value."""
    if value is None:
        return "default"
    if isinstance(value, Mapping):
        return " ".join(f"{name}={weight}" for name, weight in value.items())
    if isinstance(value, list | tuple):
        return " ".join(value_text(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _row(
    each: SweptPoint, shown: Sequence[str], chips: Sequence[str], *, several: bool
) -> dict[str, Any]:
    result = each.point.result if each.point else None
    plan = result.plans[0] if result and len(result.plans) == 1 else None
    chip = result.accelerator if result else None
    return {
        "point": each.number,
        **{key: each.settings[key] for key in shown},
        "status": each.status,
        "optimal": result.optimal if result else None,
        "objective_value": result.value if result else None,
        "objective_bound": result.bound if result else None,
        **{field.name: getattr(chip, field.name, None) for field in fields(Accelerator)},
        "hbm_gib": result.hbm_bytes / GIB if result and result.hbm_bytes else None,
        "memory_share": result.memory_share if result else None,
        "objective_value_with_room": result.value_with_room if result else None,
        **{f"plan_{each.key}": each.of(plan) if plan else None for each in COMPARED},
        **{_column(name): getattr(plan, name, None) for name in _plan_columns()},
        **{f"part_{name}": getattr(plan.breakdown_s, name) if plan else None for name in _parts()},
        **(
            {"plans": _plans_json(result.plans) if result and not plan else None} if several else {}
        ),
        **{f"over_{name}": result.over_references.get(name) if result else None for name in chips},
        "design_points": result.design_points if result else None,
        "key": each.key or None,
        "problem": (result.reason if result else each.problem) or None,
    }


def _plan_columns() -> list[str]:
    """What the table says of a plan besides its axes and the parts of its iteration."""
    others = {each.name for each in fields(UniformPlan)} | {"model", "breakdown_s"}
    return [each.name for each in fields(PlanRow) if each.name not in others]


def _column(name: str) -> str:
    """Name of a plan's value in the table, where settings have names alike."""
    return (
        name
        if name.endswith(("_s", "_j", "_bytes", "_expert", "_utilization", "_used", "_usd"))
        else f"plan_{name}"
    )


def _plans_json(plans: Sequence[PlanRow]) -> str | None:
    return to_json(tuple(plans)).decode() if plans else None


def _parts() -> list[str]:
    """Parts of an iteration, in the order in which its breakdown names them."""
    return [field.name for field in fields(Breakdown)]


def _arrow(rows: Sequence[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    types = _result_types()
    columns = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if name in types:
            columns[name] = pa.array(values, types[name])
        elif name.startswith(("part_", "over_")):
            columns[name] = pa.array(values, pa.float64())
        else:
            columns[name] = _setting_column(values)
    return pa.table(columns)


def _setting_column(values: Sequence[Any]) -> pa.Array:
    """Numbers where all values are numbers, else texts; null: the default."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds == {int} and all(
        value is None or abs(value) < 2**63 for value in values
    ):  # others are of points that cannot be
        return pa.array(values, pa.int64())
    if kinds and kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([None if value is None else value_text(value) for value in values], pa.string())


def _result_types() -> dict[str, pa.DataType]:
    import pyarrow as pa

    own = {
        "point": pa.int64(),
        "status": pa.string(),
        "optimal": pa.bool_(),
        "objective_value": pa.float64(),
        "objective_bound": pa.float64(),
        "hbm_gib": pa.float64(),
        "memory_share": pa.float64(),
        "objective_value_with_room": pa.float64(),
        "plans": pa.string(),
        "design_points": pa.int64(),
        "key": pa.string(),
        "problem": pa.string(),
    }
    for axis in COMPARED:
        kind = axis.field.item
        own[f"plan_{axis.key}"] = getattr(pa, _PLAN_TYPES.get(kind.__name__, "string"))()
    for record, names in (
        (Accelerator, [field.name for field in fields(Accelerator)]),
        (PlanRow, _plan_columns()),
    ):
        kinds = {field.name: str(field.type).removesuffix(" | None") for field in fields(record)}
        own |= {
            (_column(name) if record is PlanRow else name): getattr(pa, _PLAN_TYPES[kinds[name]])()
            for name in names
        }
    return own


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()
