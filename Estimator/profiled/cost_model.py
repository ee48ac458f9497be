"""Operators priced from what was measured: at their own seconds where they were, else from what is
fitted to others'."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from Estimator.devices.device import Device
from Estimator.devices.operator_cost import DeviceModel, InPieces, KernelTime, PassStarts
from Estimator.devices.software import Software
from Estimator.profiled.database import ProfileDatabase, read_database
from Estimator.profiled.device import rates_of
from Estimator.profiled.fits import KindFits
from Estimator.profiled.overhead import Overhead, overhead_of, pass_starts_of, run_again_s_of
from Estimator.profiled.rows import PROBE, OperatorRow, anonymous, gradient_bytes
from Estimator.profiled.sources import PriceSource, SourceCounts
from GraphExtractor.graph import Operator, OperatorKind
from phaze_common.errors import InputError
from phaze_common.files import content_key


@dataclass(frozen=True)
class SourcedTime:
    """Seconds of an operator and where they are from."""

    time: KernelTime
    source: PriceSource


class ProfiledModel(DeviceModel):
    """Prices operators on a machine that was profiled, one after another. Knows no energy.

    Seconds that were measured are split into those that its products take at the best measured rate
    and the rest. What a framework adds to an operator beside others
    (``Estimator.profiled.overhead``) counts as its launch.
    """

    def __init__(
        self, device: Device, software: Software, number_format: str, database: ProfileDatabase
    ) -> None:
        super().__init__(device, software, number_format)
        self.database = database
        self._rows: dict[Operator, OperatorRow] = {row.operator: row for row in database.operators}
        self._rates = rates_of(database, number_format)
        self._fits = KindFits(database.operators, self._rates)
        self._overhead: Overhead = overhead_of(database.passes)
        self._pass_starts = pass_starts_of(database.passes)
        self._run_again_s = run_again_s_of(database.passes)
        self._sourced = lru_cache(maxsize=None)(self._sourced_time)

    @property
    def fingerprint(self) -> str:
        """Hash of the device, with the digest of its database, the framework and the number format
        of products."""
        return content_key(super().fingerprint, self.database.digest)

    @property
    def pass_starts(self) -> PassStarts:
        """As they were measured; nothing where they were not."""
        return self._pass_starts

    @property
    def run_again_s(self) -> float:
        """As it was measured; nothing where it was not."""
        return self._run_again_s

    def accumulation_time(self, parameters: int) -> KernelTime:
        """Nothing where the passes that were measured added gradients up: what that takes is then
        part of what they add."""
        measured = any(row.gradient_bytes for row in self.database.passes)
        return KernelTime() if measured else super().accumulation_time(parameters)

    def sourced_time(self, operator: Operator) -> SourcedTime:
        """Seconds of an operator that runs in one piece, and where they are from."""
        return self._sourced(anonymous(operator))

    def measured(self, operator: Operator) -> bool:
        """Whether ``operator`` was measured for a model, and not as a probe alone."""
        row = self._rows.get(anonymous(operator))
        return row is not None and row.model != PROBE

    def source(self, operator: Operator) -> PriceSource:
        """Where the seconds of ``operator`` are from; pieces beside which others stream were not
        measured."""
        return PriceSource.FITTED if operator.streamed else self.sourced_time(operator).source

    def _priced(self, operator: Operator, panels: int) -> InPieces:
        if operator.kind is OperatorKind.COLLECTIVE or operator.streamed:
            return super()._priced(operator, panels)
        return InPieces(self.sourced_time(operator).time)

    def _sourced_time(self, operator: Operator) -> SourcedTime:
        row = self._rows.get(operator)
        if row is not None:
            return SourcedTime(
                self._split(operator, row.timing.seconds, row.host_s), PriceSource.MEASURED
            )
        estimate = self._fits.estimate(operator)
        if estimate is None:
            return SourcedTime(super()._priced(operator, 1).total, PriceSource.FITTED)
        source = PriceSource.INTERPOLATED if estimate.between else PriceSource.FITTED
        seconds = max(estimate.seconds, self._rates.least_s(operator))
        return SourcedTime(self._split(operator, seconds, self.software.host_issue.value), source)

    def _split(self, operator: Operator, seconds: float, host_s: float) -> KernelTime:
        """``seconds``, of which products take what they must, and what a framework adds to them."""
        arithmetic_s = min(self._rates.arithmetic_s(operator), seconds)
        added_s = self._overhead.seconds(operator.phase, seconds, gradient_bytes(operator))
        return KernelTime(arithmetic_s, seconds - arithmetic_s, added_s, host_s)


def operator_model(device: Device, software: Software, number_format: str) -> DeviceModel:
    """What prices operators on ``device``: its database where it was profiled, else its constants.

    Raises: InputError: the device does not compute in that format, or its database is not there any
        more, or not as it was.
    """
    if device.profile is None:
        return DeviceModel(device, software, number_format)
    device.peak_flops(number_format)
    database = read_database(device.profile.folder)
    if database.digest != device.profile.digest:
        raise InputError(
            f"{device.profile.folder} has changed since it was read; ask again, or give the "
            "database as it was then"
        )
    return ProfiledModel(device, software, number_format, database)


def check_model(model: ProfiledModel, name: str, operators: Iterable[Operator]) -> None:
    """Refuse a database of other models, of which fits alone would price every operator.

    Of other sizes of its own model, and of models that share operators with it, a database tells.

    Raises:
        InputError: says which models were measured, and how to measure this one too.
    """
    database = model.database
    names = [*(row.model for row in database.operators), *(row.model for row in database.passes)]
    measured = dict.fromkeys(each for each in names if each not in ("", PROBE))
    if not measured or name in measured:
        return
    if not any(model.measured(operator) for operator in operators):
        raise InputError(
            f"{database.folder} was measured for {', '.join(measured)}, and has no operator of "
            f"{name}; add it with "
            f"'phaze profile --output {database.folder}', or give a database of {name}"
        )


def source_counts(operators: Iterable[tuple[Operator, int]], model: ProfiledModel) -> SourceCounts:
    """The sources of ``operators``, each of which runs so many times; collectives are the network's
    and do not count."""
    distinct: dict[Operator, PriceSource] = {}
    seconds = dict.fromkeys(PriceSource, 0.0)
    for operator, times in operators:
        if operator.collective is not None:
            continue
        source = distinct[anonymous(operator)] = model.source(operator)
        seconds[source] += times * model.operator_time(operator).device_s
    whole = sum(seconds.values()) or 1.0
    found = list(distinct.values())
    return SourceCounts(
        database=str(model.database.folder),
        operators={source.value: found.count(source) for source in PriceSource},
        share_of_seconds={source.value: seconds[source] / whole for source in PriceSource},
    )
