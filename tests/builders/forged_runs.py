"""Files of a run changed by somebody who writes their digests, too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phaze_common.sealed import KEY, digest_of, with_digest


def forged(folder: Path, name: str, content: bytes) -> None:
    """Write a file of the run in ``folder``, and its digest into the manifest."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest[KEY]
    manifest["files"][name] = digest_of(content)
    (folder / "manifest.json").write_text(json.dumps(with_digest(manifest)))


def forged_answer(folder: Path, change: Callable[[Any], object]) -> None:
    """Change the best.json of a run."""
    document = json.loads((folder / "best.json").read_text())
    del document[KEY]
    change(document)
    forged(folder, "best.json", json.dumps(with_digest(document)).encode())
