"""Where the compiled inner loops of the solvers are kept from one run to the next."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from pathlib import Path

logger = logging.getLogger(__name__)
SETTING = "NUMBA_CACHE_DIR"


def find_place(sources: Path) -> None:
    """Let compiled code be kept beside ``sources``, else in the user's cache, else for this run alone.

    Must be called before anything is compiled. The last resort is a private folder that goes with the process: compiled code
    is run as it is, so it must not come from a folder that others can write.
    """
    if os.environ.get(SETTING) or os.access(sources, os.W_OK) or _has_user_cache():
        return
    folder = tempfile.mkdtemp(prefix="phaze-compiled-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[SETTING] = folder
    logger.info(
        "neither %s nor the home folder is writable: every run compiles anew; set %s to a folder of yours", sources, SETTING
    )


def _has_user_cache() -> bool:
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numba"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home folder, or none that can be written
        return False
    return os.access(folder, os.W_OK)
