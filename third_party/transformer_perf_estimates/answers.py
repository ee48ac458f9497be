"""Answers to cases as JSON objects with the keys transformer-perf-estimates uses."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .case_files import QUESTION, read_configuration, read_training
from .configurations import Configuration, Configurations, Strategy, Training
from .corrections import AS_PUBLISHED, CORRECTED, Correction, Corrections
from .estimates import Estimate, OperatorEstimate, estimate_at
from .search import best_of
from .spaces import space
from .totals import estimate

Answer = dict[str, Any]


def evaluated(case: Mapping[str, Any], folder: Path, as_published: bool) -> Answer:
    """The configuration of a case, priced; with what the published formulas say of it beside,
    unless they were asked for. Raises InputError: the case cannot be."""
    training = read_training(case, folder)
    configurations = Configurations.of([read_configuration(case, training)])

    def priced(corrections: Corrections) -> Estimate:
        return estimate_at(estimate(training, configurations, corrections), 0)

    answer = priced(AS_PUBLISHED if as_published else CORRECTED)
    layers = {"layers": [_layer(each) for each in answer.operators]}
    written = _question(case) | _outcome(training, answer) | layers
    if not as_published:
        published = priced(AS_PUBLISHED)
        alone = {str(each): _brief(priced(AS_PUBLISHED | {each})) for each in Correction}
        changed = {name: one for name, one in alone.items() if one != _brief(published)}
        written["as_published"] = _brief(published) | {"corrections": changed}
    return written


def searched(case: Mapping[str, Any], folder: Path, as_published: bool, top: int) -> Answer:
    """The best configurations of a case's space and how many there are; with the best of the
    published formulas beside. Raises InputError: the case cannot be, or its space is too large."""
    training = read_training(case, folder)
    configurations = space(training)
    found = best_of(
        estimate(training, configurations, AS_PUBLISHED if as_published else CORRECTED), top
    )
    best = [_outcome(training, estimate_at(found.estimates, int(place))) for place in found.best]
    counts = {"candidates": found.candidates, "feasible_candidates": found.feasible}
    nothing: Answer = dict.fromkeys(("config", "nv", "t", "mem", "stats"))
    written = _question(case) | counts | (best[0] if best else nothing)
    written["best"] = best
    if not as_published:
        published = estimate(training, configurations, AS_PUBLISHED)
        for each, place in zip(best, found.best, strict=True):
            each["as_published"] = _brief(estimate_at(published, int(place)))
        first = best_of(published, 1)
        written["as_published"] = {"feasible_candidates": first.feasible} | (
            _outcome(training, estimate_at(published, int(first.best[0])))
            if len(first.best)
            else nothing
        )
    return written


def compared(
    case: Mapping[str, Any],
    folder: Path,
    as_published: bool,
    micro_batch_sizes: Sequence[int],
    model: str | None,
    device: str | None,
) -> Answer:
    """A case under both physics; ``table`` are the lines for people. Raises InputError: the case
    cannot be, or nothing of ours stands for it."""
    # Our own search needs the rooms of the house, which the formulas of transformer-perf-estimates
    # do without.
    from .comparison import compare
    from .comparison_report import comparison_document, comparison_lines
    from .own_requests import OwnQuestion

    training = read_training(case, folder)
    question = OwnQuestion.of(training, model, device)
    comparison = compare(question, micro_batch_sizes, AS_PUBLISHED if as_published else CORRECTED)
    title = (
        f"{case.get('model_name', question.model)}, {training.strategy}: {training.gpus:,} x "
        f"{case.get('system_name', question.hardware.device)}, {training.nvlink_size} in a fast "
        f"domain, global batch {training.global_batch:,}"
    )
    table = {"table": comparison_lines(comparison, title)}
    return _question(case) | comparison_document(comparison) | table


def _question(case: Mapping[str, Any]) -> Answer:
    return {key: case[key] for key in QUESTION if key in case}


def _outcome(training: Training, answer: Estimate) -> Answer:
    one_d, two_d = (training.strategy is each for each in (Strategy.ONE_D, Strategy.TWO_D))
    return {
        "config": _config(answer.configuration, one_d, two_d),
        "nv": _shares(answer.configuration, one_d),
        "t": answer.seconds,
        "mem": answer.memory_gb,
        "feasible": answer.feasible,
        "stats": _stats(answer),
    }


def _brief(answer: Estimate) -> Answer:
    return {"t": answer.seconds, "mem": answer.memory_gb, "feasible": answer.feasible}


def _config(each: Configuration, one_d: bool, two_d: bool) -> Answer:
    split = {} if one_d else {"tp1": each.tp1, "tp2": each.tp2}
    return {"dp": each.dp, "tp": each.tp, **split, "pp": each.pp, "mbs": each.micro_batch} | (
        {"nb": each.panels} if two_d else {}
    )


def _shares(each: Configuration, one_d: bool) -> Answer:
    split = {"nv_tp": each.nv_tp1} if one_d else {"nv_tp1": each.nv_tp1, "nv_tp2": each.nv_tp2}
    return split | {"nv_dp": each.nv_dp, "nv_pp": each.nv_pp}


def _stats(each: Estimate) -> Answer:
    parts = {
        "comp": each.arithmetic_s,
        "tp_comm": each.tensor_parallel_s,
        "dp_comm": each.data_parallel_s,
        "pp_comm": each.pipeline_s,
        "bubble": each.bubble_s,
        "mem": each.exposed_memory_s,
    }
    return {
        "t": each.seconds,
        "flops_per_gpu": each.tflop,
        "mem": each.memory_gb,
        "t_comp": each.arithmetic_s,
        "t_mem": each.exposed_memory_s,
        "t_tp_comm": each.tensor_parallel_s,
        "t_dp_comm": each.data_parallel_s,
        "t_pp_comm": each.pipeline_s,
        "t_bubble": each.bubble_s,
        **{f"{name}_frac": seconds / each.seconds for name, seconds in parts.items()},
        "wts_mem": each.weights_gb,
        "wts_grad_mem": each.gradients_gb,
        "wts_optimizer_states_mem": each.optimizer_gb,
        "acts_mem": each.kept_gb,
    }


def _layer(each: OperatorEstimate) -> Answer:
    return {
        "name": each.name,
        "flops_fwd": each.forward_tflop,
        "flops_bwd": each.backward_tflop,
        "weights_mem": each.weights_gb,
        "activation_buffer": each.kept_gb,
        "t_fwd": each.forward_s,
        "t_bwd": each.backward_s,
        "t_fwd_comm": each.forward_messages_s,
        "t_bwd_comm": each.backward_messages_s,
    }
