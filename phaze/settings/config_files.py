"""Settings in YAML files: read as they stand, with the files that they name made absolute. Those
with a name are defaults, which studies and the command line override."""

from collections.abc import Mapping
from pathlib import Path

from GraphExtractor.names import is_path
from GraphExtractor.permission import EVERY_FILE
from phaze.settings.request import request_fields, settings_for
from phaze_common.echo import kind_of
from phaze_common.errors import InputError
from phaze_common.file_formats import STUDY
from phaze_common.files import beside
from phaze_common.setting_fields import Mode
from phaze_common.settings import COMMAND_LINE
from phaze_common.suggestions import nearest

MODELS = "model"
SETTING = "setting"
_FOLDER = Path(__file__).parent / "settings"


def read_config(path: Path) -> dict[str, object]:
    """Mapping in a YAML file of settings, relative paths made absolute.

    Raises:
        InputError: the file is not readable, not YAML, or not a mapping.
    """
    from phaze_common.records import read_yaml

    content = read_yaml(path)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InputError(
            f"{path} holds {kind_of(content)}, but a study is a mapping of settings such as "
            "'model: bertlarge'"
        )
    settings = STUDY.current(content, str(path))
    return {key: setting_beside(path.parent, str(key), value) for key, value in settings.items()}


def setting_beside(folder: Path, key: str, value: object) -> object:
    """A setting of a file in ``folder``: names stay, relative paths become absolute."""
    key = key.replace("-", "_")
    if key in _names_of(MODELS):
        return model_beside(folder, value)
    if key not in file_settings():
        return value
    if isinstance(value, list):
        return [beside(folder, each) for each in value]
    return beside(folder, value)


def model_beside(folder: Path, value: object) -> object:
    """Models of a file in ``folder``, with paths made absolute against it."""
    if isinstance(value, Mapping):
        return {model_beside(folder, name): weight for name, weight in value.items()}
    if isinstance(value, list):
        return [model_beside(folder, item) for item in value]
    if not isinstance(value, str):
        return value
    words = _words(value)
    if len(words) > 1 and not any(
        (folder / each).is_file() for each in (value, split_weight(value)[0])
    ):
        return [model_beside(folder, word) for word in words]  # several in one text
    if not is_path(split_weight(value)[0]) or value.startswith("~"):
        return value
    return str(folder / value)


def _words(text: str) -> list[str]:
    """Names in a text that lists several; dimensions have commas of their own."""
    return [
        name
        for word in text.split()
        for name in ([word] if ":" in word else word.split(","))
        if name
    ]


def file_settings() -> frozenset[str]:
    """Keys of the settings that may name a YAML file."""
    return frozenset(field.key for field in request_fields() if field.about.file)


def split_weight(text: str) -> tuple[str, str | None]:
    """Name and weight in the text of a model; a path may hold an equals sign."""
    head, equals, weight = text.rpartition("=")
    if is_path(text) or (equals and is_path(head)):
        whole = not equals or not is_path(head) or Path(text).expanduser().exists()
        return (text, None) if whole else (head, weight)
    if ":" in text:  # dimensions, each with an equals sign of its own
        dimension = text.rpartition(":")[2].rpartition(",")[2]
        return (head, weight) if dimension.count("=") > 1 else (text, None)
    name, equals, weight = text.partition("=")
    return (name, weight) if equals else (text, None)


def code_allowed(
    settings: Mapping[str, object], run_code: frozenset[str] | None, mode: Mode
) -> frozenset[str] | None:
    """Model files that may be run: any that the command line names, else ``run_code``."""
    return (
        EVERY_FILE if MODELS in settings_for(mode).canonical(settings, COMMAND_LINE) else run_code
    )


def _names_of(key: str) -> frozenset[str]:
    (setting,) = (each for each in settings_for(Mode.SEARCH).settings if each.key == key)
    return frozenset({key, *setting.aliases})


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
