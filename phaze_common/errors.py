"""Error types. Each message says what was given, what is allowed and what to do; the command line
maps types to exit statuses."""

from phaze_common.echo import tidy


class PhazeError(Exception):
    """Base of every error that is raised on purpose (exit status 1 by default).

    Names within a message that come from others are cut where they are long, and cannot steer a
    terminal.
    """

    exit_status = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(tidy(message))


class InputError(PhazeError):
    """The user's input cannot be used: an unknown name, a bad value or file."""

    exit_status = 2


class DefectError(PhazeError):
    """Something came out that cannot be: phaze is wrong, and says so."""

    def __init__(self, message: str = "") -> None:
        super().__init__(f"{message}; this is a defect in phaze, please report it with the command")


class InfeasibleError(PhazeError):
    """The question is well posed but nothing in the searched space satisfies it."""

    exit_status = 3


class ArtefactError(PhazeError):
    """A file of an earlier run is damaged or of another version; it is rebuilt."""


class StaleArtefactError(ArtefactError):
    """A sound file that earlier code, libraries or settings made; it is made again."""


class SolverError(PhazeError):
    """A solver failed or is not available; the message names the remedy."""
