"""``phaze prepopulate_estimates``: latencies of a study's operators on all core configurations."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from phaze.cli import mode, study
from phaze.cli.exit_status import DONE
from phaze.cli.printing import print_rows
from phaze_common.errors import InputError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PrepopulateEstimates(study.StudyCommand):
    """Price all operators on all core configurations and stop."""


def run(command: PrepopulateEstimates) -> int:
    """Price the operators of the study's graphs on all core configurations and count them."""
    request = study.request_of(command)
    if request.on_devices:
        raise InputError(
            "estimates are tables over accelerators to design, but the device is given; leave "
            "--device out"
        )
    if command.dry_run:
        return study.print_size(request, command)
    from Estimator.chips.latency_table import load_or_populate
    from Estimator.chips.on_chip import on_chip_memo
    from phaze.settings.designed_chips import design_space_of, designed_accelerators

    progress, folder = command.progress, request.folders.estimates
    accelerators, platform = designed_accelerators(request), design_space_of(request).platform
    rows: list[dict[str, object]] = []
    known = on_chip_memo()
    for graph in study.graphs_of(request, progress):
        key = graph.key
        what = f"operator latencies of {key.model}, micro-batch {key.micro_batch_size}, tp {key.tp}"
        with progress.phase(what, 1) as advance:
            load_or_populate([graph], accelerators, platform, folder, known)
            advance(1)
        row = study.graph_row(key)
        row["tensor_core_configurations"] = len(accelerators.tensor_cores)
        row["vector_core_configurations"] = len(accelerators.vector_cores)
        rows.append(row)
    print_rows("operator estimates", rows, command, json_only=study.equal_columns(rows))
    logger.info("estimates are in %s", folder)
    return DONE


MODE = mode.Mode(
    "prepopulate_estimates",
    mode.SEARCH_AND_PRICE,
    PrepopulateEstimates,
    run,
    study.STUDY_USAGES,
    mode.OF_STUDIES,
)
