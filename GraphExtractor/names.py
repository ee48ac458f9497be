"""What a model is called: a listed name, dimensions spelled out, or the path of its file.

A path is its own name, made absolute, so that it means the same wherever it is read again;
artefacts of it are stored under a ``label`` that is safe in file names.
"""

import hashlib
import re
from pathlib import Path

from phaze_common.errors import InputError
from phaze_common.files import user_path

MODULE_SUFFIX = ".py"  # a module of the user's own
CONFIG_SUFFIX = ".json"  # a Hugging Face configuration
# say nothing; the folder's name does
_COMMON_STEMS = frozenset({"config", "model", "main", "__init__"})
_IN_FOLDERS = ("config.json", "model.py")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_STEM = 40


def is_path(name: str) -> bool:
    """Whether a model name has the form of the path of a file."""
    return name.endswith((MODULE_SUFFIX, CONFIG_SUFFIX)) or name.startswith(("/", "./", "../", "~"))


def holds_model(name: str) -> bool:
    """Whether a word is a folder with the file of a model in it."""
    try:
        return any((Path(name) / each).is_file() for each in _IN_FOLDERS)
    except (OSError, ValueError):  # nothing the file system knows
        return False


def absolute_path(name: str) -> str:
    """The file that a model name of this form means, however it is written.

    Raises: InputError: there is no such file, or it is of another kind.
    """
    path = user_path(name)
    kinds = "a model.py of your own, or a Hugging Face config.json"
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, ValueError):  # a name the file system cannot hold
        is_file = is_folder = False
    if is_folder:
        inside = next((each for each in _IN_FOLDERS if (path / each).is_file()), None)
        hint = f"; did you mean {path / inside}?" if inside else f"; give the path of {kinds}"
        raise InputError(f"model {name!r} is a folder{hint}")
    if not is_file:
        raise InputError(
            f"model {name!r} is no file; nothing is fetched from the Hugging Face hub, give the "
            f"path of {kinds}"
        )
    if path.suffix not in (MODULE_SUFFIX, CONFIG_SUFFIX):
        raise InputError(
            f"model file {name!r} ends in neither {MODULE_SUFFIX} nor {CONFIG_SUFFIX}; give the "
            f"path of {kinds}"
        )
    return str(path.parent.resolve() / path.name)


def split_dimensions(name: str, canonical: re.Pattern[str]) -> tuple[str, list[str]]:
    """The family that a name begins with, and its key=value pairs; none where it has no such form.

    The form is family:key=value,... or what ``canonical`` matches: family-keyvalue-...
    """
    family, colon, text = name.partition(":")
    if colon:
        return family, [pair.strip() for pair in text.split(",")]
    found = canonical.fullmatch(name)
    if found is None:
        return "", []
    parts = found[2].split("-")[1:]
    return found[1], [re.sub(r"(?<=[a-z_])(?=[0-9])", "=", part, count=1) for part in parts]


def label(model: str) -> str:
    """A model in file names and tables: of a path its stem or folder, and a short hash."""
    if not is_path(model):
        return model
    path = Path(model)
    words = path.parent.name if path.stem in _COMMON_STEMS and path.parent.name else path.stem
    safe = _UNSAFE.sub("_", words).lstrip("._-")[:_LONGEST_STEM] or "model"
    digest = hashlib.blake2b(model.encode(errors="surrogateescape"), digest_size=4)
    return f"{safe}-{digest.hexdigest()}"
