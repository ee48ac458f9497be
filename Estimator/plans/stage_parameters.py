"""Parameters of a pipeline stage on one device, by how many devices hold the same."""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.plans.compiled import outer
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.stage_price import PlanRates, sparse_rows
from Estimator.plans.stage_totals import StageSizes

# mypy: disable-error-code="untyped-decorator,no-any-return"


@dataclass(frozen=True)
class StageParameters:
    """Those that all replicas hold, and ``experts`` (or what a 2D layout divides twice) that some
    of these divide among them.

    Of the ``dense`` ones those of ``wide`` weights are not held in fp8 where others are, and
    ``tables`` have gradients of rows, of which all replicas together send ``row_bytes``.
    """

    dense: float
    wide: float
    experts: float
    tables: float
    row_bytes: float


def stage_parameters(priced: PricedPlan, stage: int) -> StageParameters:
    """Those of ``stage``; tied ones count once where all layers are on one."""
    sizes, rates, chunks = priced.sizes, priced.rates, slice(stage, None, priced.plan.pp)
    shared = priced.tied_parameters if priced.plan.pp == 1 else 0.0
    experts = float(sizes.expert_parameters[chunks].sum()) if rates.expert_split else 0.0
    experts -= shared if rates.tied_split else 0.0
    dense = float(sizes.parameters[chunks].sum()) - shared - experts
    return StageParameters(
        dense,
        float(sizes.wide_parameters[chunks].sum()) - shared,
        experts,
        *_tables(rates, sizes, stage, priced.plan.pp),
    )


@outer
def _tables(rates: PlanRates, sizes: StageSizes, stage: int, pp: int) -> tuple[float, float]:
    """Parameters of tables with sparse gradients, and bytes of their rows."""
    rows = sparse_rows(rates, sizes, stage, pp)
    return rows.table_parameters, rows.sent_bytes
