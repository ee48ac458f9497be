"""Files that survive crashes: atomic writes, content keys, a cache that sets damaged entries
aside."""

import contextlib
import errno
import gzip
import hashlib
import io
import json
import logging
import os
import re
import secrets
import stat
import tempfile
import zlib
from collections.abc import Callable, Collection, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from phaze_common.errors import ArtefactError, InputError, PhazeError, StaleArtefactError
from phaze_common.json_text import LONGEST_INTEGER as LONGEST_INTEGER
from phaze_common.json_text import parse_json as parse_json

logger = logging.getLogger(__name__)
Loaded = TypeVar("Loaded")

# inside packages, where the original puts them
ARTEFACT_FOLDERS = frozenset({"out", "estimates", "arch_configs", "output"})
MAX_TEXT_BYTES = 64 * 2**20  # of a text file; parsed, the worst JSON of that size takes some 2 GiB
PIPED_IN = ("/dev/fd", "/proc/self/fd")  # where a shell puts <(what a command prints)
NAMED_PIPE = "it is a named pipe, which may never end"
GZIP = b"\x1f\x8b"  # begins what is packed
MAX_ARTEFACT_BYTES = 64 * 2**20  # of an artefact when unpacked: the largest graphs are a few MiB
PRIVATE_FOLDER = 0o700
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})
_CONTROL = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f]")


def user_path(text: str) -> Path:
    """Absolute path of what a user typed; ``~`` and ``~name`` are home folders.

    Raises:
        InputError: there is no such user, or no home folder, or nothing was typed.
    """
    if not text.strip():
        raise InputError("a path is empty; give that of a file or folder, . for the current one")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise InputError(
            f"path {text!r} starts with a home folder that does not exist; write it out, or "
            f"./{text}"
        ) from error


def check_ending(path: Path, endings: Collection[str], what: str, ending: str) -> None:
    """Refuse an ``--output`` whose name would not be ``what``; the wanted ``ending`` is named.

    Raises:
        InputError: it does not end so.
    """
    if path.suffix not in endings:
        raise InputError(f"--output {path} would not be {what}; give a name that ends in {ending}")


def output_file(text: str, instead: str = "", flag: str = "--output") -> Path:
    """Path of a file to write; ``instead`` says what else ``flag`` takes.

    Raises:
        InputError: there is something that is no regular file, or no file can be there.
    """
    path = user_path(text)
    try:
        replaceable = path.is_file() or not path.exists()
        inside = next(parent for parent in path.parents if parent.exists())
        possible = inside.is_dir()
    except OSError as error:  # a name the file system cannot hold
        raise InputError(
            f"{flag} {text!r:.120} cannot name a file: {error.strerror}; give another"
        ) from error
    if not replaceable:
        raise InputError(f"{flag} {path} is a folder or a device; give the file to write{instead}")
    if not possible:
        raise InputError(
            f"{flag} {path} cannot be a file, since {inside} is not a folder; give another"
        )
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
        raise InputError(
            f"{key} {text!r} is not a file; give a name, or the path of an existing YAML file"
        )
    return str(path)


def beside(folder: Path, value: object) -> object:
    """``value`` of a file in ``folder``, absolute where it is a relative path."""
    return str(folder / value) if isinstance(value, str) and _is_path(value) else value


def _is_path(text: str) -> bool:
    return "/" in text or text.endswith((".yaml", ".yml"))


def at_once(path: str, flags: int) -> int:
    """An opener for ``open`` that waits for no named pipe; what is piped in is read.

    Raises:
        OSError: it is such a pipe, or cannot be opened.
    """
    # of a named pipe, without waiting for a writer
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    piped_in = path == "/dev/stdin" or os.path.dirname(path) in PIPED_IN  # noqa: PTH120 - of text
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode) and not piped_in:
        os.close(descriptor)
        raise OSError(errno.EINVAL, NAMED_PIPE, path)
    os.set_blocking(descriptor, True)
    return descriptor


def read_bytes(path: Path, wanted: str, most: int = MAX_TEXT_BYTES) -> bytes:
    """Content of a file that should be ``wanted``: at most ``most`` bytes are read.

    Raises:
        InputError: the file is missing, not readable, or larger.
    """
    try:
        with open(path, "rb", opener=at_once) as stream:
            content = stream.read(most + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path"
        raise InputError(f"cannot read {path}: {reason}; give the path of {wanted}") from error
    if len(content) > most:
        raise InputError(
            f"{path} has more than {most // 2**20} MiB, which is too large for {wanted}; give a "
            "smaller one"
        )
    return content


def read_packed(path: Path, wanted: str, most: int = MAX_TEXT_BYTES, kind: str = "file") -> bytes:
    """As ``read_bytes``; what is gzip is unpacked, to no more than ``most`` bytes either.

    Raises:
        InputError: as ``read_bytes``, or it is cut off, damaged, or unpacks to more.
    """
    content = read_bytes(path, wanted, most)
    if not content.startswith(GZIP):
        return content
    try:
        with gzip.open(io.BytesIO(content), "rb") as stream:
            unpacked = stream.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{path} is no {kind} that was zipped, or is cut off; give the path of {wanted}"
        ) from error
    if len(unpacked) > most:
        raise InputError(
            f"{path} unpacks to more than {most // 2**20} MiB, which is too large for {wanted}; "
            "give a smaller one"
        )
    return unpacked


def artefact_bytes(path: Path, most: int = MAX_ARTEFACT_BYTES) -> bytes:
    """Content of a file that phaze keeps: no more than ``most`` bytes are ever read of it.

    Raises:
        OSError: it is missing, or cannot be read.
        ArtefactError: it is larger than any that phaze writes.
    """
    with open(path, "rb", opener=at_once) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise ArtefactError(f"{path} holds more than {most} bytes")
    return content


def read_text(path: Path, wanted: str) -> str:
    """Text of a file that should be ``wanted``, without a byte-order mark.

    Raises:
        InputError: the file is missing, not readable, larger than ``MAX_TEXT_BYTES`` or no text.
    """
    try:
        text = read_bytes(path, wanted, MAX_TEXT_BYTES).decode("utf-8-sig")
    except UnicodeError as error:
        raise InputError(
            f"cannot read {path}: it is not text in UTF-8; give the path of {wanted}"
        ) from error
    control = _CONTROL.search(text)
    if control is not None:
        line = text.count("\n", 0, control.start()) + 1
        raise InputError(
            f"{path} holds the control character {control[0]!r} in line {line}; give the path of "
            f"{wanted}"
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path, wanted: str) -> Any:
    """Content of a JSON file that a user named.

    Raises:
        InputError: as ``read_text``, or it is not JSON.
    """
    return parse_json(read_text(path, wanted), str(path))


def write_atomically(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write so that ``path`` is either the old or the new file, never a part.

    Nothing that is there is written through: the temporary file is a new one of a random name, and
    where ``path`` is a link the link itself is replaced. A folder that is made for a ``private``
    file is its owner's alone.

    Raises:
        InputError: nothing can be written there; nothing is left behind.
        PhazeError: the disk is full or fails; nothing is left behind either.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER if private else 0o777)
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except (OSError, ValueError) as error:
        raise unwritable(path, error, "choose another place") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def append_line(path: Path, line: bytes, header: bytes) -> None:
    """Append ``line`` (with its line break) below a ``header`` and flush it to disk.

    The end of a line that a killed process was writing is taken away first.

    Raises:
        InputError: nothing can be written there.
        PhazeError: the disk is full or fails.
    """
    try:
        with path.open("a+b") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - 1, 0))
            if size and stream.read(1) != b"\n":
                stream.seek(0)
                size = stream.read(size).rfind(b"\n") + 1
                stream.truncate(size)
            stream.write(line if size else header + line)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise unwritable(path, error, "choose another place") from error


def check_writable(folder: Path) -> None:
    """Make ``folder`` if need be, and check that files can be made in it.

    Raises:
        InputError: no folder can be there, or it cannot be written.
        PhazeError: the disk is full or fails.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # of a random name, made only where there is none
            pass
    except (OSError, ValueError) as error:
        raise unwritable(folder, error, "choose another --output") from error


def refuse_replacing(folder: Path, names: Sequence[str], writer: str) -> None:
    """Refuse to replace ``names`` in a folder that no ``writer`` wrote.

    Raises:
        InputError: there is one, which would be replaced.
    """
    there = next((folder / name for name in names if os.path.lexists(folder / name)), None)
    if there is not None:
        raise InputError(
            f"{there} was written by no {writer} of phaze, and this one would replace it; give "
            "another --output, or move the file"
        )


def unwritable(path: Path, error: OSError | ValueError, remedy: str) -> PhazeError:
    """Why a place cannot be written: wrong input, unless the disk is full or fails."""
    reason = getattr(error, "strerror", None) or str(error)
    if getattr(error, "errno", None) in _DISK_ERRORS:
        return PhazeError(
            f"cannot write {path}: {reason}; make room or {remedy}, then run it again"
        )
    return InputError(f"cannot write {path}: {reason}; {remedy}, then run it again")


def pack(text: bytes) -> bytes:
    """Gzip without a timestamp, so that equal content gives equal files."""
    return gzip.compress(text, compresslevel=6, mtime=0)


def unpack(path: Path) -> bytes:
    """Content of a gzip file, at most ``MAX_ARTEFACT_BYTES``.

    Raises:
        ArtefactError: the file is truncated, not gzip, or too large.
    """
    try:
        with gzip.open(io.BytesIO(artefact_bytes(path)), "rb") as stream:
            text = stream.read(MAX_ARTEFACT_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None)  # of the disk, rather than of what is on it
        raise ArtefactError(
            f"{path} is damaged: {'it cannot be unpacked' if why is None else why.lower()}"
        ) from error
    if len(text) > MAX_ARTEFACT_BYTES:
        raise ArtefactError(f"{path} holds more than {MAX_ARTEFACT_BYTES} bytes")
    return text


def content_key(*parts: object) -> str:
    """A short stable hash of the JSON form of ``parts``."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def code_version(*packages: Path) -> str:
    """Hash of the Python and YAML sources under ``packages``, without artefacts.

    Found once: what a process runs is the code it began with.
    """
    digest = hashlib.blake2b(digest_size=8)
    for package in packages:
        digest.update(package_version(package).encode())
    return digest.hexdigest()


@cache
def package_version(package: Path) -> str:
    """That of one package, which is part of several versions."""
    digest = hashlib.blake2b(digest_size=8)
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
    """``load(path)``, or None; a damaged file is renamed ``<name>.damaged``."""
    try:
        if not path.exists():
            return None
        return load(path)
    except StaleArtefactError as error:
        logger.info("%s; it is made again", error)
        return None
    except (PhazeError, OSError) as error:
        aside = path.with_name(path.name + ".damaged")
        # another run was quicker; else writing it anew says what is wrong
        with contextlib.suppress(OSError):
            path.replace(aside)
        logger.warning("%s; set aside as %s and built again", error, aside.name)
        return None
