"""Published tables in typed fields: every rule that reads prose is here or in what this calls, and
notes what it took."""

import re
from dataclasses import replace

from Estimator.devices.device import Device
from GraphExtractor.models.dimensions import parse_dimensions
from GraphExtractor.models.registry import find_model
from phaze.settings.graph_words import graphs_in
from phaze.validation.assumptions import Assumptions, Framework, Notes, first_found
from phaze.validation.exchange_words import dispatch_fp8_in, dispatcher_in, expert_overlap_in
from phaze.validation.network_description import GIGABIT, network_in
from phaze.validation.published_runs import PublishedRow
from phaze.validation.published_words import (
    attention_in,
    attention_kernel_in,
    blocking_launches_in,
    chunks_in,
    counts_cores,
    flag_in,
    fused_gradients_in,
    gradient_bytes_in,
    is_nothing,
    memory_in,
    offloaded_layers_in,
    offloads_all_kept,
    optimizer_in,
    precision_in,
    recompute_in,
    samples_per_s_in,
    scales_blocks,
    sharing_in,
    stated_stage_in,
    without_offloaded_layers,
    zero_stage_in,
)
from phaze.validation.run_hardware import device_of, tiers_of
from phaze.validation.run_model import check_experts, is_listed, spells_more
from phaze.validation.stages import fewest_chunks
from phaze.validation.typed_run import FlopsConvention, TypedRun
from phaze_common.choices import Attention, Precision
from phaze_common.errors import InputError

_MICRO_BATCHES = re.compile(
    r"\b(\d{1,4}) micro[- ]?batches\b|\bmicro[- ]?batch count (\d{1,4})\b", re.IGNORECASE
)
SIZES = ("layers", "hidden", "heads", "ffn", "sequence_length", "vocabulary")
MEBI = 2**20 / 1e6


def translated(
    row: PublishedRow, rules: Assumptions, notes: Notes, device: Device | None = None
) -> TypedRun:
    """A row in typed fields, with what its framework of its time did where it says nothing; on
    ``device``, or its own.

    Raises: InputError: its model is of no family, by its name, or it trains in a way that is not
        predicted.
    """
    if row.unclear:
        notes.assume("unclear", ", ".join(row.unclear))
    row = _of_chips(_as_its_script(row, rules, notes), notes)
    unread = without_offloaded_layers(row.overlap)
    text = "; ".join((row.model, row.notes, unread, row.recompute))
    other = first_found(rules.other_trainings, text)
    if other is not None:
        raise InputError(other.means)
    for words in rules.not_priced:
        if re.search(words.pattern, text, re.IGNORECASE):
            notes.assume("not_priced", words.means)
    run = _literal(row, rules, notes)
    framework = rules.framework_of(row, None if run.precision is None else run.precision.value)
    notes.assume(
        "framework", f"{framework.name} ({row.software or framework.software or 'as the device'})"
    )
    run = replace(run, software=run.software or framework.software)
    if device is None:
        try:
            device = device_of(run)
        except InputError:  # whoever prices the run says so
            device = None
    run = _on_network(run, row, rules, device, notes)
    run = with_defaults(run, framework, device, notes)
    run = _offloaded(run, row, notes, has_host=device is not None and device.host is not None)
    run = _counted(run, row, framework, rules)
    run = replace(
        run, global_batch_samples=_samples(row, run, notes), interleave=_interleave(row, run, notes)
    )
    run = _sharing(run, row, notes)
    return _timed_by_tokens(run, row, notes)


def _as_its_script(row: PublishedRow, rules: Assumptions, notes: Notes) -> PublishedRow:
    """The row with the plan of the script that its address names, where it says nothing."""
    plan = first_found(rules.published_plans, row.url)
    if plan is None or row.devices is None or row.global_batch or row.degrees.tp is not None:
        return row
    samples = plan.samples_per_device
    notes.assume("script", f"tp {plan.tp}, {samples} samples a device, {plan.recompute} recomputed")
    return replace(
        row,
        degrees=replace(row.degrees, tp=plan.tp, pp=1, cp=1, dp=row.devices // plan.tp),
        micro_batch_size=samples * plan.tp,
        global_batch=float(samples * row.devices),
        recompute=row.recompute or plan.recompute,
    )


def _of_chips(row: PublishedRow, notes: Notes) -> PublishedRow:
    """The row with the tensor parallel width in chips where it is said to count their cores."""
    tp, pp, dp = row.degrees.tp, row.degrees.pp, row.degrees.dp
    if not counts_cores(row.notes) or not (tp and pp and dp and row.devices):
        return row
    cores = tp * pp * dp * (row.degrees.cp or 1) // row.devices
    if cores < 2 or tp % cores:
        return row
    notes.assume("words", f"tp {tp} of cores is {tp // cores} of chips")
    return replace(row, degrees=replace(row.degrees, tp=tp // cores))


def _sharing(run: TypedRun, row: PublishedRow, notes: Notes) -> TypedRun:
    """With the groups of replicas that each hold all shards, where a run tells them."""
    devices, groups = sharing_in(f"{row.overlap}; {row.notes}")
    replicas = (run.degrees.dp or 0) * (run.degrees.cp or 1)
    if devices and replicas > devices and replicas % devices == 0:
        groups = replicas // devices
    if groups is None or groups == 1 or not run.zero_stage:
        return run
    notes.assume("words", f"sharded within each of {groups} groups of replicas")
    return replace(run, shard_groups=groups)


def _offloaded(run: TypedRun, row: PublishedRow, notes: Notes, *, has_host: bool) -> TypedRun:
    """With the part of activations whose layers are said to be kept in host memory."""
    if has_host and offloads_all_kept(row.recompute):
        notes.assume("words", "all that is kept for backward passes is in host memory")
        return replace(run, offloaded_activations=1.0)
    offloaded = offloaded_layers_in(row.overlap)
    layers = run.layers or (find_model(run.model).layers if is_listed(run.model) else None)
    if not offloaded or layers is None:
        return run
    part = round(min(offloaded / layers, 1.0), 4)
    notes.assume("words", f"activations of {part:.0%} of the layers are kept in host memory")
    return replace(run, offloaded_activations=part)


def with_defaults(
    run: TypedRun, framework: Framework, device: Device | None, notes: Notes
) -> TypedRun:
    """The run with what ``framework`` does where it says nothing."""
    precision = run.precision or _usual_precision(framework, device)
    usual = {
        "attention": Attention(framework.attention),
        "precision": precision,
        "gradient_bytes": framework.gradient_bytes.get(precision.kind.value),
        "moment_dtype": framework.moment_dtype,
        "main_weight_dtype": framework.main_weight_dtype,
        "memory_kind": framework.memory if run.memory_bytes else None,
        "fp8_weights": _holds_in_fp8(framework, precision, device),
        "sequence_parallel": framework.sequence_parallel,
        "zero_stage": framework.zero_stage,
        "overlap_gradients": framework.overlap_gradients,
        "overlap_tensor": framework.overlap_tensor,
    }
    filled = {
        name: value
        for name, value in usual.items()
        if getattr(run, name) is None and value is not None
    }
    if filled:
        usual_values = ", ".join(f"{name} {_text_of(value)}" for name, value in filled.items())
        notes.assume("defaults", f"{framework.name}: {usual_values}")
    return replace(run, **filled)  # type: ignore[arg-type]


def _holds_in_fp8(framework: Framework, precision: Precision, device: Device | None) -> bool | None:
    """True where weights of blocks are held in fp8 by default."""
    devices = framework.fp8_weights
    if not precision.reads_fp8 or devices is None or device is None:
        return None
    return True if re.fullmatch(devices, device.name) else None


def _text_of(value: object, yes: str = "on", no: str = "off") -> str:
    if isinstance(value, bool):
        return yes if value else no
    return str(value)


def _literal(row: PublishedRow, rules: Assumptions, notes: Notes) -> TypedRun:
    """What the row says, without defaults; words that are not literal are noted."""
    words: dict[str, tuple[str, object]] = {
        "recompute": (row.recompute, recompute_in(row.recompute)),
        "sequence_parallel": (row.sequence_parallel, flag_in(row.sequence_parallel)),
        "zero_stage": (row.zero, zero_stage_in(row.zero)),
        "precision": (row.precision, precision_in(row.precision)),
    }
    for name, (text, value) in words.items():
        if not is_nothing(text) and text != _text_of(value, "yes", "no"):
            notes.assume(
                "words",
                f"{name} {text[:40]!r} is {'not known' if value is None else _text_of(value)}",
            )
    if words["precision"][1] is None and not is_nothing(row.precision):
        known = ", ".join(each.value for each in Precision)
        raise InputError(
            f"its number format {row.precision[:40]!r} is none that is predicted ({known})"
        )
    if is_nothing(row.zero):
        stage = stated_stage_in(row.framework, row.notes, row.overlap)
        words["zero_stage"] = (row.zero, stage)
        if stage is not None:
            notes.assume("words", f"ZeRO stage {stage}, as framework or notes say")
    attention = attention_in(row.notes, row.source, row.framework)
    if attention is not None:
        notes.assume("words", f"attention is {attention}, as notes, source or framework say")
    unit, memory_kind = memory_in(row.notes)
    model = _named_model(row, rules, notes)
    listed, named = is_listed(model), None
    spelled = None if listed else parse_dimensions(model)
    if spelled is not None and model == row.model and not spelled.experts:
        spelled = None  # as its sizes are, which stand in columns too
    mixture = spelled is not None and spells_more(spelled)
    if not mixture and not (listed and _has_no_other_width(row, model)):
        named = first_found(rules.models, row.model)
    if named is not None and named.family is None:
        raise InputError(f"its model is {named.reason}")
    family = None if named is None else named.family
    sizes = {name: getattr(row, name) for name in SIZES}
    if listed and model != row.model:
        sizes["hidden"] = None  # it is that of the listed model
    elif spelled is not None and mixture:  # its name says them all
        length = row.sequence_length
        if length is None and not spelled.experts:
            length = spelled.sequence_length
        sizes = dict.fromkeys(SIZES) | {"sequence_length": length}
    elif spelled is not None:
        family = spelled.family
        stated = {name: value for name, value in sizes.items() if value is not None}
        sizes = {name: getattr(spelled, name) for name in SIZES} | stated
    return TypedRun(
        line=row.line,
        source=row.source,
        model=model if listed or mixture else row.model,
        family=family,
        parameters=None if row.parameters is None else float(round(row.parameters)),
        **sizes,
        kv_heads=None if spelled is None or mixture else spelled.kv_heads,
        device=row.gpu or None,
        devices=row.devices,
        cluster=row.cluster or None,
        software=row.software or None,
        year=rules.year_of(row),
        attention=attention,
        attention_kernel=attention_kernel_in(row.notes, row.source, row.framework),
        blocking_launches=blocking_launches_in(row.notes),
        fused_gradients=fused_gradients_in(row.notes),
        cuda_graphs=graphs_in(row.overlap, row.notes, row.framework),
        dispatcher=dispatcher_in(row.overlap, row.notes),
        dispatch_fp8=dispatch_fp8_in(row.overlap, row.notes),
        overlap_experts=expert_overlap_in(row.overlap, row.notes),
        expert_load=_expert_load(row, rules, notes) if row.degrees.ep else None,
        optimizer=optimizer_in(row.overlap, row.notes),
        gradient_bytes=gradient_bytes_in(f"{row.precision}; {row.notes}"),
        fp8_weights=False if scales_blocks(row.precision) else None,
        degrees=row.degrees,
        micro_batch_size=row.micro_batch_size,
        iteration_s=row.iteration_s,
        tflops_per_device=row.tflops_per_device,
        mfu=row.mfu,
        memory_bytes=None if row.memory_bytes is None else row.memory_bytes * unit,
        memory_kind=memory_kind,
        notes=row.notes,
        **{name: value for name, (_, value) in words.items()},  # type: ignore[arg-type]
    )


def _expert_load(row: PublishedRow, rules: Assumptions, notes: Notes) -> float | None:
    """What the busiest device with experts gets, over the mean, by what is said of routing."""
    found = first_found(rules.routing, "; ".join((row.overlap, row.notes, row.model, row.source)))
    if found is None:
        return None
    notes.assume("routing", f"{found.reason}: {found.load:g} times the mean")
    return found.load


def _named_model(row: PublishedRow, rules: Assumptions, notes: Notes) -> str:
    """The listed name, or the dimensions, of what the row calls its model; as it stands where it
    names none, or another's sizes.

    Raises:
        InputError: it is said to have other experts than the model of that name.
    """
    if is_listed(row.model):
        return row.model
    model = rules.published_name(row.model)
    if model is None:
        return row.model
    spelled = None if is_listed(model) else parse_dimensions(model)
    mixture = spelled if spelled is not None and spells_more(spelled) else None
    layers = row.layers if mixture is None else None  # of which there may be fewer
    check_experts(model, layers, row.experts, row.experts_per_token, row.expert_ffn)
    listed = is_listed(model) or mixture is not None
    if listed and not _has_no_other_width(row, model):
        return row.model
    if mixture is not None:
        model = replace(mixture, layers=row.layers or mixture.layers).name
    notes.assume("words", f"model {row.model[:40]!r} is {model}")
    return model


def _has_no_other_width(row: PublishedRow, listed: str) -> bool:
    """Whether a row leaves the sizes of a listed model as they are, but for its depth."""
    if row.layers is not None and row.hidden is not None and row.heads is not None:
        return False  # it spells its model out
    return row.hidden is None or row.hidden == getattr(find_model(listed), "hidden", None)


def _usual_precision(framework: Framework, device: Device | None) -> Precision:
    usual = (Precision(framework.precision), Precision.FP16, Precision.BF16)
    for each in usual:
        if device is None or each.matrix_format in device.matrix.peak:
            return each
    return Precision.FP32


def _on_network(
    run: TypedRun, row: PublishedRow, rules: Assumptions, device: Device | None, notes: Notes
) -> TypedRun:
    """The cluster that the network's words name, and what they say of its nodes and ports."""
    if row.cluster or device is None:
        return run
    named = first_found(rules.clusters, row.network, row.source)
    if named is not None:
        notes.assume("words", f"cluster {named.cluster}")
        run = replace(run, cluster=named.cluster)
        least = named.blocking_from
        if run.blocking_launches is None and least is not None and (run.devices or 0) >= least:
            notes.assume("words", "the host waits for every kernel, as runs of this size did there")
            run = replace(run, blocking_launches=True)
    words = network_in(row.network)
    tiers = tiers_of(run, device)
    if len(tiers) != 2:  # a torus has no nodes
        return run
    rate = None
    if words.node_gigabits_per_s is not None:
        rate = words.node_gigabits_per_s * GIGABIT / (words.devices_per_node or tiers[0].group_size)
    elif words.port_gigabits_per_s is not None:
        rate = min(tiers[1].bandwidth_bytes_per_s, words.port_gigabits_per_s * GIGABIT)
    if words.devices_per_node is not None or rate is not None:
        notes.assume("words", f"network {row.network[:60]!r}")
    return replace(run, devices_per_node=words.devices_per_node, node_bytes_per_s=rate)


def _length(run: TypedRun) -> int | None:
    if run.sequence_length or not is_listed(run.model):
        return run.sequence_length
    return find_model(run.model).sequence_length


def _timed_by_tokens(run: TypedRun, row: PublishedRow, notes: Notes) -> TypedRun:
    """The time of an iteration from the tokens that a device trains on in a second, or from the
    samples of all devices."""
    tokens, samples, length = row.tokens_per_s_per_device, run.global_batch_samples, _length(run)
    each_s = samples_per_s_in(row.notes)
    if run.iteration_s is None and run.tflops_per_device is None and samples and each_s:
        notes.assume("iteration_time", f"from {each_s:g} samples a second")
        return replace(run, iteration_s=samples / each_s)
    if run.iteration_s is not None or tokens is None or not (samples and length and run.devices):
        return run
    notes.assume("iteration_time", f"from {tokens:g} tokens a second and device")
    return replace(run, iteration_s=samples * length / (tokens * run.devices))


def _counted(
    run: TypedRun, row: PublishedRow, framework: Framework, rules: Assumptions
) -> TypedRun:
    if run.iteration_s is not None or (row.tflops_per_device is None and row.mfu is None):
        return run
    named = first_found(rules.conventions, row.tflops_convention)
    hardware = framework.counts_recomputation and row.tflops_per_device is not None
    usual = FlopsConvention.HARDWARE if hardware else FlopsConvention.MODEL
    return replace(run, flops_convention=usual if named is None else named.name)


def _samples(row: PublishedRow, run: TypedRun, notes: Notes) -> int | None:
    samples = row.global_batch
    if samples is None:
        return _accumulated(row, run, notes)
    if row.global_batch_in_tokens:
        length = _length(run)
        if not length:
            return None
        samples /= length
        if samples != round(samples) and (samples * MEBI).is_integer():  # 4M tokens are 2^22
            samples *= MEBI
    if samples != round(samples) or row.global_batch_in_tokens:
        notes.assume("batch", str(round(samples)))
    return max(round(samples), 1)


def _accumulated(row: PublishedRow, run: TypedRun, notes: Notes) -> int | None:
    """The batch of a run that tells its micro-batches, or is sharded fully, where one of each
    replica makes a step."""
    number = None
    if found := _MICRO_BATCHES.search(row.notes):
        number = int(found[1] or found[2])
    elif run.zero_stage == 3 and row.tokens_per_s_per_device:
        number = 1
    degrees = run.degrees
    dp = degrees.dp
    if dp is None and run.zero_stage == 3 and run.devices is not None:
        dp = run.devices // ((degrees.tp or 1) * (degrees.pp or 1) * (degrees.cp or 1))
    if number is None or run.micro_batch_size is None or not dp:
        return None
    samples = number * run.micro_batch_size * dp
    notes.assume("batch", f"{samples}, of {number} micro-batches")
    return samples


def _interleave(row: PublishedRow, run: TypedRun, notes: Notes) -> int | None:
    """Chunks per stage as stated; of an interleaved schedule without a number the fewest that are
    equally long."""
    stated = chunks_in(row.interleave)
    if stated is None or stated is not True:
        return stated
    layers = run.layers
    samples = run.global_batch_samples or row.global_batch
    pp = run.degrees.pp or 1
    if layers is None or pp == 1 or not samples:
        chunks = 1
    else:
        together = (run.micro_batch_size or 1) * (run.degrees.dp or 1)
        exists = row.global_batch_in_tokens or -(-int(samples) // together) % pp == 0
        chunks = fewest_chunks(layers, pp) if exists else 1
    notes.assume("interleave", f"{chunks}, of {row.interleave[:30]!r}")
    return chunks
