"""The training plan of a measured run; several plans where it does not say which, for one to be
chosen by their price."""

import math
from dataclasses import dataclass, replace

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.offload import Offload
from Estimator.plans.state_formats import StateFormats
from phaze.validation.assumptions import Assumptions, Notes
from phaze.validation.records import Assumption
from phaze.validation.stages import equal_chunks
from phaze.validation.typed_run import TypedRun
from phaze_common.choices import Attention, CudaGraphs, ExpertWidth, Optimizer, Precision
from phaze_common.errors import InputError
from phaze_common.recompute_modules import Recomputation

NEARLY = 0.1


@dataclass(frozen=True)
class PossiblePlan:
    """A plan that the run may have had, and what rules chose for it among several values, to be
    noted if it is taken."""

    plan: UniformPlan
    choices: tuple[Assumption, ...]


def possible_plans(
    run: TypedRun,
    degrees: UniformPlan,
    layers: int,
    modes: tuple[Recomputation, ...],
    rules: Assumptions,
    notes: Notes,
) -> tuple[PossiblePlan, ...]:
    """All plans that agree with what the run says, smallest micro-batch first, of each with least
    recomputation first.

    ``modes`` of recomputation are those that its framework has. The run says its attention,
    precision, ZeRO stage and sequence parallelism, or has them from its framework.

    Raises:
        InputError: it does not say its global batch.
    """
    if run.global_batch_samples is None:
        raise InputError("it does not say its global batch")
    samples, zero_stage = run.global_batch_samples, run.zero_stage or 0
    if zero_stage == 3 and degrees.pp > 1:
        notes.assume("zero", "1")
        zero_stage = 1
    base = replace(
        degrees,
        # Megatron-LM divides experts under tensor parallelism only so
        sequence_parallel=degrees.tp > 1
        and (bool(run.sequence_parallel) or degrees.expert_tp < degrees.tp),
        zero_stage=zero_stage,
        precision=run.precision or Precision.BF16,
        attention=run.attention or Attention.FLASH,
        optimizer=(run.optimizer or Optimizer.ADAM).value,
        overlap_gradients=run.overlap_gradients,
        overlap_tensor=run.overlap_tensor,
        dispatcher=run.dispatcher,
        dispatch_fp8=bool(run.dispatch_fp8),
        overlap_experts=run.overlap_experts,
        expert_load=run.expert_load or 1.0,
        cuda_graphs=run.cuda_graphs or CudaGraphs.NONE,
        interleave=(run.interleave or 1) if degrees.pp > 1 else 1,
        shard_groups=run.shard_groups or 1,
        state_formats=StateFormats(
            moment_dtype=run.moment_dtype,
            main_weight_dtype=run.main_weight_dtype,
            fp8_weights=bool(run.fp8_weights) and bool(run.precision and run.precision.reads_fp8),
        ),
        offload=Offload(activations=run.offloaded_activations or 0.0),
    )
    # embedding and head count as blocks where the blocks alone do not make equal chunks
    stage_layers = None
    if base.pp > 1:
        equal = equal_chunks(layers, base.chunks, ends_alone=base.interleave > 1)
        stage_layers = equal or None
    plans = []
    for size in _micro_batch_sizes(run, degrees, samples, rules):
        batch = _whole_micro_batches(samples, size * degrees.dp)
        sized = replace(
            base, micro_batch_size=size, global_batch_size=batch, stage_layers=stage_layers
        )
        for recompute in modes if run.recompute is None else (run.recompute,):
            choices = [
                (batch != samples, Assumption("batch", f"{batch}, of whole micro-batches")),
                (run.micro_batch_size is None, Assumption("micro_batch", str(size))),
                (run.interleave is None and degrees.pp > 1, Assumption("interleave", "1")),
                (run.recompute is None, Assumption("recompute", recompute.value)),
                (
                    bool(stage_layers),
                    Assumption("stages", f"{(layers + 2) // sized.chunks} layers per chunk"),
                ),
            ]
            plans.append(
                PossiblePlan(
                    replace(sized, recompute=recompute),
                    tuple(each for made, each in choices if made),
                )
            )
    return tuple(plans)


def degrees_of(run: TypedRun, notes: Notes) -> UniformPlan:
    """A plan with nothing but parallel degrees, which multiply to the number of devices; at most
    one of tp, pp and dp is filled in, as what is left.

    Raises:
        InputError: they are not known, or they do not.
    """
    stated = run.degrees
    known = {"tp": stated.tp, "pp": stated.pp, "dp": stated.dp, "cp": stated.cp}
    found = {name: value or 1 for name, value in known.items()}
    missing = [name for name in ("tp", "pp", "dp") if known[name] is None]
    if run.devices is not None and math.prod(found.values()) == run.devices and run.devices > 1:
        missing = []  # what is said is all of them
    devices = run.devices or (None if missing else math.prod(found.values()))
    if devices is None:
        raise InputError("it does not say on how many devices it ran")
    if len(missing) > 1 and "dp" in missing and run.zero_stage == 3:
        missing = ["dp"]
    if len(missing) == 1:
        found[missing[0]] = max(
            devices // math.prod(value for name, value in found.items() if name != missing[0]), 1
        )
    elif missing and found["dp"] != devices:
        raise InputError(f"it does not say {' and '.join(missing)}")
    if math.prod(found.values()) != devices:
        product = " x ".join(f"{name} {value}" for name, value in found.items())
        raise InputError(f"{product} are not the {devices} devices that it ran on")
    filled = [f"{name} {found[name]}" for name in ("tp", "pp", "dp") if known[name] is None]
    if filled:
        notes.assume("degrees", ", ".join(filled))
    experts, replicas = stated.ep or 1, found["dp"] * found["cp"]
    width = ExpertWidth.ONE if stated.etp == 1 and found["tp"] > 1 else ExpertWidth.SAME
    if stated.etp is None and replicas % experts and replicas * found["tp"] % experts == 0:
        width = ExpertWidth.ONE
        notes.assume("experts", "whole ones under tensor parallelism: ep does not divide dp x cp")
    return UniformPlan(**found, ep=experts, etp=width)  # type: ignore[arg-type]


def _whole_micro_batches(samples: int, together: int) -> int:
    """The batch nearest to ``samples`` in which every replica has whole micro-batches, ``together``
    sequences at a time.

    Where that is further off than a tenth, ``samples``: the last micro-batches are smaller then.
    """
    nearest = max(round(samples / together), 1) * together
    return nearest if abs(nearest - samples) <= NEARLY * samples else samples


def _micro_batch_sizes(
    run: TypedRun, degrees: UniformPlan, samples: int, rules: Assumptions
) -> tuple[int, ...]:
    if run.micro_batch_size is not None:
        return (run.micro_batch_size,)
    share = samples / degrees.dp
    return tuple(size for size in rules.micro_batch_sizes if share % size == 0) or (1,)
