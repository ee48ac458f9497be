"""Constants of a device fitted to tables of measured operators.

Every launch kind of a table (matrix products, each vector function) has the time that a kernel
costs beyond its work (``alone``) and the least that a measurement shows (``floor``). Functions have
the part of the bandwidth they reach; products their efficiency, the steps of k that a tile's start
and end cost, and, many at once, the part of the bandwidth they reach. What a table does not
determine stays as the device had it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from Estimator.devices.calibration_aceso import read_aceso_operators
from Estimator.devices.calibration_fit import fit, unknowns
from Estimator.devices.calibration_tables import (
    MeasuredOperator,
    OperatorTable,
    read_operator_table,
)
from Estimator.devices.device import Calibration, Device, Evidence, FormatProducts, Libraries
from Estimator.devices.files import load_software
from Estimator.devices.gemm import fill_factor
from Estimator.devices.isolated import isolated_s
from Estimator.devices.recipes import unit_of
from phaze_common.errors import InputError


@dataclass(frozen=True)
class Residual:
    """A measurement and what the fitted device says."""

    measured: MeasuredOperator
    predicted_s: float

    @property
    def error(self) -> float:
        """Part of the measured time by which the prediction is too long."""
        return self.predicted_s / self.measured.seconds - 1


@dataclass(frozen=True)
class OperatorFit:
    """A fitted device, with the errors of the fit in ``device.calibration`` and row by row."""

    device: Device
    residuals: tuple[Residual, ...]


def read_measurements(path: Path) -> OperatorTable:
    """Read a table of operators: a CSV file, or a folder of Aceso's operators.

    Raises:
        InputError: it cannot be read as such; names file and line.
    """
    return read_aceso_operators(path) if path.is_dir() else read_operator_table(path)


def calibrate(device: Device, tables: Sequence[OperatorTable]) -> OperatorFit:
    """Fit ``device`` to the tables. Functions go first: products take the memory's part of their
    time from them.

    The matrix libraries that were measured are those of the device's own framework from then on.

    A function that ``device.memory.functions`` lists has its own efficiency, all others share
    ``device.memory.efficiency``; so do the operands of products unless the device has a
    ``matrix.operand_bandwidth``.

    Raises:
        InputError: no tables, or a number format that the device does not compute in.
    """
    if not tables:
        raise InputError("there is no table to calibrate with; give at least one")
    measured = [row for table in tables for row in table.rows]
    owners = {row.operator: _owner(row, device) for row in measured}
    for owner in sorted({owner for owner in owners.values() if owner is not None}):
        device = _fitted(
            device, owner, [row for row in measured if owners[row.operator] == owner], tables
        )
    products = [row for row in measured if row.operator.products]
    if products:
        formats, own = {row.operator.number_format for row in products}, device.matrix.products
        device = _with_measured_libraries(device, formats)
        shared = [row for row in products if row.operator.number_format not in own]
        if shared:
            device = _fitted(device, "", shared, tables)
        for name in sorted(formats & own.keys()):
            rows = [row for row in products if row.operator.number_format == name]
            device = _with_products(device, name, _fitted(device, "", rows, tables))
    residuals = tuple(Residual(row, isolated_s(row.operator, device)) for row in measured)
    fitted = replace(device, evidence=Evidence.MEASURED, calibration=_calibration(device, tables))
    return OperatorFit(fitted, residuals)


def _with_measured_libraries(device: Device, formats: Collection[str]) -> Device:
    """The device whose own framework runs the matrix libraries that were measured.

    What its ``libraries`` say of the year of that framework was relative to constants that the
    measurement replaces; it would slow the measured formats down once more in every price. Formats
    that were not measured keep their proportion to those that were. Earlier years stay. What was
    measured before of the same formats gives way to what is fitted now.
    """
    others = {
        name: each for name, each in device.matrix.products.items() if unit_of(name) not in formats
    }
    device = replace(device, matrix=replace(device.matrix, products=others))
    year, libraries = load_software(device.software).year, list[Libraries]()
    for each in device.matrix.libraries:
        own = [share.value for name, share in each.products.items() if name in formats]
        if year > each.until or not own:
            libraries.append(each)
            continue
        products = {
            name: replace(share, value=round(min(share.value / max(own), 1.0), 4))
            for name, share in each.products.items()
            if name not in formats
        }
        if products:
            libraries.append(replace(each, products=products))
    return replace(device, matrix=replace(device.matrix, libraries=tuple(libraries)))


def _with_products(device: Device, name: str, alone: Device) -> Device:
    """The device with what products of one format reach as ``alone``, which is fitted to these."""
    engine, fill = alone.matrix, alone.matrix.fill
    steps = replace(fill, value=round(fill.value * fill_factor(alone, name), 4))
    reached = replace(engine.efficiency, value=round(engine.reached(name, sustained=False), 6))
    products = {**device.matrix.products, name: FormatProducts(reached, steps)}
    return replace(device, matrix=replace(device.matrix, products=products), launch=alone.launch)


def _owner(row: MeasuredOperator, device: Device) -> str | None:
    """Name under which the efficiency of a row's function is kept, empty for the shared one; None
    for products."""
    if row.operator.products:
        return None
    function = row.operator.streams[0].function
    return function if function in device.memory.functions else ""


def _fitted(
    device: Device, owner: str, rows: Sequence[MeasuredOperator], tables: Sequence[OperatorTable]
) -> Device:
    """The device with the constants of ``rows`` fitted to them."""
    found = fit(unknowns(rows, owner, device), rows, device)
    trial = device
    for each in found:
        trial = each.constant.put(trial, each.value, "")
    error = float(
        np.mean([abs(Residual(row, isolated_s(row.operator, trial)).error) for row in rows])
    )
    names = ", ".join(table.name for table in tables if set(table.rows) & set(rows))
    source = f"fitted to {names}, {len(rows)} rows, MAPE {100 * error:.1f} %"
    for each in found:
        if each.determined:
            device = each.constant.put(device, each.value, source)
        elif each.constant.part == "launch":  # what the device had was of another measurement
            device = each.constant.put(device, None, "")
    return device


def _calibration(device: Device, tables: Sequence[OperatorTable]) -> tuple[Calibration, ...]:
    """What the device already says of other tables, then the errors on these, by launch kind."""
    fresh = []
    for table in tables:
        for launch in sorted({row.operator.launch for row in table.rows}):
            rows = [row for row in table.rows if row.operator.launch == launch]
            errors = [Residual(row, isolated_s(row.operator, device)).error for row in rows]
            mape = round(float(np.mean(np.abs(errors))), 4)
            bias = round(float(np.mean(errors)), 4) + 0.0
            fresh.append(Calibration(f"{table.name}: {launch}", len(rows), mape, bias))
    renewed = {each.table for each in fresh}
    return (*(each for each in device.calibration if each.table not in renewed), *fresh)
