"""Expert baseline plans: what a practitioner would run, to compare the optimum with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from phaze_common.records import read_yaml, to_record


@dataclass(frozen=True)
class ExpertPlan:
    """Pipeline depth, data parallel degree and tensor parallel width."""

    pp: int
    dp: int
    tp: int


@dataclass(frozen=True)
class ExpertPlans:
    """Plans by model name, and where they were published."""

    source: str
    plans: dict[str, ExpertPlan]


def expert_plans() -> ExpertPlans:
    """The published plans of ``baselines.yaml``."""
    path = Path(__file__).with_name("baselines.yaml")
    return to_record(ExpertPlans, read_yaml(path), str(path))
