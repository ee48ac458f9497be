"""The section of the page about plans whose stages differ."""

from __future__ import annotations

from phaze.report.pages.figures import PageTable, Part, Section
from phaze.report.pages.pipeline_figures import pipeline_figures
from phaze.report.tables.heterogeneous_tables import (
    STAGE_WORDS,
    stage_columns,
    stage_rows,
    stages_title,
)
from phaze.studies.stages_in_words import heterogeneous_text
from Solver.results import HeterogeneousAnswer


def heterogeneous_section(answer: HeterogeneousAnswer) -> Section:
    """What stages that differ bring, the stages of the best such plan, and its timeline."""
    sentence = f"{heterogeneous_text(answer)}."
    best = answer.best
    if best is None:
        return Section("differing", "Stages that differ", (Part("", (sentence,)),))
    columns = stage_columns(best.plan)
    table = PageTable(
        stages_title(best.plan),
        columns,
        stage_rows(best.plan, best.stages),
        frozenset(STAGE_WORDS) & frozenset(columns),
    )
    figures = pipeline_figures(best.pipeline, "differing")
    return Section("differing", "Stages that differ", (Part("", (sentence,), figures, (table,)),))
