"""The table of a sweep, a row per point in its order. Equal sweeps give equal bytes."""

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
    """Rows of equal keys: settings as given, then the results; None where there is none.

    The plan (``plan_*``, ``*_s`` ...) stands where the point has one model; where it has several,
    ``plans`` lists theirs as JSON.
    """
    keys = dict.fromkeys((MODELS, *sweep.swept))
    shown = [key for key in keys if key in points[0].settings]
    results = [each.point.result for each in points if each.point]
    chips = sorted({name for each in results for name in each.over_references})
    several = any(len(each.plans) > 1 for each in results)
    return [_row(each, shown, chips, several=several) for each in points]


def write_table(sweep: Sweep, points: Sequence[SweptPoint]) -> None:
    """Write ``table.parquet``, ``timings.parquet`` and, where asked, ``table.csv``.

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
    else:  # of an earlier run, which this one replaces
        (sweep.folder / TABLE_CSV).unlink(missing_ok=True)
    finished = [(each, each.point) for each in points if each.point]
    timings = {
        "point": pa.array([each.number for each, _ in finished], pa.int64()),
        "key": pa.array([each.key for each, _ in finished], pa.string()),
        "seconds": pa.array([point.seconds for _, point in finished], pa.float64()),
        "machine": pa.array([point.machine for _, point in finished], pa.string()),
    }
    write_atomically(sweep.folder / "timings.parquet", _parquet(pa.table(timings)))


def value_text(value: Any) -> str:
    """A value of a setting as text: a list with blanks between, a mapping as name=value."""
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
        **({"plans": _plans_json(result.plans if result and not plan else ())} if several else {}),
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
    own = ("_s", "_j", "_bytes", "_expert", "_utilization", "_used", "_usd")
    return name if name.endswith(own) else f"plan_{name}"


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
    if kinds == {int} and all(abs(value or 0) < 2**63 for value in values):
        return pa.array(values, pa.int64())  # others are of points that cannot be
    if kinds and kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([None if value is None else value_text(value) for value in values], pa.string())


def _result_types() -> dict[str, pa.DataType]:
    import pyarrow as pa

    texts, whole = ("status", "plans", "key", "problem"), ("point", "design_points")
    values = "objective_value", "objective_bound", "objective_value_with_room"
    own = {"optimal": pa.bool_(), **dict.fromkeys(texts, pa.string())}
    own |= dict.fromkeys(whole, pa.int64())
    own |= dict.fromkeys((*values, "hbm_gib", "memory_share"), pa.float64())
    for axis in COMPARED:
        kind = axis.field.item
        own[f"plan_{axis.key}"] = getattr(pa, _PLAN_TYPES.get(kind.__name__, "string"))()
    columns = {field.name: field for field in fields(Accelerator)}
    of_plans = {field.name: field for field in fields(PlanRow)}
    columns |= {_column(name): of_plans[name] for name in _plan_columns()}
    for name, field in columns.items():
        own[name] = getattr(pa, _PLAN_TYPES[str(field.type).removesuffix(" | None")])()
    return own


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()
