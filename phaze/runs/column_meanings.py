"""What the columns of the tables mean that runs, sweeps and profiles leave; what a column counts
ends its name."""

from collections.abc import Mapping

from Estimator.chips.axes import CHIP_AXES
from Estimator.plans import axes

_MODEL: Mapping[str, str] = {"model": "as it was named", "hbm_bytes": "memory of a device"}
_NONE = "; 0 where there is no plan"
_SHAPES = {each.key: each.axis.help for each in axes.OF_SHAPES}
_PLANS = {each.key: each.axis.help for each in axes.OF_PLANS}
_CHIP: Mapping[str, str] = {
    **{each.key: each.help for each in CHIP_AXES},
    "area_mm2": "area of the chip, of all its dies",
}
OF_DESIGNS: Mapping[str, str] = {
    **_MODEL,
    **_SHAPES,
    **{key: _PLANS[key] + _NONE for key in ("pp", "dp")},
    "layer_groups": "where the groups lie that communicate within a layer: consecutive, or by tier",
    **_CHIP,
    "peak_w": "power with everything busy; of whole dies",
    "embodied_kg": "CO2 equivalents of making a device; of whole dies",
    "owning_usd": "what a device costs over its service; of whole dies",
    "total_energy_per_sample_j": "energy of a sample with what chips draw all the time; of whole "
    "dies",
    "status": "what became of the point: evaluated, dominated, pruned (by a bound) or infeasible",
    "throughput_samples_per_s": "of the best plan; nothing where the point was not evaluated",
    "time_per_batch_s": "seconds of an iteration of the best plan; nothing where the point was "
    "not evaluated",
    "throughput_bound_samples_per_s": "no plan of the point exceeds this",
    "energy_per_sample_j": "energy of the operators of a sample; nothing on devices that exist",
    "memory_bytes": "of a device of the fullest stage of the best plan",
    "value": "the objective, where devices are bought",
    "value_bound": "no plan of the point exceeds this objective, where devices are bought",
    "on_front": "whether the point is on the Pareto front of its model",
}
"""Columns of ``designs.parquet``, which has a row per design point."""
OF_PLANS: Mapping[str, str] = {
    **_MODEL,
    **_SHAPES,
    **_PLANS,
    "status": "what became of the plan",
    "time_per_batch_s": "seconds of an iteration with the best stages; nothing where they were "
    "not searched",
    "time_per_batch_bound_s": "no stages of the plan take less",
}
"""Columns of ``plans.parquet``, which has a row per plan of the best hardware."""
OF_SWEEPS: Mapping[str, str] = {
    "point": "number of the point, in the order of the sweep file",
    "status": "of the search: optimal, feasible, infeasible, timed_out or failed; impossible "
    "where settings exclude each other",
    "optimal": "whether the answer is proven",
    "objective_value": "the objective that the best design reaches",
    "objective_bound": "no design of the point exceeds this",
    **_CHIP,
    "hbm_gib": "memory of a device, GiB",
    "memory_share": "part of it that the fullest device uses",
    "objective_value_with_room": "what the best design reaches that leaves room, where the "
    "optimum leaves little",
    "throughput_samples_per_s": "of the best plan, where the point has one model",
    **{f"plan_{key}": says for key, says in (_SHAPES | _PLANS).items()},
    "time_per_batch_s": "seconds of an iteration of the best plan, where the point has one model",
    "time_per_batch_bound_s": "no plan takes less",
    "plan_micro_batches_per_pipeline": "micro-batches of a replica in an iteration",
    "devices_used": "devices that the plan uses",
    "memory_bytes": "of a device of the fullest stage",
    "model_flops_utilization": "MFU: model FLOPs, without scores that a causal mask leaves out, "
    "over the peak of the devices",
    "all_scores_flops_utilization": "the same counting all scores",
    "energy_per_sample_j": "energy of the operators of a sample; nothing on devices that exist",
    "speedup_over_expert": "over the published expert's plan on the same hardware, where there is "
    "one",
    "cluster_usd": "what the plan's devices cost, where devices are bought",
    "plans": "where points have several models: their plans, as JSON",
    "design_points": "size of the space of the point",
    "key": "hash of all that the point depends on, the name of its folder below points",
    "problem": "why there is no answer",
}
"""Columns of ``table.parquet`` of a sweep besides the swept settings, ``part_*_s`` and
``over_*``; a row per point."""
BY_PREFIX: Mapping[str, str] = {
    "part_": "seconds of a part of the iteration, as in `breakdown_s` of best.json",
    "over_": "how many times the objective of a known chip the best design reaches",
}
OF_TIMINGS: Mapping[str, str] = {
    "point": OF_SWEEPS["point"],
    "key": OF_SWEEPS["key"],
    "seconds": "that computing it took",
    "machine": "on which it was computed",
}
"""Columns of ``timings.parquet`` of a sweep."""
