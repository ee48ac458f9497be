"""Files that a run wrote: whoever opens one that cannot be read says the same of it, and the same
way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from phaze_common.errors import InputError
from phaze_common.files import read_bytes, read_json
from phaze_common.json_text import CORRECT_IT, parse_json

STUDY, MANIFEST, BEST = "study.yaml", "manifest.json", "best.json"
DESIGNS = "designs.parquet"
DESIGNS_CSV = "designs.csv"
PLANS = "plans.parquet"
PLANS_CSV = "plans.csv"
SCHEDULES = "schedules.json.gz"
SWEEP, TABLE, TABLE_CSV = "sweep.yaml", "table.parquet", "table.csv"  # of a sweep
TRAINING_TIME = "training_time.json"


def unreadable(path: Path, why: str) -> InputError:
    """What is said of a file of a run that cannot be read. Without its manifest the files of a run
    are not known to be one's, and no other replaces them."""
    again = "with another --output" if path.name == MANIFEST else "to make it anew"
    return InputError(f"{path} cannot be read ({why}); run the study again {again}")


def run_document(path: Path, content: bytes) -> dict[str, Any]:
    """The JSON document of a run, of which ``path`` has this ``content``.

    Raises:
        InputError: it is none, or no mapping.
    """
    try:
        document = parse_json(content, "it")
    except InputError as error:
        raise unreadable(path, str(error).removesuffix(CORRECT_IT)) from error
    if not isinstance(document, dict):
        raise unreadable(path, "it is not a mapping")
    return document


def plan_document(path: Path) -> Any:
    """Content of a file with a plan: YAML, JSON, or the ``best.json`` of a run.

    Raises:
        InputError: it is missing or cannot be read.
    """
    from phaze_common.yaml_files import read_yaml

    if path.name == BEST:
        return run_document(path, read_bytes(path, "a plan file"))
    return read_json(path, "a plan file") if path.suffix == ".json" else read_yaml(path)
