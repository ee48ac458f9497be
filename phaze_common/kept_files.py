"""Compiled functions on disk, each file with its digest: what is damaged is compiled again, never
unpickled or run.

What the compiler keeps are pickles with machine code, which it reads as they are. Imported where
functions are compiled, since it imports numba.
"""

import contextlib
import gc
import logging
import pickle
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.datamodel import default_manager
from numba.core.types.misc import unliteral

from phaze_common.errors import DefectError
from phaze_common.sealed import DIGEST_BYTES, digest

logger = logging.getLogger(__name__)


def dispatcher(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """``numba.njit`` with these options, its result kept on disk."""
    made = njit(**options)(function)
    # as its enable_caching does
    made._cache = KeptFunction(function, counts=options.get("_nrt", True))
    template = made.get_call_template
    # Else a function is compiled once for every constant that compiled code calls it with, and all
    # that it calls again.
    made.get_call_template = lambda given, named: template(tuple(map(unliteral, given)), named)
    made.compile = _without_collecting(made.compile)
    return made


def _without_collecting(compile_it: Callable[..., Any]) -> Callable[..., Any]:
    """Compile without the search for garbage, which takes a tenth of the time: what a compiler
    makes is many small objects, most of which live until it ends."""

    @wraps(compile_it)
    def compile_now(*given: Any) -> Any:
        enabled = gc.isenabled()
        gc.disable()
        try:
            return compile_it(*given)
        finally:
            if enabled:
                gc.enable()

    return compile_now


class _Files(IndexDataCacheFile):  # type: ignore[misc]
    """The files of one function; the digest of each is over its name too."""

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self._write(
            self._index_path,
            pickle.dumps((self._version, self._source_stamp, overloads), protocol=-1),
        )

    def _load_index(self) -> dict[Any, str]:
        try:
            version, stamp, overloads = pickle.loads(self._read(self._index_path))
        except OSError:  # not there, or damaged
            return {}
        return overloads if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_data(self, name: str, data: object) -> None:
        self._write(self._data_path(name), self._dump(data))

    def _load_data(self, name: str) -> object:
        return pickle.loads(self._read(self._data_path(name)))

    def _write(self, path: str, content: bytes) -> None:
        with self._open_for_write(path) as file:
            file.write(content + _digest(path, content))

    def _read(self, path: str) -> bytes:
        """The content of a file.

        Raises:
            OSError: it is not there, or is not what was written.
        """
        text = Path(path).read_bytes()
        content, stated = text[:-DIGEST_BYTES], text[-DIGEST_BYTES:]
        if stated != _digest(path, content):
            _say_once(Path(path).parent.parent)
            with contextlib.suppress(OSError):
                Path(path).unlink()
            raise OSError(f"{path} is damaged")
        return content


class KeptFunction(FunctionCache):  # type: ignore[misc]
    """As numba's, in files that are checked before they are read."""

    def __init__(self, function: Callable[..., Any], *, counts: bool) -> None:
        """Of ``function``, which ``counts`` references to arrays, or returns none."""
        super().__init__(function)
        self._counts = counts
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Files(
            cache_path=self._cache_path, filename_base=self._impl.filename_base, source_stamp=stamp
        )

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, if that is possible.

        Raises: DefectError: it returns an array, references to which are not counted.
        """
        returned = default_manager[data.signature.return_type]
        if not self._counts and returned.contains_nrt_meminfo():
            raise DefectError(
                f"{data.fndesc.qualname} returns {data.signature.return_type}, references to which "
                "it does not count; compile it as one that does"
            )
        try:
            super().save_overload(sig, data)
        except OSError as error:
            logger.debug("compiled code is not kept: %s", error)


@cache
def _say_once(folder: Path) -> None:
    logger.warning("compiled code in %s is damaged; what it held is compiled again", folder)


def _digest(path: str, content: bytes) -> bytes:
    return digest(Path(path).name.encode() + b"\0", content)
