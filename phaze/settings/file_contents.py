"""Content of the files that a request names, and the key of everything that decides its answer."""

import hashlib
from dataclasses import asdict

from GraphExtractor.models.registry import find_model
from GraphExtractor.names import is_path
from phaze.settings.designed_chips import CORES, replaced_by
from phaze.settings.request import Request, request_fields
from phaze_common.files import content_key, read_bytes


def file_contents(request: Request) -> dict[str, str]:
    """Hashes of the hardware and models in files of the user's own.

    Hardware by setting (``cores`` where a cores.json replaces the design space), models by path.

    Raises:
        InputError: a file is not there any more, or cannot be read.
    """
    return _hardware(request) | _models(request)


def result_key(request: Request) -> str:
    """Content key of all settings that can change the answer, and of the named files.

    Raises:
        InputError: a file is not there any more, or cannot be read.
    """
    mapping, hardware = request.as_mapping(), _hardware(request)
    decides = {
        field.key: mapping[field.key]
        for field in request_fields()
        if field.about.decides and field.key in mapping
    }
    if "design_space" in hardware:
        decides["technology"] = ""  # is in the content of the space
    return content_key(decides | hardware, list(_models(request).values()))


def changes_no_result(key: str) -> bool:
    """Whether a setting is about names, places and forms alone."""
    return any(field.key == key and not field.about.decides for field in request_fields())


def _hardware(request: Request) -> dict[str, str]:
    cores = replaced_by(request)
    if cores is None:
        return dict(request.records.contents)
    digest = hashlib.blake2b(read_bytes(cores, "a cores.json"), digest_size=10).hexdigest()
    return {**request.records.contents, CORES.partition(".")[0]: digest}


def _models(request: Request) -> dict[str, str]:
    families = {
        model.name: find_model(model.name)
        for model in request.workload.models
        if is_path(model.name)
    }
    return {
        name: content_key(type(family).__qualname__, asdict(family))
        for name, family in families.items()
    }
