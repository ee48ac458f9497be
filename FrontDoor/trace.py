"""``phaze trace``: the schedules of a run as a timeline for Perfetto or chrome://tracing."""

from __future__ import annotations

import sys

from Common.echo import say
from FrontDoor.arguments import Command
from FrontDoor.exit_status import DONE
from FrontDoor.printing import print_rows

STDOUT = "-"


def trace(command: Command) -> int:
    """Write the timeline of a run's best design, gzipped where the file's name says so."""
    from Common.errors import InputError
    from Common.files import output_file, pack, user_path
    from Common.written_files import write_output
    from Reporter.trace.timeline import timeline_of
    from Studies.finished_run import open_run
    from Studies.run_directory import RUN_FILES

    asked = (
        None
        if command.output in {None, STDOUT}
        else output_file(str(command.output), ", or - for standard output")
    )
    if asked is not None and asked.name in RUN_FILES:
        raise InputError(
            f"--output {asked} has the name of a file of a run, which it would replace; give "
            "another"
        )
    if asked is not None and asked.suffix not in {".json", ".gz"}:
        raise InputError(
            f"--output {asked} would not be taken for a timeline; give a name that ends in .json "
            "or .json.gz"
        )
    run = open_run(user_path(command.runs[0]))
    path = asked or run.folder / "trace.json"
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
