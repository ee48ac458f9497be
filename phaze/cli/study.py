"""What the modes that take a study share: what they are given, and the request that it makes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from GraphExtractor.permission import files_of_study
from phaze.cli import mode
from phaze.cli.exit_status import DONE
from phaze.cli.printing import print_answer
from phaze_common.errors import InputError

if TYPE_CHECKING:
    from GraphExtractor.graph import GraphKey, ModelGraph
    from phaze.settings.request import Request
    from phaze_common.progress import Progress

logger = logging.getLogger(__name__)
VARYING = ("cp", "ep", "sequence_parallel")  # of graphs: a column where they do
STUDY_USAGES = ("--model NAME ... [FLAG ...]", "--config FILE [FLAG ...]")


@dataclass(frozen=True, kw_only=True)
class StudyCommand(mode.Command):
    """A study: settings on the command line and in a file."""

    settings: Mapping[str, object] = mode.setting_flags(mode.search_settings)
    config: Path | None = mode.flag(
        None, "YAML file of settings; keys are the flags with underscores", "FILE"
    )
    dry_run: bool = mode.flag(False, "print the size of the space and stop")
    run_code: tuple[str, ...] = mode.run_code_flag()
    mode: str = mode.flag("", "the mode, in the original's way", "MODE", ("--phaze_exec_type",))


def request_of(command: StudyCommand) -> Request:
    """The request of a study, whose notes are logged.

    Raises:
        InputError: as ``phaze.settings.resolve``, or code is needed that may not be run.
    """
    from phaze.settings.config_files import MODELS, read_config
    from phaze.settings.resolve import resolve

    config = {} if command.config is None else read_config(command.config)
    if command.config is not None and not config and MODELS not in command.settings:
        raise InputError(
            f"{command.config} is empty; add what is to be trained, such as 'model: bertlarge', "
            "or give --model"
        )
    run_code = files_of_study(command.config, command.run_code)
    request = resolve(config, command.settings, source=str(command.config), run_code=run_code)
    if request.code.withheld and not command.dry_run:
        from phaze.settings.problem import check_code

        check_code(request)
    for note in request.notes:
        logger.info("%s", note)
    return request


def graphs_of(request: Request, progress: Progress) -> Iterator[ModelGraph]:
    """The graphs that the search of ``request`` needs, model after model."""
    from Estimator.coverage import check_functions
    from GraphExtractor.storage import load_or_extract
    from phaze.settings.problem import graph_keys, hardware_of

    known = hardware_of(request).known_functions
    for keys in graph_keys(request):
        with progress.phase(f"training graphs of {keys[0].model}", len(keys)) as advance:
            for key in keys:
                graph = load_or_extract(
                    key, request.folders.graphs, request.output.force_reextract_model, request.code
                )
                check_functions([graph], known, strict=request.search.strict)
                advance(1)
                yield graph


def graph_row(key: GraphKey) -> dict[str, object]:
    """What the graphs of a study differ in; samples of one size, as images, have no length."""
    from GraphExtractor.models.registry import find_model

    return {
        "model": key.label,
        "micro_batch_size": key.micro_batch_size,
        "sequence_length": key.sequence_length if find_model(key.model).has_sequence else None,
        "tp": key.tp,
        **{name: getattr(key, name) for name in VARYING},
    }


def equal_columns(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Degrees that all rows share, which a table need not show."""
    return [key for key in VARYING if len({row[key] for row in rows}) == 1]


def print_size(request: Request, command: StudyCommand, parts: int | None = None) -> int:
    """Print the size of the space that a study searches, and of its ``parts``."""
    from phaze.report.tables.search_tables import space_table
    from phaze.settings.problem import space_size
    from phaze.studies.parts import parted_size

    size = space_size(request) if parts is None else parted_size(request, parts)
    print_answer(json.dumps(asdict(size), indent=2), lambda: [space_table(size)], command)
    return DONE
