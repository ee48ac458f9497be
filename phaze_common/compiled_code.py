"""Where the compiled inner loops are kept from one run to the next: a folder per version of all
their sources.

The compiler renews what it keeps of a function when the file of that function changes, but not when
a function that it calls from another file does. Kept under a hash of all sources, nothing of
another version is ever found.
"""

import atexit
import contextlib
import logging
import os
import shutil
import stat
import sys
import tempfile
import time
from pathlib import Path

from phaze_common.files import PRIVATE_FOLDER, code_version
from phaze_common.sealed import DIGEST_BYTES
from phaze_common.user_cache import user_cache

logger = logging.getLogger(__name__)

SETTING = "NUMBA_CACHE_DIR"
ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("Estimator", "Solver", "third_party")  # that have compiled code
PREFIX = "compiled-"
# a run that lasts longer than this compiles nothing new of what it began with
IN_USE_S = 24 * 3600.0


def find_place(root: Path = ROOT) -> None:
    """Keep compiled code beside the sources, else in the user's cache, else for this run.

    Called before anything is compiled. Compiled code is run as it is, so it must not come
    from a folder that others can write: the folder is its owner's alone, and so is the way to it. A
    place that the user chose (``NUMBA_CACHE_DIR``) is kept where that is so. The last resort is a
    private folder that goes with the process.
    """
    chosen = os.environ.get(SETTING)
    if chosen and (not Path(chosen).exists() or is_own(Path(chosen))):
        return
    if chosen:
        message = "%s %s can be written by others, who could put code into it; it is not used"
        logger.warning(message, SETTING, chosen)
    # files end with digests of that length
    name = f"{PREFIX}{DIGEST_BYTES}-{code_version(*(root / each for each in PACKAGES))}"
    sources = root / PACKAGES[0]
    for place in (sources / "__pycache__" if sources.is_dir() else None, user_cache()):
        if place is not None and _made(place / name):
            _set(place / name)
            _remove_others(place, name)
            return
    folder = Path(tempfile.mkdtemp(prefix="phaze-compiled-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _set(folder)
    logger.info(
        "neither %s nor the home folder is writable and the user's alone: every run compiles "
        "anew; set %s to a folder of yours",
        root,
        SETTING,
    )


def is_own(folder: Path) -> bool:
    """Whether nobody but an administrator can change what is in a folder or replace it."""
    try:
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or _others_write(about):
            return False
        return all(_is_safe_way(parent.stat()) for parent in folder.resolve().parents)
    except OSError:
        return False


def _others_write(about: os.stat_result) -> bool:
    """Whether others than the owner can write; a group that has the owner's number is their own."""
    return bool(about.st_mode & stat.S_IWOTH) or (
        bool(about.st_mode & stat.S_IWGRP) and about.st_gid != about.st_uid
    )


def _is_safe_way(about: os.stat_result) -> bool:
    """Whether only owners can exchange what is in a folder, as in /tmp (sticky)."""
    return about.st_uid in {0, os.geteuid()} and (
        not _others_write(about) or bool(about.st_mode & stat.S_ISVTX)
    )


def _made(folder: Path) -> bool:
    """Whether the folder is its owner's and writable; its time says that it is in use."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
        if not is_own(folder):
            return False
        folder.chmod(PRIVATE_FOLDER)
        os.utime(folder)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _set(folder: Path) -> None:
    os.environ[SETTING] = str(folder)
    numba = sys.modules.get("numba")
    if numba is not None:  # it has read its settings before
        numba.config.CACHE_DIR = str(folder)


def _remove_others(place: Path, name: str) -> None:
    """Remove what other versions compiled, unless a run of theirs may still add to it."""
    with contextlib.suppress(OSError):  # another run removes them at the same time
        for folder in place.glob(f"{PREFIX}*"):
            if folder.name != name and time.time() - folder.stat().st_mtime > IN_USE_S:
                shutil.rmtree(folder, ignore_errors=True)
