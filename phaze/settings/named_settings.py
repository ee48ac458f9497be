"""Settings with a name: YAML files of defaults, which studies and the command line override."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from phaze.settings.config_files import read_config
from phaze_common.errors import InputError
from phaze_common.suggestions import nearest

SETTING = "setting"
_FOLDER = Path(__file__).parent / "settings"


def setting_names() -> tuple[str, ...]:
    """Names of those that ship."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.yaml")))


def defaults_of(name_or_path: str) -> Mapping[str, object]:
    """What a setting states, by any names of its settings, relative paths made absolute.

    Raises:
        InputError: an unknown name, an unreadable file, one that names a setting itself.
    """
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        path = Path(name_or_path).expanduser()
    else:
        path = _FOLDER / f"{name_or_path}.yaml"
        if name_or_path not in setting_names():
            known = ", ".join(setting_names())
            hint = nearest(name_or_path, setting_names(), "")
            raise InputError(
                f"no setting named {name_or_path!r:.200}; {f'{hint} known: {known}'.lstrip()}; or "
                "give a YAML file"
            )
    defaults = read_config(path)
    if SETTING in defaults:
        raise InputError(f"{path}: a setting cannot build on another one; leave {SETTING!r} out")
    return defaults
