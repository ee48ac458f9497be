"""Where artefacts go: one rule for every mode."""

import re
from dataclasses import dataclass
from pathlib import Path

from phaze_common.echo import steers
from phaze_common.errors import InputError
from phaze_common.user_cache import user_cache

REPOSITORY = Path(__file__).resolve().parents[2]
RUNS = "runs"  # in the user's cache
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Folders:
    """Graphs per family, estimates per model, the generated design space, and the run itself."""

    graphs: Path
    estimates: Path
    arch_configs: Path
    run: Path


def folders_of(output: Path | None, name: str = "") -> Folders:
    """Folders of the run called ``name``; with ``output`` the run is that folder.

    Without one all are where the original puts them: in the source folder, where the current folder
    is inside it, else below the current folder, wherever phaze itself is.
    """
    root = output or working_root(Path.cwd())
    run = output or root / "Solver" / "output" / name
    estimator = root / "Estimator"
    graphs = root / "GraphExtractor" / "out"
    return Folders(graphs, estimator / "estimates", estimator / "arch_configs", run)


def cached_folders() -> Folders:
    """Folders of a mode that writes no run: in the user's cache if there is one."""
    cache = user_cache()
    return folders_of(None if cache is None else cache / RUNS)


def working_root(current: Path) -> Path:
    """The folder below which a run in the folder ``current`` leaves what it makes."""
    inside = (REPOSITORY / "pyproject.toml").exists() and current.resolve().is_relative_to(
        REPOSITORY
    )
    return REPOSITORY if inside else current


def check_name(name: str) -> None:
    """Refuse a name of a run that cannot name a folder."""
    if not FOLDER_NAME.fullmatch(name):
        raise InputError(
            f"name {name!r} cannot name a folder; use letters, digits, '.', '_' and '-', at most "
            "100, no leading '.'"
        )


def check_readable(folder: Path) -> None:
    """Refuse a folder whose path no file of the run could hold."""
    if steers(str(folder)):
        raise InputError(
            f"the run would go to {str(folder)!r}, whose path holds control characters; give "
            "another --output"
        )


def check_output(folder: Path, flag: str = "--output") -> None:
    """Refuse a folder of results that cannot be one."""
    try:
        str(folder).encode()
        there = next(
            each for each in (folder, *folder.parents) if each.exists() or each.is_symlink()
        )
        taken = not there.is_dir()
    except (
        UnicodeEncodeError,
        OSError,
    ) as error:  # bytes that are no text, or a name the file system cannot hold
        raise InputError(
            f"{flag} {str(folder)!r:.120} cannot name a folder; give another"
        ) from error
    if taken:
        what = "a file" if there.exists() else "a link to nothing"
        raise InputError(
            f"{flag} {folder} cannot be a folder, since {there} is {what}; give another"
        )
