"""The Pareto front of a search as tables for the terminal."""

from __future__ import annotations

from pathlib import Path

from GraphExtractor.names import label
from phaze.report.pages.front_axes import WORDS, front_words, other_axes
from phaze.report.sentences.designs import accelerator_text, degrees_text
from phaze.report.table import Table
from phaze_common.numbers import gib, rate
from phaze_common.run_files import DESIGNS
from Solver.front_records import ModelFront
from Solver.results import SearchResult


def front_tables(result: SearchResult) -> list[Table]:
    """A table of the front of each model, with where all of it is."""
    everything = str(Path(result.run_directory) / DESIGNS)
    return [_front_table(each, everything, len(result.fronts) > 1) for each in result.fronts]


def _front_table(front: ModelFront, everything: str, several: bool) -> Table:
    there, shown = front.chips_there_are, len(front.chips)
    count = f"{there:,} chip{'s' if there > 1 else ''}, fastest first"
    if shown < there:
        count = f"{shown} of {there:,} chips, spread evenly, fastest first"
    rows = (
        {
            "accelerator": accelerator_text(chip.accelerator),
            "HBM GiB": ", ".join(map(gib, chip.hbm_bytes)),
            "micro-batch": str(chip.micro_batch_size),
            "recompute": chip.recompute,
            "tp x pp x dp": degrees_text(chip),
            "samples/s": rate(chip.throughput_samples_per_s),
            **{
                WORDS[axis].heading: WORDS[axis].text(chip.amounts[axis.value])
                for axis in other_axes(front.axes)
            },
        }
        for chip in front.chips
    )
    return Table.of(
        f"{label(front.model) + ': ' if several else ''}Pareto front of {front_words(front.axes)}: "
        f"{count}; all with all their plans are in {everything} (on_front)",
        rows,
        words={"accelerator", "recompute"},
        spared=("recompute", "micro-batch", "tp x pp x dp", "HBM GiB"),
    )
