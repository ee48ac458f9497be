"""Answers about the best design of a search that take a while: kept with its finished points, for
the same question again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from phaze_common.files import (
    artefact_bytes,
    code_version,
    content_key,
    load_or_set_aside,
    write_atomically,
)
from phaze_common.records import from_json, to_json
from phaze_common.sealed import sealed, unsealed
from Solver.designs.search_context import SearchContext
from Solver.results import DesignPoint

STUDIES = Path(__file__).resolve().parent  # whose code asks the questions
Answer = TypeVar("Answer")


def kept_answer(
    run: SearchContext,
    name: str,
    kind: type[Answer],
    best: DesignPoint,
    compute: Callable[[], Answer],
    *about: object,
) -> Answer:
    """The answer ``name``, a record of ``kind`` without words, as an earlier run found it, or
    computed and kept now.

    It is about ``best``, the optimum of ``run``, and depends on no more than the problem without
    its front, the prices, this room's code and ``about``.
    """
    folder = run.stores.points
    if folder is None:
        return compute()
    point = to_json((best.value, best.accelerator, best.hbm_bytes, best.models)).decode()
    problem = replace(run.problem, front=())
    key = content_key(run.pricing, code_version(STUDIES), problem, point, *about)
    path = folder / f"{name}-{key}.json"
    kept = load_or_set_aside(
        path, lambda file: from_json(kind, unsealed(artefact_bytes(file), str(file)), str(file))
    )
    if kept is None:
        kept = compute()
        write_atomically(path, sealed(to_json(kept)), private=True)
    return kept
