"""What a user's runs keep for each other: files by the hash of all that they were made from.

They lie in ``$PHAZE_CACHE``, else in the user's cache (``$XDG_CACHE_HOME/phaze``, else
``~/.cache/phaze``), from where a run copies what it needs into a folder of its own. The folder is
bounded and may be removed at any time; where there is none (``PHAZE_CACHE=``), or it cannot be
written, every run makes its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from phaze_common.errors import PhazeError
from phaze_common.files import artefact_bytes, load_or_set_aside, write_atomically

logger = logging.getLogger(__name__)

SETTING = "PHAZE_CACHE"
RENEWED_S = 24 * 3600.0  # a file's time says when it was last of use, to the day
Loaded = TypeVar("Loaded")


@dataclass(frozen=True)
class Kept:
    """A kind of files: folders of at most ``most_bytes``, one for each beginning of a hash of so
    many ``digits``."""

    name: str
    most_bytes: int
    digits: int = 0

    def place(self, made_from: str) -> Path | None:
        """Where a file is kept that was made from what has this hash; None: nowhere."""
        given = os.environ.get(SETTING)
        folder = user_cache() if given is None else Path(given) if given else None
        shared, own = made_from[: self.digits], made_from[self.digits :]
        return folder and folder / self.name / shared / own


GRAPHS = Kept("graphs", 2**20, 2)
ESTIMATES = Kept("estimates", 2**29)
LISTINGS = Kept("listings", 2**20)


def user_cache() -> Path | None:
    """The folder of the user's cache; None without a home folder."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    with contextlib.suppress(RuntimeError):  # no home folder
        # A relative one does not count (XDG base directory specification 0.8)
        return (given if given.is_absolute() else Path.home() / ".cache") / "phaze"
    return None


def keep(path: Path, kind: Kept, made_from: str) -> None:
    """Keep what ``path`` holds for other runs, as ``keep_content``."""
    if kind.place(made_from) is None:
        return
    try:
        content = artefact_bytes(path)
    except (OSError, PhazeError) as error:
        logger.debug("not kept for other runs: %s", error)
        return
    keep_content(content, kind, made_from)


def keep_content(content: bytes, kind: Kept, made_from: str) -> None:
    """Keep ``content`` for other runs; the files that were longest of no use give way."""
    place = kind.place(made_from)
    if place is None:
        return
    try:
        write_atomically(place, content, private=True)
        others = [each for each in place.parent.glob("[!.]*") if each != place]
        room = kind.most_bytes - place.stat().st_size
        for status, each in sorted(
            ((each.stat(), each) for each in others), key=lambda one: -one[0].st_mtime
        ):
            room -= status.st_size
            if room < 0:
                each.unlink(missing_ok=True)
    except (OSError, PhazeError) as error:
        logger.debug("not kept for other runs: %s", error)


def bring(kind: Kept, made_from: str, path: Path) -> bool:
    """Copy to ``path`` what some run kept that was made from the same; whether there is any.

    Raises: PhazeError: it cannot be written there.
    """
    place = kind.place(made_from)
    try:
        if place is None or not place.is_file():
            return False
        content = artefact_bytes(place)
        if time.time() - place.stat().st_mtime > RENEWED_S:
            os.utime(place)
    except (OSError, PhazeError) as error:
        logger.debug("%s cannot be read: %s", place, error)
        return False
    write_atomically(path, content, private=True)
    return True


def load_or_bring(
    path: Path, kind: Kept, made_from: str, load: Callable[[Path], Loaded]
) -> Loaded | None:
    """``load_or_set_aside(path, load)``, where need be of what some run kept; what is damaged there
    goes.

    Raises: PhazeError: it cannot be written there.
    """
    loaded = load_or_set_aside(path, load)
    if loaded is not None or not bring(kind, made_from, path):
        return loaded
    try:
        return load(path)
    except (PhazeError, OSError) as error:
        logger.debug("%s was kept and cannot be read: %s", path.name, error)
        for place in (path, kind.place(made_from)):
            if place is not None:
                place.unlink(missing_ok=True)
        return None
