"""``phaze trace``: the schedules of a run as a timeline for Perfetto or chrome://tracing."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from phaze.cli import mode
from phaze.cli.exit_status import DONE
from phaze.cli.printing import STDOUT, print_rows
from phaze_common.echo import say
from phaze_common.errors import InputError
from phaze_common.files import check_ending, output_file, pack, user_path
from phaze_common.written_files import write_output


@dataclass(frozen=True, kw_only=True)
class Trace(mode.Command):
    """Write the schedules of a run as a timeline for Perfetto or chrome://tracing."""

    run_folder: str = mode.run_word()
    output: str | None = mode.flag(
        None,
        "file to write (default: trace.json in the run's folder; a name that ends in .gz is "
        "compressed, - is stdout)",
        "FILE",
    )
    force: bool = mode.force_flag()


def run(command: Trace) -> int:
    """Write the timeline of a run's best design, gzipped where the file's name says so."""
    from phaze.report.trace.timeline import timeline_of
    from phaze.runs.finished_run import open_run
    from phaze.runs.run_directory import RUN_FILES

    if command.output in {None, STDOUT}:
        specified = None
    else:
        specified = output_file(str(command.output), ", or - for standard output")
    if specified is not None and specified.name in RUN_FILES:
        raise InputError(
            f"--output {specified} has the name of a file of a run, which it would replace; give "
            "another"
        )
    if specified is not None:
        check_ending(specified, {".json", ".gz"}, "taken for a timeline", ".json or .json.gz")
    run = open_run(user_path(command.run_folder))
    path = specified or run.folder / "trace.json"
    timeline = timeline_of(run)
    if command.output == STDOUT:
        say(sys.stdout, timeline.content.decode().splitlines())
        return DONE
    content = pack(timeline.content) if path.suffix == ".gz" else timeline.content
    write_output(path, content, force=command.force)
    row: dict[str, object] = {
        "file": str(path),
        "processes": timeline.processes,
        "events": timeline.events,
        "opens_in": "https://ui.perfetto.dev or chrome://tracing",
    }
    print_rows("trace", [row], command)
    return DONE


MODE = mode.Mode("trace", mode.FINISHED_RUNS, Trace, run, tables=False)
