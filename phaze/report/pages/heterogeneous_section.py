"""The section of the page about plans whose stages differ."""

from __future__ import annotations

from phaze.report.pages.figures import Part, Section
from phaze.report.pages.pipeline_figures import pipeline_figures
from phaze.report.sentences.stages import heterogeneous_text
from phaze.report.tables.heterogeneous_tables import stages_table
from Solver.results import HeterogeneousAnswer


def heterogeneous_section(answer: HeterogeneousAnswer) -> Section:
    """What stages that differ bring, the stages of the best such plan, and its timeline."""
    sentences, best = (f"{heterogeneous_text(answer)}.",), answer.best
    part = Part("", sentences)
    if best is not None:
        tables = (stages_table(best.plan, best.stages),)
        part = Part("", sentences, pipeline_figures(best.pipeline, "differing"), tables)
    return Section("differing", "Stages that differ", (part,))
