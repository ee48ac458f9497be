"""Two finished runs: what changed in their inputs, what in their answers, and why the answer
moved."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from GraphExtractor.names import label
from phaze.report.sentences.designs import EQUAL, accelerator_text, listed, unit_of, whole_plan_text
from phaze.report.sentences.differences import gap_text, terms_of
from phaze.report.sentences.gains import gained
from phaze.report.sentences.records import Change, Comparison, Term
from phaze.runs.finished_run import FinishedRun
from phaze.settings.file_contents import changes_no_result
from phaze.studies.explain.exchanges import ExchangedDesigns, exchanged, names_of
from phaze_common.errors import PhazeError
from phaze_common.numbers import gib, number, percent
from phaze_common.progress import Progress, SilentProgress
from Solver.plan_report import PlanReport

NOT_GIVEN = "-"
LENGTHS = "sequence_length"
CONTENT = "content of"


def compare_runs(
    before: FinishedRun, after: FinishedRun, progress: Progress | None = None
) -> Comparison:
    """Compare two runs. Where both are of one kind, the design of each is priced under the other's
    question too.

    What cannot be asked again, because files that a study names are gone, is left out and said.
    """
    changes = tuple(_changes(before, after))
    one, two = _outcome(before), _outcome(after)
    differing = [key for key in one | two if one.get(key) != two.get(key)]
    answers = tuple(
        Change(key, one.get(key, NOT_GIVEN), two.get(key, NOT_GIVEN)) for key in differing
    )
    terms = _terms(before, after)
    keys = [change.key for change in changes if change.key in {*before.settings, *after.settings}]
    moved, missing = (
        _exchanged(before, after, keys, progress or SilentProgress()) if changes else (None, "")
    )
    sentences = [*_verdict(before, after), *_inputs(changes), *_designs(before, after, answers)]
    sentences += moved.sentences() if moved else [missing] if missing else []
    if moved and any(
        change.key == "code" or change.key.startswith((CONTENT, "version of")) for change in changes
    ):
        sentences.append(
            "Exchanged designs and questions are priced with the code and files of today, the "
            "runs' own values with those of "
            "their time: a difference between them is part of these figures."
        )
    for model, seconds in _iterations(before, after).items():
        sentences += gap_text(
            label(model), *seconds, [term for term in terms if term.model == model]
        )
    return Comparison(
        *names_of(before, after),
        changes,
        answers,
        terms,
        moved.exchanges() if moved else (),
        tuple(sentences),
    )


def _changes(before: FinishedRun, after: FinishedRun) -> Iterator[Change]:
    one, two = before.settings, after.settings
    keys = (
        dict.fromkeys([*one, *two])
        if before.on_device is after.on_device
        else [key for key in one if key in two]
    )
    for key in keys:
        if not changes_no_result(key) and one.get(key) != two.get(key):
            yield Change(
                key,
                *((_lengths if key == LENGTHS else _shown)(each.get(key)) for each in (one, two)),
            )
    contents = before.manifest.contents, after.manifest.contents
    for name in dict.fromkeys([*contents[0], *contents[1]]):
        if contents[0].get(name) != contents[1].get(name) and one.get(name) == two.get(name):
            yield Change(f"{CONTENT} {name}", *(each.get(name, NOT_GIVEN) for each in contents))
    commits = before.manifest.git_commit, after.manifest.git_commit
    if commits[0] != commits[1]:
        yield Change(
            "code",
            *(
                (commit or "unknown").replace(commit[12:40] if commit else "", "")
                for commit in commits
            ),
        )
    versions = before.manifest.versions, after.manifest.versions
    for name in dict.fromkeys([*versions[0], *versions[1]]):
        if versions[0].get(name) != versions[1].get(name):
            yield Change(f"version of {name}", *(each.get(name, NOT_GIVEN) for each in versions))


def _shown(value: Any) -> str:
    if value is None:
        return "default"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _lengths(values: Any) -> str:
    """Tokens per sample of the models; of one whose samples are no sequences the setting is 1, and
    there is none to tell."""
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


def _terms(before: FinishedRun, after: FinishedRun) -> tuple[Term, ...]:
    """Terms of the models that both runs have."""
    one, two = before.result.best, after.result.best
    return () if one is None or two is None else terms_of(one, two)


def _iterations(before: FinishedRun, after: FinishedRun) -> dict[str, tuple[float, float]]:
    """Seconds of an iteration in both runs, of the models that both have."""
    one, two = _plans(before), _plans(after)
    return {
        model: (one[model].time_per_batch_s, two[model].time_per_batch_s)
        for model in one
        if model in two
    }


def _plans(run: FinishedRun) -> Mapping[str, PlanReport]:
    return run.result.best.models if run.result.best else {}


def _verdict(before: FinishedRun, after: FinishedRun) -> Iterator[str]:
    names, best = names_of(before, after), (before.result.best, after.result.best)
    for name, point in zip(names, best, strict=True):
        if point is None:
            yield f"In {name} nothing fits."
    if best[0] is None or best[1] is None:
        return
    one, two = best[0].value, best[1].value
    objective, other = best[0].objective, best[1].objective
    if before.on_device is not after.on_device:
        kinds = [
            "places a model on devices that exist" if run.on_device else "designs accelerators"
            for run in (before, after)
        ]
        yield (
            f"{names[0]} {kinds[0]}, {names[1]} {kinds[1]}: each keeps its own hardware, and "
            "only what they reach is compared."
        )
    if set(_plans(before)) != set(_plans(after)):
        models = [listed([label(model) for model in _plans(run)]) for run in (before, after)]
        yield (
            f"The runs are about different models, {models[0]} and {models[1]}, so their values "
            "do not compare."
        )
    elif unit_of(best[0]) != unit_of(best[1]) and objective is other:
        yield (
            f"The runs maximise different things, {unit_of(best[0])} and {unit_of(best[1])}, so "
            "their values do not compare."
        )
    elif objective is not other:
        goals = [each.value.replace("_", " ") for each in (objective, other)]
        yield (
            f"The runs maximise different things, {goals[0]} and {goals[1]}, so their values do "
            "not compare."
        )
    elif abs(two / one - 1) <= EQUAL:
        yield f"Both runs reach {number(two)} {unit_of(best[1])}."
    else:
        values = f"{number(two)} instead of {number(one)} {unit_of(best[1])}"
        gain = (
            f"{percent(two / one - 1)} less than"
            if two < one
            else f"{gained(two / one - 1)} {'than' if two < 2 * one else 'as'}"
        )
        yield f"{names[1]} reaches {gain} {names[0]}: {values}."


def _inputs(changes: Sequence[Change]) -> Iterator[str]:
    said = [
        f"{change.key.replace('_', ' ')}, from {change.before} to {change.after}"
        for change in changes
    ]
    yield (
        f"What differs between the runs: {'; '.join(said)}."
        if said
        else "Both runs asked the same, of the same code."
    )


def _designs(before: FinishedRun, after: FinishedRun, answers: Sequence[Change]) -> Iterator[str]:
    chips = [
        run.result.best.accelerator
        for run in (before, after)
        if run.result.best and run.result.best.accelerator
    ]
    if len(chips) == 2:
        one, two = map(accelerator_text, chips)
        yield (
            "The best accelerator "
            f"{f'stays the same, {one}' if one == two else f'changes from {one} to {two}'}."
        )
    for change in answers:
        if change.key.startswith("plan of ") and NOT_GIVEN not in {change.before, change.after}:
            yield f"The {change.key} changes from {change.before} to {change.after}."


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
