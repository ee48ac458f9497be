"""What the searches of the parts of a space know together: the value of the best design that one of
them has evaluated."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path

from phaze_common.errors import InputError, PhazeError
from phaze_common.files import artefact_bytes, parse_json, write_atomically
from phaze_common.sealed import sealed, unsealed

logger = logging.getLogger(__name__)
_SUFFIX = ".value"


@dataclass(frozen=True)
class SharedIncumbent:
    """A ``folder`` with a file for each of the parts, this one's under ``name``; None: nobody is
    told, and nothing heard.

    Whose disk is another one hears less, and whose file is damaged is not heard: that costs time,
    and changes no answer."""

    folder: Path | None = None
    name: str = ""

    def value(self) -> float:
        """The most that any part has told; 0 where none has."""
        if self.folder is None:
            return 0.0
        try:
            files = [path for path in self.folder.iterdir() if path.suffix == _SUFFIX]
        except OSError:
            return 0.0
        return max(map(_read, files), default=0.0)

    def tell(self, value: float) -> None:
        """Say that an evaluated design reaches ``value``, unless this part told of a better one."""
        if self.folder is None:
            return
        path = self.folder / f"{self.name}{_SUFFIX}"
        if value > _read(path):
            try:
                write_atomically(path, sealed(repr(value).encode()))
            except PhazeError as error:
                logger.debug("others are not told of %s: %s", value, error)


def _read(path: Path) -> float:
    try:
        value = parse_json(unsealed(artefact_bytes(path), str(path)), str(path))
    except (OSError, PhazeError, InputError):
        return 0.0
    return float(value) if isinstance(value, float) and math.isfinite(value) else 0.0
