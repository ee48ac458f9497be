"""Two finished runs: what changed in their inputs, what in their answers, and why the answer moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from Common.choices import Objective
from Common.errors import PhazeError
from Common.progress import Progress, SilentProgress
from Common.units import GIB
from GraphExtractor.names import label
from Studies.explain.exchanges import ExchangedDesigns, exchanged_chips, exchanged_plans, names_of
from Studies.explain.plan_alternatives import terms_of_plans
from Studies.explain.plan_explanation import found_plan_words
from Studies.explain.reasons import gap_words, terms_of
from Studies.explain.records import Change, Comparison, Term
from Studies.file_contents import changes_no_answer
from Studies.finished_run import FinishedPlanSearch, FinishedRun, FinishedSearch
from Studies.limits.gains import gained
from Studies.words import EQUAL, UNITS, accelerator_words, listed, number, percent, plan_words

NOT_GIVEN = "-"
CONTENT = "content of"


def compare_runs(before: FinishedRun, after: FinishedRun, progress: Progress | None = None) -> Comparison:
    """Compare two runs. Where both are of one kind, the design of each is priced under the other's question too.

    What cannot be asked again, because files that a study names are gone, is left out and said.
    """
    changes = tuple(_changes(before, after))
    one, two = _answers(before), _answers(after)
    differing = [key for key in one | two if one.get(key) != two.get(key)]
    answers = tuple(Change(key, one.get(key, NOT_GIVEN), two.get(key, NOT_GIVEN)) for key in differing)
    terms = _terms(before, after)
    keys = [change.key for change in changes if change.key in {*before.settings, *after.settings}]
    exchanged, missing = _exchanged(before, after, keys, progress or SilentProgress()) if changes else (None, "")
    sentences = [*_verdict(before, after), *_inputs(changes), *_designs(before, after, answers)]
    sentences += exchanged.sentences() if exchanged else [missing] if missing else []
    if exchanged and any(change.key == "code" or change.key.startswith((CONTENT, "version of")) for change in changes):
        sentences.append(
            "Exchanged designs and questions are priced with the code and files of today, the runs' own values with those of "
            "their time: a difference between them is part of these figures."
        )
    for model, seconds in _iterations(before, after).items():
        sentences += gap_words(label(model), *seconds, [term for term in terms if term.model == model])
    return Comparison(
        *names_of(before, after), changes, answers, terms, exchanged.exchanges() if exchanged else (), tuple(sentences)
    )


def _changes(before: FinishedRun, after: FinishedRun) -> Iterator[Change]:
    one, two = before.settings, after.settings
    keys = dict.fromkeys([*one, *two]) if type(before) is type(after) else [key for key in one if key in two]
    for key in keys:
        if not changes_no_answer(key) and one.get(key) != two.get(key):
            yield Change(key, _shown(one.get(key)), _shown(two.get(key)))
    contents = before.manifest.contents, after.manifest.contents
    for name in dict.fromkeys([*contents[0], *contents[1]]):
        if contents[0].get(name) != contents[1].get(name) and one.get(name) == two.get(name):
            yield Change(f"{CONTENT} {name}", *(each.get(name, NOT_GIVEN) for each in contents))
    commits = before.manifest.git_commit, after.manifest.git_commit
    if commits[0] != commits[1]:
        yield Change("code", *((commit or "unknown").replace(commit[12:40] if commit else "", "") for commit in commits))
    versions = before.manifest.versions, after.manifest.versions
    for name in dict.fromkeys([*versions[0], *versions[1]]):
        if versions[0].get(name) != versions[1].get(name):
            yield Change(f"version of {name}", *(each.get(name, NOT_GIVEN) for each in versions))


def _shown(value: Any) -> str:
    if value is None:
        return "default"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _answers(run: FinishedRun) -> dict[str, str]:
    """Fields of the answer that a reader would compare."""
    if isinstance(run, FinishedPlanSearch):
        found = {"status": run.answer.status.value}
        for model, placed in run.answer.models.items():
            found |= {f"plan of {label(model)}": found_plan_words(placed)}
            found |= {f"samples/s of {label(model)}": number(placed.throughput_samples_per_s)}
        return found
    best = run.result.best
    found = {"status": run.result.status.value}
    if best is None:
        return found
    found["accelerator"] = accelerator_words(best.accelerator)
    found["area mm2"] = number(best.accelerator.area_mm2)
    found["HBM GiB"] = f"{best.hbm_bytes / GIB:g}"
    found[f"{best.objective.value.replace('_', ' ')}, {UNITS[best.objective]}"] = number(best.value)
    for model, plan in best.models.items():
        more = f"micro-batch {plan.micro_batch_size}, recomputation {plan.recompute}"
        found[f"plan of {label(model)}"] = f"{plan_words(plan)}, {more}"
        found[f"samples/s of {label(model)}"] = number(plan.throughput_samples_per_s)
    return found


def _terms(before: FinishedRun, after: FinishedRun) -> tuple[Term, ...]:
    """Terms of the models that both runs have."""
    if isinstance(before, FinishedSearch) and isinstance(after, FinishedSearch):
        one, two = before.result.best, after.result.best
        if one is None or two is None:
            return ()
        return terms_of(one, two)
    if isinstance(before, FinishedPlanSearch) and isinstance(after, FinishedPlanSearch):
        plans = before.answer.models, after.answer.models
        return tuple(
            term for model in plans[0] if model in plans[1] for term in terms_of_plans(model, plans[0][model], plans[1][model])
        )
    return ()


def _iterations(before: FinishedRun, after: FinishedRun) -> dict[str, tuple[float, float]]:
    """Seconds of an iteration in both runs, of the models that both have and whose iterations have the same terms."""
    if isinstance(before, FinishedSearch) != isinstance(after, FinishedSearch):
        return {}
    one, two = _plans(before), _plans(after)
    return {model: (one[model].time_per_batch_s, two[model].time_per_batch_s) for model in one if model in two}


def _plans(run: FinishedRun) -> Mapping[str, Any]:
    if isinstance(run, FinishedPlanSearch):
        return run.answer.models
    return run.result.best.models if run.result.best else {}


def _value(run: FinishedRun) -> float | None:
    if isinstance(run, FinishedPlanSearch):
        return run.answer.value
    return run.result.best.value if run.result.best else None


def _objective(run: FinishedRun) -> Objective:
    return Objective.THROUGHPUT if isinstance(run, FinishedPlanSearch) else Objective(run.settings["objective"])


def _verdict(before: FinishedRun, after: FinishedRun) -> Iterator[str]:
    one, two = _value(before), _value(after)
    names = names_of(before, after)
    if one is None or two is None:
        for name, value in zip(names, (one, two), strict=True):
            if value is None:
                yield f"In {name} nothing fits."
        return
    objective = _objective(before)
    if type(before) is not type(after):
        kinds = {FinishedSearch: "designs accelerators", FinishedPlanSearch: "places a model on devices that exist"}
        yield f"{names[0]} {kinds[type(before)]}, {names[1]} {kinds[type(after)]}: only what they reach can be compared."
    if set(_plans(before)) != set(_plans(after)):
        models = [listed([label(model) for model in _plans(run)]) for run in (before, after)]
        yield f"The runs are about different models, {models[0]} and {models[1]}, so their values do not compare."
    elif objective is not _objective(after):
        goals = [_objective(run).value.replace("_", " ") for run in (before, after)]
        yield f"The runs maximise different things, {goals[0]} and {goals[1]}, so their values do not compare."
    elif abs(two / one - 1) <= EQUAL:
        yield f"Both runs reach {number(two)} {UNITS[objective]}."
    else:
        values = f"{number(two)} instead of {number(one)} {UNITS[objective]}"
        gain = (
            f"{percent(two / one - 1)} less than" if two < one else f"{gained(two / one - 1)} {'than' if two < 2 * one else 'as'}"
        )
        yield f"{names[1]} reaches {gain} {names[0]}: {values}."


def _inputs(changes: Sequence[Change]) -> Iterator[str]:
    said = [f"{change.key.replace('_', ' ')}, from {change.before} to {change.after}" for change in changes]
    yield f"What differs between the runs: {'; '.join(said)}." if said else "Both runs asked the same, of the same code."


def _designs(before: FinishedRun, after: FinishedRun, answers: Sequence[Change]) -> Iterator[str]:
    keys = {change.key for change in answers}
    if isinstance(before, FinishedSearch) and isinstance(after, FinishedSearch):
        if before.result.best is None or after.result.best is None:
            return
        if "accelerator" in keys:
            chips = [accelerator_words(run.result.best.accelerator) for run in (before, after) if run.result.best]
            yield f"The best accelerator changes from {chips[0]} to {chips[1]}."
        else:
            yield f"The best accelerator stays the same, {accelerator_words(before.result.best.accelerator)}."
    for change in answers:
        if change.key.startswith("plan of ") and NOT_GIVEN not in {change.before, change.after}:
            yield f"The {change.key} changes from {change.before} to {change.after}."


def _exchanged(
    before: FinishedRun, after: FinishedRun, keys: Sequence[str], progress: Progress
) -> tuple[ExchangedDesigns | None, str]:
    """What moved, or what keeps it from being known."""
    try:
        if isinstance(before, FinishedSearch) and isinstance(after, FinishedSearch):
            return exchanged_chips(before, after, keys, progress), ""
        if isinstance(before, FinishedPlanSearch) and isinstance(after, FinishedPlanSearch):
            return exchanged_plans(before, after, keys, progress), ""
    except PhazeError as error:
        return None, f"Why the answer moved cannot be computed any more: {error}."
    return None, ""
