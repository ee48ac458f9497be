"""Two finished runs: what changed in their inputs and answers, and why the answer moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from GraphExtractor.names import label
from phaze.report.sentences.comparison import ExchangedDesigns, answers_compared, names_of
from phaze.report.sentences.designs import accelerator_text, unit_of, whole_plan_text
from phaze.report.sentences.differences import gap_text, terms_of
from phaze.report.sentences.records import NOT_GIVEN, Change, Comparison
from phaze.runs.finished_run import FinishedRun
from phaze.settings.file_contents import changes_no_result
from phaze.studies.explain.exchanges import exchanged
from phaze_common.errors import PhazeError
from phaze_common.numbers import gib, number
from phaze_common.progress import Progress, SilentProgress

LENGTHS = "sequence_length"
CONTENT, VERSION, CODE = "content of", "version of", "code"


def compare_runs(
    before: FinishedRun, after: FinishedRun, progress: Progress | None = None
) -> Comparison:
    """Compare two runs; of runs of one kind the design of each is priced as the other asks, too.

    What cannot be asked again, because files that a study names are gone, is left out and said.
    """
    changes = tuple(_changes(before, after))
    answers = tuple(_differing(_outcome(before), _outcome(after)))
    one, two = before.result.best, after.result.best
    terms = () if one is None or two is None else terms_of(one, two)
    keys = [change.key for change in changes if change.key in {*before.settings, *after.settings}]
    moved, missing = None, ""
    if changes:
        moved, missing = _exchanged(before, after, keys, progress or SilentProgress())
    sentences = [*answers_compared(before, after, changes, answers)]
    sentences += moved.sentences() if moved else [missing] if missing else []
    if moved and any(change.key.startswith((CODE, CONTENT, VERSION)) for change in changes):
        sentences.append(
            "Exchanged designs and questions are priced with the code and files of today, the "
            "runs' own values with those of their time: a difference between them is part of "
            "these figures."
        )
    for model in dict.fromkeys(term.model for term in terms):
        assert one is not None and two is not None  # there are terms
        before_s, after_s = (each.models[model].time_per_batch_s for each in (one, two))
        mine = [term for term in terms if term.model == model]
        sentences += gap_text(label(model), before_s, after_s, mine)
    exchanges = moved.exchanges() if moved else ()
    return Comparison(
        *names_of(before, after), changes, answers, terms, exchanges, tuple(sentences)
    )


def _differing(
    one: Mapping[str, str], two: Mapping[str, str], prefix: str = ""
) -> Iterator[Change]:
    """What two mappings have otherwise, by the keys of both in their order."""
    for key in dict.fromkeys([*one, *two]):
        if one.get(key) != two.get(key):
            yield Change(prefix + key, one.get(key, NOT_GIVEN), two.get(key, NOT_GIVEN))


def _changes(before: FinishedRun, after: FinishedRun) -> Iterator[Change]:
    """Settings, contents of files, code and versions that differ."""
    one, two = before.settings, after.settings
    keys = dict.fromkeys([*one, *two])
    if before.on_device is not after.on_device:
        keys = {key: None for key in one if key in two}
    for key in keys:
        if not changes_no_result(key) and one.get(key) != two.get(key):
            shown = _lengths if key == LENGTHS else _shown
            yield Change(key, shown(one.get(key)), shown(two.get(key)))
    for change in _differing(before.manifest.contents, after.manifest.contents):
        if one.get(change.key) == two.get(change.key):
            yield Change(f"{CONTENT} {change.key}", change.before, change.after)
    commits = before.manifest.git_commit, after.manifest.git_commit
    if commits[0] != commits[1]:
        yield Change(CODE, *map(_commit, commits))
    yield from _differing(before.manifest.versions, after.manifest.versions, f"{VERSION} ")


def _commit(commit: str | None) -> str:
    """The first digits of a commit, and whether there were changes."""
    return commit[:12] + commit[40:] if commit else "unknown"


def _shown(value: Any) -> str:
    if value is None:
        return "default"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _lengths(values: Any) -> str:
    """Tokens per sample of the models; samples that are no sequences have the length 1."""
    lengths = values if isinstance(values, list) else [values]
    return ", ".join(NOT_GIVEN if length in (None, 1) else str(length) for length in lengths)


def _outcome(run: FinishedRun) -> dict[str, str]:
    """Fields of the answer that a reader would compare."""
    best = run.result.best
    found = {"status": run.result.status.value}
    if best is None:
        return found
    if best.accelerator is not None:
        found["accelerator"] = accelerator_text(best.accelerator)
        found["area mm²"] = number(best.accelerator.area_mm2)
        found["HBM GiB"] = gib(best.hbm_bytes)
    found[f"{best.objective.value.replace('_', ' ')}, {unit_of(best)}"] = number(best.value)
    for model, plan in best.models.items():
        found[f"plan of {label(model)}"] = whole_plan_text(plan)
        found[f"samples/s of {label(model)}"] = number(plan.throughput_samples_per_s)
    return found


def _exchanged(
    before: FinishedRun, after: FinishedRun, keys: Sequence[str], progress: Progress
) -> tuple[ExchangedDesigns | None, str]:
    """What moved, or what keeps it from being known."""
    if before.on_device is not after.on_device:
        return None, ""
    try:
        return exchanged(before, after, keys, progress), ""
    except PhazeError as error:
        return None, f"Why the answer moved cannot be computed any more: {error}."
