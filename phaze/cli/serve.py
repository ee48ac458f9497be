"""``phaze serve``: the page of a run or a sweep from a local server, which answers what
alternatives would cost."""

from __future__ import annotations

import json
import logging
import secrets
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from GraphExtractor.permission import files_to_run
from phaze.cli import mode
from phaze.cli.exit_status import DONE, Ended
from phaze.cli.report import need_libraries
from phaze_common.echo import say
from phaze_common.errors import InputError, PhazeError
from phaze_common.files import user_path

if TYPE_CHECKING:
    from phaze.report.serve.answers import Answers

logger = logging.getLogger(__name__)

TOKEN_BYTES = 24
MOST_PORT = 65_535


@dataclass(frozen=True, kw_only=True)
class Serve(mode.Command):
    """The same page from a local server, where a click on a point shows its plan and asks what
    another would cost."""

    runs: tuple[str, ...] = mode.word(
        mode.REQUIRED, f"{mode.RUN_HELP}, or the folder of a sweep; of several all points", "RUN"
    )
    host: str = mode.flag(
        "127.0.0.1", "address to listen on (default 127.0.0.1, this machine)", "H"
    )
    port: int = mode.flag(0, "port to listen on (default: any that is free)")
    run_code: tuple[str, ...] = mode.run_code_flag()


def run(command: Serve) -> int:
    """Print the address and answer there until interrupted."""
    uvicorn = _libraries()
    answers = _answers(command)
    listening = _listen(command.host, command.port)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    from phaze.report.serve.app import application

    with listening:
        config = uvicorn.Config(
            application(answers, token),
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            ws="none",
        )
        address = f"http://{_shown(command.host)}:{listening.getsockname()[1]}/{token}/"
        if command.output_format == "json":
            shown = json.dumps({"address": address}, indent=2)
        else:
            shown = address
        say(sys.stdout, shown.splitlines())
        sys.stdout.flush()
        logger.info(
            "open this address in a browser; it is the key to the page, and interrupting (Ctrl-C) "
            "ends the server"
        )
        try:
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt as stop:  # how a server ends
            logger.info("the server has ended")
            raise Ended from stop
    return DONE


def _answers(command: Serve) -> Answers:
    from phaze.report.serve.answers import Answers
    from phaze.studies.sweep.points_read import is_sweep, read_points

    folders = [user_path(run) for run in command.runs]
    points = read_points(folders)
    alone = len(folders) == 1 and not is_sweep(folders[0])
    return Answers(points, alone, files_to_run(command.run_code))


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens there."""
    if not 0 <= port <= MOST_PORT:
        raise InputError(
            f"--port {port} is no port; give one from 1 to {MOST_PORT}, or 0 for any that is free"
        )
    try:
        (family, kind, protocol, _, place), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"--host {host!r} is no address of this machine; leave it out for 127.0.0.1"
        ) from error
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen()
    except OSError as error:
        listening.close()
        why = (error.strerror or str(error)).lower()
        raise InputError(
            f"{host}:{port} cannot be listened on ({why}); give another --port, or 0 for any that "
            "is free"
        ) from error
    return listening


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _libraries() -> Any:
    """The server's library."""
    need_libraries("serve")
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ModuleNotFoundError as error:
        raise PhazeError(
            f"serve needs {error.name}, which is not installed: python -m pip install "
            "'phaze[serve]'"
        ) from error
    return uvicorn


MODE = mode.Mode("serve", mode.FINISHED_RUNS, Serve, run, tables=False)
