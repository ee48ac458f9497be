"""What prices plans of ours where a table has none."""

from pathlib import Path

from phaze.validation.own_plan_runs import PricedFile


def no_plan_of_ours(plan: Path, database: Path) -> PricedFile:
    raise AssertionError(f"{plan} on {database} is priced")
