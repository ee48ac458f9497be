"""Answers about the best design of a search that take a while: kept with its finished points, for
the same question again."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

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
from Solver.hardware import DesignedChips
from Solver.results import DesignPoint

_ROOMS = ("studies", "runs", "validation")  # whose code asks the questions
ASKED_BY = tuple(Path(__file__).resolve().parents[1] / room for room in _ROOMS)
Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class AnswerFile(Generic[Answer]):
    """Where an answer, a record of ``kind`` without words, is kept; ``path`` is None: nowhere."""

    kind: type[Answer]
    path: Path | None

    def load(self) -> Answer | None:
        """What an earlier run kept; None: nothing."""
        if self.path is None:
            return None
        return load_or_set_aside(
            self.path,
            lambda file: from_json(self.kind, unsealed(artefact_bytes(file), str(file)), str(file)),
        )

    def store(self, answer: Answer) -> None:
        """Keep ``answer`` in place of what is kept."""
        if self.path is not None:
            write_atomically(self.path, sealed(to_json(answer)), private=True)


def answer_file(
    run: SearchContext, name: str, kind: type[Answer], best: DesignPoint, *about: object
) -> AnswerFile[Answer]:
    """Where the answer ``name`` is kept.

    It is about ``best``, the optimum of ``run``, and depends on no more than the problem without
    its front, the space that chips are of with its budget, the prices, the code that asks and
    ``about``.
    """
    folder = run.stores.points
    if folder is None:
        return AnswerFile(kind, None)
    point = to_json((best.value, best.accelerator, best.hbm_bytes, best.models)).decode()
    problem, hardware = replace(run.problem, front=()), run.hardware
    space = hardware.space if isinstance(hardware, DesignedChips) else None
    key = content_key(run.pricing, code_version(*ASKED_BY), problem, space, point, *about)
    return AnswerFile(kind, folder / f"{name}-{key}.json")


def kept_answer(
    run: SearchContext,
    name: str,
    kind: type[Answer],
    best: DesignPoint,
    compute: Callable[[], Answer],
    *about: object,
) -> Answer:
    """The answer of ``answer_file`` as an earlier run found it, or computed and kept now."""
    file = answer_file(run, name, kind, best, *about)
    kept = file.load()
    if kept is None:
        kept = compute()
        file.store(kept)
    return kept
