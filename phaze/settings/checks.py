"""The checks of a request: one sentence each for what cannot be, before anything long is
started."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from Estimator.devices.architectures import check_runs
from Estimator.devices.device import Device
from Estimator.plans.assignment import AXES, Assignment, check_assignment
from Estimator.plans.axes import PLAN_AXES
from Estimator.plans.cuts import balanced_cuts
from Estimator.plans.offload import offload_of, offloads_searched
from Estimator.plans.plan import check_cluster, check_plan
from Estimator.plans.policy import check_formats
from GraphExtractor.graph import GraphKey
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.widths import check_key, divisors
from phaze.settings.folders import check_name, check_output, check_readable
from phaze.settings.layouts import OF_LAYOUTS, check_layouts, listed, second_axes
from phaze.settings.request import Request
from phaze_common.choices import (
    CudaGraphs,
    Dispatcher,
    ExpertOverlap,
    ExpertWidth,
    FrontAxis,
    LayoutName,
    OffloadKind,
    Precision,
    StageCuts,
)
from phaze_common.errors import InputError
from phaze_common.recompute_modules import RecomputedModules
from phaze_common.setting_fields import Mode
from Solver.chip_metrics import OF_WHOLE_CHIPS
from Solver.plans.empty_spaces import why_empty

OF_WHOLE_DIES = (FrontAxis.POWER, FrontAxis.COST, FrontAxis.CARBON)
DEGREES = tuple(each.key for each in PLAN_AXES if each.key in AXES)


def check_request(request: Request, families: Mapping[str, ModelFamily]) -> None:
    """Refuse what does not fit together. ``families`` are by name of model."""
    if request.output.name:
        check_name(request.output.name)
    if request.output.output is not None:
        check_output(request.output.output)
    check_readable(request.folders.run)
    if request.records.device is not None:
        _check_device(request.records.device, request)
    else:
        _check_designed(request)
    if request.plan.offload:
        _check_offload(request)
    _check_batch(request)
    _check_models(request, families)
    _check_degrees(request, families)
    _check_experts(request, families)
    check_layouts(request, families)
    if request.mode is Mode.SEARCH:
        for order in request.plan.group_order:
            if isinstance(order, Assignment):
                _check_searched(order, request)
    _check_plans(request, families)


def _check_device(device: Device, request: Request) -> None:
    plan, named = request.plan, request.hardware.attention_kernel is not None
    check_runs(
        device,
        plan.precision,
        plan.dispatcher,
        plan.cuda_graphs is not CudaGraphs.NONE,
        request.records.software.attention_kernel if named else None,
        dispatch_fp8=True in plan.dispatch_fp8,
    )


def _check_whole_chips(request: Request) -> None:
    """Refuse what is about whole dies where the space does not describe them."""
    space = request.records.space
    whole = space is not None and space.axes.memory is not None
    if not whole and request.search.objective in OF_WHOLE_CHIPS:
        raise InputError(
            f"the objective {request.search.objective} needs to know what chips cost, which takes "
            "memory as it is sold and a technology that describes whole dies; give --memory and "
            "--technology, as hbm2e:4 and foundry_7nm, or another objective"
        )
    unknown = [axis for axis in request.search.front or () if axis in OF_WHOLE_DIES]
    if not whole and unknown:
        raise InputError(
            f"a front of {' and '.join(unknown)} needs to know what chips draw and cost, which "
            "takes memory as it is sold and a technology that describes whole dies; give --memory "
            "and --technology, as hbm2e:4 and foundry_7nm, or leave "
            f"{'it' if len(unknown) == 1 else 'them'} out of --front"
        )
    if not whole and request.hardware.prices is not None:
        raise InputError(
            "prices are of whole dies with memory as it is sold; give --memory and --technology, "
            "as hbm2e:4 and foundry_7nm, or leave them out"
        )
    if whole and request.hardware.hbm_size:
        raise InputError(
            "hbm_size is given, but memory as it is sold says how much there is; leave hbm_size "
            "out, or give another memory, as hbm3e:4"
        )


def _check_designed(request: Request) -> None:
    _check_whole_chips(request)
    if request.hardware.space_part is not None:
        check_part(request)
    if True in request.plan.overlap_tensor:
        raise InputError(
            "overlap_tensor is true, but the operators of a designed accelerator already run "
            "beside its collectives wherever their schedule lets them; leave overlap_tensor out"
        )
    plan = request.plan
    listed = (each for value in vars(plan).values() if isinstance(value, tuple) for each in value)
    named = [each for each in listed if isinstance(each, RecomputedModules)]
    if named:
        raise InputError(
            f"recompute has {named[0]}, but a designed accelerator recomputes nothing, core "
            "attention or whole layers; give one of none, selective and full, or a device"
        )
    if {*plan.dispatcher} - {Dispatcher.ALLTOALL} or True in plan.dispatch_fp8:
        raise InputError(
            "a designed accelerator sends tokens to their experts by an all-to-all, as they are; "
            "leave dispatcher and dispatch_fp8 out, or give a device"
        )
    if {*plan.overlap_experts} - {ExpertOverlap.NONE}:
        raise InputError(
            f"overlap_experts is {', '.join(plan.overlap_experts)}, but nothing beyond a layer is "
            "scheduled beside the exchange of a designed accelerator; leave it out, or give a "
            "device"
        )
    if request.plan.precision not in (Precision.BF16, Precision.FP16):
        given = f"precision is {request.plan.precision}"
        raise InputError(
            f"{given}, but the cores of a designed accelerator compute in 16 bits; give bf16 or "
            "fp16"
        )


def check_part(request: Request) -> None:
    """Refuse what a space that is searched in parts does not answer.

    Raises:
        InputError: there is no such part, or what is asked of it takes the whole space at once.
    """
    assert request.hardware.part.count
    if request.hardware.chip is not None:
        raise InputError(
            f"the chip {request.hardware.chip} is given, which has no parts; leave --chip out, or "
            "the parts"
        )
    if request.search.front not in {None, (FrontAxis.NONE,)}:
        raise InputError(
            f"a front of {' and '.join(request.search.front or ())} is one over the whole space, "
            "whose parts know of each other's best design alone; leave --front out, or search the "
            "space in one part"
        )
    if len(request.workload.models) > 1:
        names = ", ".join(model.name for model in request.workload.models)
        raise InputError(
            f"a space is searched in parts for one model, given {names}; name one with --model, "
            "or leave parts out"
        )


def _check_offload(request: Request) -> None:
    terms = request.plan.offload or ()
    if request.mode is Mode.SEARCH:
        offloads_searched(terms)
    elif OffloadKind.AUTO in terms:
        raise InputError(
            "offload is auto, but one plan is priced; name what it keeps in host memory, as in "
            "--offload optimizer"
        )
    else:
        offload_of(terms)
    device = request.records.device
    if device is not None and device.host is None:
        raise InputError(
            f"the bandwidth between {device.title} and its host is not known, so nothing can be "
            "kept in host memory; leave offload out, or give a device whose file has 'host'"
        )


def _check_batch(request: Request) -> None:
    batch = request.plan.global_batch_size
    if request.mode is Mode.SEARCH:
        too_large = [size for size in request.plan.micro_batch_size if size > batch]
        if too_large:
            raise InputError(
                f"micro-batch size {too_large[0]} exceeds the global batch size {batch}; "
                f"lower --micro-batch-size or raise --global-batch-size"
            )
    dp, size = min(request.plan.dp or (1,)), min(request.plan.micro_batch_size)
    if dp * size > batch:
        raise InputError(
            f"dp {dp} replicas with micro-batches of {size} need a global batch of at least "
            f"{dp * size}, given {batch}; "
            f"raise --global-batch-size, or lower --dp or --micro-batch-size"
        )


def _check_models(request: Request, families: Mapping[str, ModelFamily]) -> None:
    most = request.records.cluster.num_devices
    too_wide = [width for width in request.plan.tp if width > most]
    if too_wide:
        raise InputError(
            f"tensor parallel width {too_wide[0]} exceeds the {most} devices of cluster "
            f"{request.records.cluster.name}; make it smaller or give a larger --cluster"
        )
    for model in request.workload.models:
        family = families[model.name]
        # see _check_experts
        degrees = (1,) if any(each.experts for each in families.values()) else request.plan.ep
        for key in _graph_keys(request, model.name, degrees):
            check_key(key, family)


def _graph_keys(request: Request, model: str, ep_degrees: tuple[int, ...]) -> Iterator[GraphKey]:
    """Keys with every value of each axis that decides a graph; one of a priced plan."""
    from phaze.settings.problem import single_plan

    length = request.sequence_length_of(model)
    if request.mode is Mode.EVALUATE:
        yield replace(single_plan(request).graph_key(model, length), ep=ep_degrees[0])
        return
    split, dtype = request.plan.sequence_parallel == (True,), request.plan.precision.graph_dtype
    stated = request.plan.cp if request.plan.layout == (LayoutName.ONE_D,) else (1,)
    axes = (
        [(tp, 1, 1) for tp in request.plan.tp]
        + [(1, cp, 1) for cp in stated]
        + [(1, 1, ep) for ep in ep_degrees]
    )
    for tp, cp, ep in axes:
        yield GraphKey(
            model,
            min(request.plan.micro_batch_size),
            length,
            tp,
            request.plan.attention,
            split and tp > 1,
            dtype,
            cp,
            ep,
        )


@dataclass(frozen=True)
class _Degrees:
    of: Mapping[str, int | None]  # by axis, None where any is possible

    @property
    def stated(self) -> int:
        """Devices of what is stated."""
        return math.prod(degree or 1 for degree in self.of.values())

    def fit(self, devices: int, *, all_used: bool) -> bool:
        """Whether some plan with them uses at most, or exactly, so many devices."""
        if not all_used:
            return self.stated <= devices
        return devices % self.stated == 0 if None in self.of.values() else devices == self.stated

    def most_replicas(self, devices: int) -> int:
        """The largest dp; others divide it where all devices are used."""
        return self.of["dp"] or devices // self.stated


def _check_degrees(request: Request, families: Mapping[str, ModelFamily]) -> None:
    devices, every = _devices(request), request.search.use_all_devices
    if any(degrees.fit(devices, all_used=every) for degrees in _combinations(request)):
        return
    axes = _values_of_axes(request)
    shown = " x ".join(
        f"{name} {listed(values)}" for name, values in axes.items() if values not in {None, (1,)}
    )
    least = min(degrees.stated for degrees in _combinations(request))
    cluster = request.records.cluster.name
    if every:
        problem = f"no plan with {shown} uses all {devices} devices of {cluster}"
    else:
        problem = f"{shown} needs {least} devices, {cluster} has {devices}"
    raise InputError(f"{problem}; {_that_would_fit(request, families, axes, devices)}")


def _that_would_fit(
    request: Request,
    families: Mapping[str, ModelFamily],
    axes: Mapping[str, tuple[int, ...] | None],
    devices: int,
) -> str:
    """Values of one degree or another that would do, all else as given."""
    every, remedies = request.search.use_all_devices, []
    for name, values in axes.items():
        if values in {None, (1,)}:
            continue
        others = [values or (1,) for each, values in axes.items() if each != name]
        rests = {math.prod(each) for each in product(*others)}
        if not every:
            most = max((devices // rest for rest in rests if rest <= devices), default=0)
            remedies += [f"{name} of at most {most}"] if most else []
            continue
        fitting = {devices // rest for rest in rests if devices % rest == 0}
        if axes["pp"] is None or axes["dp"] is None:
            fitting = {degree for most in fitting for degree in divisors(most)}
        fitting = {each for each in fitting if _suits_models(request, families, name, each)}
        remedies += [f"{name} {listed(sorted(fitting))}"] if fitting else []
    if not remedies:
        return f"give degrees whose product {'divides' if every else 'is at most'} {devices}"
    return f"possible with the rest as it is: {', or '.join(remedies)}"


def _suits_models(
    request: Request, families: Mapping[str, ModelFamily], name: str, degree: int
) -> bool:
    """Whether the models can be divided so, as far as that is known before they are traced."""
    if name == "pp":
        return all(not family.layers or degree <= family.layers + 2 for family in families.values())
    if name != "tp":
        return True
    try:
        for model, family in families.items():
            for key in _graph_keys(request.with_settings(tp=(degree,)), model, (1,)):
                check_key(key, family)
    except InputError:
        return False
    return True


def _check_experts(request: Request, families: Mapping[str, ModelFamily]) -> None:
    """Refuse expert parallel degrees that no plan can have: they divide dp x cp, and tp with whole
    experts."""
    experts = math.gcd(*(family.experts for family in families.values()))
    load, widest = request.plan.expert_load, max(request.plan.ep)
    if 1 < widest < load:
        raise InputError(
            f"expert_load is {load:g}, but where ep {widest} devices share the tokens the busiest "
            f"gets {widest} times the mean at most; lower it"
        )
    odd = [ep for ep in request.plan.ep if experts % ep]
    if 1 in request.plan.ep and not odd:
        return
    devices, every = _devices(request), request.search.use_all_devices
    groups = sorted(
        {
            (
                degrees.most_replicas(devices),
                degrees.of["cp"] or 1,
                (degrees.of["tp"] or 1) if etp is ExpertWidth.ONE else 1,
                degrees.of["dp"] is not None or (every and degrees.of["pp"] is not None),
            )
            for degrees in _combinations(request)
            if degrees.fit(devices, all_used=every)
            for etp in request.plan.etp
        }
    )
    if not odd and any(
        _divides(ep, *group, every=every) for ep in request.plan.ep for group in groups
    ):
        return
    would = [
        ep for ep in divisors(experts) if any(_divides(ep, *group, every=every) for group in groups)
    ]
    if odd:
        raise InputError(
            f"ep is {odd[0]}, which does not divide the {experts} experts; possible with the rest "
            f"as it is: ep {listed(would)}"
        )
    if len(groups) == 1 and groups[0][3]:
        dp, cp, tp, _ = groups[0]
        raise InputError(
            f"ep is {listed(request.plan.ep)}, which does not divide the "
            f"{f'tp {tp} x ' if tp > 1 else ''}dp {dp} x cp {cp} = {tp * dp * cp} devices that "
            f"could divide the experts among them; give a divisor of {tp * dp * cp}: "
            f"{listed(would)}"
        )
    of = "tp x dp x cp" if ExpertWidth.ONE in request.plan.etp else "dp x cp"
    raise InputError(
        f"ep is {listed(request.plan.ep)}, which divides {of} of no plan on {devices} devices; "
        f"possible with the rest as it is: ep {listed(would)}"
    )


def _check_searched(order: Assignment, request: Request) -> None:
    cluster = request.records.cluster
    check_assignment(order, {}, cluster)
    used, devices = math.prod(order.occupied), _devices(request)
    if request.search.use_all_devices and used != devices:
        raise InputError(
            f"{order} assigns {used} devices, but a plan is to use all {devices} of "
            f"{cluster.name}; assign as many, or give --devices {used}"
        )
    searched = _values_of_axes(request) | {"ep": request.plan.ep}
    for axis in (*AXES, "ep"):
        degree, values = math.prod(getattr(order, axis)), searched[axis]
        if values is not None and degree not in values:
            raise InputError(
                f"{order} assigns {degree} of {axis}, but {axis} {listed(values)} is searched; "
                f"assign one of these, or give --{axis} {degree}"
            )


def _divides(ep: int, most_replicas: int, cp: int, tp: int, fixed: bool, *, every: bool) -> bool:
    """Whether ``ep`` divides tp x dp x cp for some dp up to ``most_replicas`` (or ``fixed``)."""
    if (
        fixed or every
        # where pp is free and every device used, dp is any divisor of the most, which is the best
        # of
        # them
    ):
        return most_replicas * cp * tp % ep == 0
    return ep // math.gcd(ep, cp * tp) <= most_replicas


def _check_plans(request: Request, families: Mapping[str, ModelFamily]) -> None:
    """Refuse plans that contradict themselves, or the known layers of a model."""
    from phaze.settings.problem import plan_space, single_plan

    searched, cluster = request.mode is Mode.SEARCH, request.records.cluster
    if not searched:
        check_plan(single_plan(request))
        check_cluster(single_plan(request), cluster)
    check_formats(plan_space(request, request.workload.models[0].name).base)
    for model, family in families.items():
        # parts show in the graph
        if (
            not family.layers
            or len(family.blocks) != 1
            or request.plan.stage_cuts is StageCuts.INSIDE
        ):
            continue
        layers = family.layers + 2
        why = why_empty(plan_space(request, model), layers, cluster) if searched else ""
        if why:
            raise InputError(f"no plan of {model} is as asked: {why}")
        if not searched and request.plan.stage_layers is None:
            balanced_cuts(layers, single_plan(request).chunks)


def _combinations(request: Request) -> Iterator[_Degrees]:
    free = [axis for axis in DEGREES if axis not in OF_LAYOUTS]
    for second in second_axes(request):
        for degrees in product(*(_open(getattr(request.plan, axis)) for axis in free)):
            together = dict(zip(free, degrees, strict=True))
            yield _Degrees(together | dict(zip(OF_LAYOUTS, second, strict=True)))


def _values_of_axes(request: Request) -> dict[str, tuple[int, ...] | None]:
    """The degrees of every axis of devices, None where all that are possible are searched."""
    found = {axis: getattr(request.plan, axis) for axis in DEGREES}
    second = zip(*second_axes(request), strict=True)
    found |= zip(OF_LAYOUTS, (tuple(sorted({*values})) for values in second), strict=True)
    return found


def _devices(request: Request) -> int:
    return request.records.cluster.num_devices


def _open(values: tuple[int, ...] | None) -> Sequence[int | None]:
    return (None,) if values is None else values
