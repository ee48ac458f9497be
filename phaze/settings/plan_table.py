"""Columns of a table of plans, read as the command line reads the settings of those names: whole
columns at once."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.axes import OF_FRAMEWORK, OF_PLANS, PLAN_AXES
from phaze.settings.request import request_fields, settings_for
from phaze_common.choices import LayoutName
from phaze_common.echo import as_given, clipped
from phaze_common.errors import InputError
from phaze_common.setting_fields import Mode, SettingField
from phaze_common.setting_values import Kind, Setting, read_value

if TYPE_CHECKING:
    import pandas as pd

# axes that decide layers' costs, and those of which many plans have values at once
SHAPE_COLUMNS = tuple(
    each.key for each in PLAN_AXES if each.decides_layer_costs and each.field.holds_many
)
PLAN_COLUMNS = ("global_batch_size", *(each.key for each in OF_PLANS))
COLUMNS = (*SHAPE_COLUMNS, *PLAN_COLUMNS)
GIVE = "give a DataFrame, or a mapping of lists of one length"


def plan_table(plans: pd.DataFrame | Mapping[str, Any]) -> pd.DataFrame:
    """``plans`` with every cell as a plan has it, in the type of its setting.

    Raises:
        InputError: it is no table of plans, or a cell is not what its setting takes; names its row.
    """
    import pandas as pd

    if not isinstance(plans, pd.DataFrame | Mapping):
        raise InputError(f"plans are no table but {as_given(plans)}; {GIVE}")
    try:
        table = pd.DataFrame(plans)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"plans are no table ({clipped(str(error))}); {GIVE}") from error
    for name in table.columns:
        if name not in COLUMNS:
            raise InputError(f"plans have no {name!r:.100}; their columns are {', '.join(COLUMNS)}")
    if not table.columns.is_unique:
        twice = table.columns[table.columns.duplicated()][0]
        raise InputError(f"plans have the column {twice!r} twice; give it once")
    fields = {field.key: field for field in request_fields()}
    settings = {setting.key: setting for setting in settings_for(Mode.EVALUATE).settings}
    return pd.DataFrame(
        {name: _column(table[name], fields[name], settings[name]) for name in table.columns},
        index=pd.RangeIndex(len(table)),
    )


def _column(column: pd.Series[Any], field: SettingField, setting: Setting) -> NDArray[Any]:
    cells = column.to_numpy()
    if setting.kind is Kind.INTEGER and cells.dtype.kind in "iuf":
        # not of NaN
        possible = (cells >= setting.least) & (cells <= setting.most) & (cells == np.floor(cells))
        for row in np.flatnonzero(~possible)[:1].tolist():
            _cell(cells[row].item(), row, field, setting)  # which refuses it
        return cells.astype(np.int64)
    if setting.kind is Kind.SWITCH and cells.dtype.kind == "b":
        return cells
    return _distinct(cells, field, setting)


def _distinct(cells: NDArray[Any], field: SettingField, setting: Setting) -> NDArray[Any]:
    """The cells as they are read, each distinct one once."""
    known, found = dict[tuple[type[Any], object], Any](), np.empty(len(cells), dtype=object)
    for row, cell in enumerate(cells.tolist()):
        try:
            key = (type(cell), cell)
            if key not in known:
                known[key] = _cell(cell, row, field, setting)
        except TypeError as error:  # a list, which cannot be looked up
            raise _refused(cell, row, field) from error
        found[row] = known[key]
    return found.astype(np.int64) if setting.kind is Kind.INTEGER else found


def _cell(cell: object, row: int, field: SettingField, setting: Setting) -> Any:
    """A cell in the type of its field."""
    where, cell = f"plan {row}", cell.item() if isinstance(cell, np.generic) else cell
    if _is_missing(cell):
        if setting.key in OF_FRAMEWORK:
            return None
        raise InputError(f"{where}: {setting.key} is missing; give it for every plan, or for none")
    if (
        isinstance(cell, int | float)
        and not isinstance(cell, bool)
        and setting.kind is Kind.INTEGER
    ):
        # pandas makes floats of numbers beside a missing one
        if cell == cell and abs(cell) < 2**63 and cell == int(cell):
            cell = int(cell)
            if cell < setting.least == 1:
                raise InputError(f"{where}: {setting.key} is {cell}; it must be at least 1")
    elif field.other is not None and isinstance(cell, field.other):
        return cell
    elif not isinstance(cell, str | bool | int | float):
        raise _refused(cell, row, field)
    value = read_value(setting, str(cell) if isinstance(cell, StrEnum) else cell, where)
    return value.axes if isinstance(value, LayoutName) else value


def _refused(cell: object, row: int, field: SettingField) -> InputError:
    return InputError(
        f"plan {row}: {field.key} is a {type(cell).__name__}; give one value for each plan"
    )


def _is_missing(cell: object) -> bool:
    import pandas as pd

    return (
        cell is None
        or cell is pd.NA
        or cell is pd.NaT
        or (isinstance(cell, float) and cell != cell)
    )
