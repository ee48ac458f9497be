"""Files that survive crashes: atomic writes, content keys, a cache that sets damaged entries aside."""

import contextlib
import gzip
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from Common.errors import ArtefactError, InputError, PhazeError

logger = logging.getLogger(__name__)
Loaded = TypeVar("Loaded")

ARTEFACT_FOLDERS = frozenset({"out", "estimates", "arch_configs", "output"})  # inside packages, where the original puts them
MAX_ARTEFACT_BYTES = 512 * 2**20  # refuse to unpack more than this from a compressed artefact


def user_path(text: str) -> Path:
    """Absolute path of what a user typed; ``~`` and ``~name`` are home folders.

    Raises:
        InputError: there is no such user, or no home folder, or nothing was typed.
    """
    if not text.strip():
        raise InputError("a path is empty; write . for the current folder")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise InputError(f"path {text!r} starts with a home folder that does not exist; write it out, or ./{text}") from error


def output_file(text: str, instead: str = "") -> Path:
    """Path of a file to write: a new one, or one that is replaced; ``instead`` says what else could be given.

    Raises:
        InputError: there is something that is no regular file, or no file can be there.
    """
    path = user_path(text)
    try:
        replaceable = path.is_file() or not path.exists()
        inside = next(parent for parent in path.parents if parent.exists())
        possible = inside.is_dir()
    except OSError as error:  # a name the file system cannot hold
        raise InputError(f"output {text!r:.120} cannot name a file: {error.strerror}; give another") from error
    if not replaceable:
        raise InputError(f"output {path} is a folder or a device; give the file to write{instead}")
    if not possible:
        raise InputError(f"output {path} cannot be a file, since {inside} is not a folder; give another")
    return path


def named_file(key: str, text: str) -> str:
    """What setting ``key`` names: a name as it is, or the absolute path of an existing YAML file.

    Raises:
        InputError: a path that is no file.
    """
    if not _is_path(text):
        return text
    path = user_path(text)
    try:
        found = path.is_file()
    except OSError:  # a name the file system cannot hold
        found = False
    if not found:
        raise InputError(f"{key} {text!r} is not a file; give a name, or the path of an existing YAML file")
    return str(path)


def beside(folder: Path, value: object) -> object:
    """``value`` of a file in ``folder``: made absolute against it where it is a relative path rather than a name."""
    return str(folder / value) if isinstance(value, str) and _is_path(value) else value


def _is_path(text: str) -> bool:
    return "/" in text or text.endswith((".yaml", ".yml"))


def read_text(path: Path, wanted: str) -> str:
    """Text of a file that a user named, which should be ``wanted``; a byte-order mark is passed over.

    Raises:
        InputError: the file is missing, not readable or no text.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise InputError(f"cannot read {path}: {reason}; give the path of {wanted}") from error


def read_json(path: Path, wanted: str) -> Any:
    """Content of a JSON file that a user named.

    Raises:
        InputError: as ``read_text``, or it is not JSON.
    """
    text = read_text(path, wanted)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}; correct it") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside ``path``, flush to disk, then rename, so that ``path`` is either the old or the new file, never a part.

    Raises:
        PhazeError: the disk is full or the folder is not writable; nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        raise PhazeError(
            f"cannot write {path}: {error.strerror}; make room or choose another place, then run it again"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def pack(text: bytes) -> bytes:
    """Gzip without a timestamp, so that equal content gives equal files."""
    return gzip.compress(text, compresslevel=6, mtime=0)


def unpack(path: Path) -> bytes:
    """Content of a gzip file, at most ``MAX_ARTEFACT_BYTES``.

    Raises:
        ArtefactError: the file is truncated, not gzip, or too large.
    """
    try:
        with gzip.open(path, "rb") as stream:
            text = stream.read(MAX_ARTEFACT_BYTES + 1)
    except (OSError, EOFError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
        raise ArtefactError(f"{path} is damaged ({error})") from error
    if len(text) > MAX_ARTEFACT_BYTES:
        raise ArtefactError(f"{path} holds more than {MAX_ARTEFACT_BYTES} bytes")
    return text


def content_key(*parts: object) -> str:
    """Return a short stable hash of the JSON form of ``parts`` (strings, numbers, lists, dicts of them)."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


@cache
def code_version(*packages: Path) -> str:
    """Hash of the Python and YAML sources under ``packages``, artefacts left out: what other code made is stale.

    Found once: what a process runs is the code it began with.
    """
    digest = hashlib.blake2b(digest_size=8)
    for package in packages:
        for path in sorted(package.rglob("*")):
            place = path.relative_to(package)
            if path.suffix in {".py", ".yaml"} and ARTEFACT_FOLDERS.isdisjoint(place.parts):
                digest.update(str(place).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@cache
def library_version(name: str) -> str:
    """Version of an installed library."""
    return version(name)


def load_or_set_aside(path: Path, load: Callable[[Path], Loaded]) -> Loaded | None:
    """``load(path)``, or None where the file is absent or damaged; a damaged one is renamed ``<name>.damaged`` and logged."""
    if not path.exists():
        return None
    try:
        return load(path)
    except PhazeError as error:
        aside = path.with_name(path.name + ".damaged")
        with contextlib.suppress(FileNotFoundError):  # another run was quicker
            path.replace(aside)
        logger.warning("%s; set aside as %s and built again", error, aside.name)
        return None
