"""The Pareto front of a search as tables for the terminal."""

from __future__ import annotations

from pathlib import Path

from GraphExtractor.names import label
from phaze.report.pages.front_axes import WORDS, front_words, other_axes
from phaze.report.tables.text_tables import TextTable, new_table
from phaze.studies.wording import accelerator_text, degrees_text
from phaze_common.numbers import gib, rate
from phaze_common.run_files import DESIGNS
from Solver.front_records import ModelFront
from Solver.results import SearchResult


def front_tables(result: SearchResult) -> list[TextTable]:
    """A table of the front of each model, with where all of it is."""
    several = len(result.fronts) > 1
    everything = str(Path(result.run_directory) / DESIGNS)
    return [
        _front_table(front, everything, f"{label(front.model)}: " if several else "")
        for front in result.fronts
    ]


def _front_table(front: ModelFront, everything: str, whose: str) -> TextTable:
    others = other_axes(front.axes)
    headings = ("accelerator", "HBM GiB", "micro-batch", "recompute", "tp x pp x dp", "samples/s")
    there, shown = front.chips_there_are, len(front.chips)
    count = f"{there:,} chip{'s' if there > 1 else ''}, fastest first"
    if shown < there:
        count = f"{shown} of {there:,} chips, spread evenly, fastest first"
    title = (
        f"{whose}Pareto front of {front_words(front.axes)}: {count}; all with all their plans "
        f"are in {everything} (on_front)"
    )
    table = new_table(
        title,
        (*headings, *(WORDS[axis].heading for axis in others)),
        words={"accelerator", "recompute"},
        spared=("recompute", "micro-batch", "tp x pp x dp", "HBM GiB"),
    )
    for chip in front.chips:
        table.add_row(
            accelerator_text(chip.accelerator),
            ", ".join(map(gib, chip.hbm_bytes)),
            str(chip.micro_batch_size),
            chip.recompute,
            degrees_text(chip),
            rate(chip.throughput_samples_per_s),
            *(WORDS[axis].text(chip.amounts[axis.value]) for axis in others),
        )
    return table
