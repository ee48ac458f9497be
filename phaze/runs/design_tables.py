"""The tables that a run leaves: a row per design point, and a row per plan of the best hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import STANDARD, Accelerator, AcceleratorSet
from Estimator.chips.axes import COLUMNS, SIZES, VARIED
from Estimator.plans import axes
from Estimator.plans.assignment import Assignment
from Estimator.plans.axes import COMPARED, OF_SHAPES, PlanAxis
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.uniform_plans import UniformPlans
from phaze_common.choices import ExpertWidth, FrontAxis
from phaze_common.run_files import DESIGNS, PLANS
from Solver.designs.points import PointGroup, PointStatus
from Solver.hardware import DesignedChips, Hardware
from Solver.pareto import better_is_larger, nondominated
from Solver.plans.cut_levels import PlanStatus

if TYPE_CHECKING:
    import pandas as pd

IntArray = NDArray[np.int64]

LAYER_GROUPS = "layer_groups"  # where the groups lie that communicate within a layer: by tier, or
CONSECUTIVE = (
    "consecutive"  # on consecutive devices, tp innermost, whatever the order of the others
)
UNSTATED = ""  # in designs of before

SWITCHES = frozenset({"on_front", *(each.key for each in COMPARED if each.field.item is bool)})
TEXTS = frozenset(
    {"model", "status", LAYER_GROUPS}
    | {each.key for each in COMPARED if issubclass(each.field.item, StrEnum)}
)
OF_DESIGNS = (
    *("model", "hbm_bytes", *(each.key for each in OF_SHAPES), "status"),
    *(
        "throughput_samples_per_s",
        "time_per_batch_s",
        "throughput_bound_samples_per_s",
        "energy_per_sample_j",
        "memory_bytes",
    ),
    *("pp", "dp", "on_front"),
)
TOTAL_ENERGY = "total_energy_per_sample_j"  # of whole chips: with what they draw all the time
AXIS_COLUMNS: Mapping[FrontAxis, str] = {
    FrontAxis.THROUGHPUT: "throughput_samples_per_s",
    FrontAxis.AREA: "area_mm2",
    FrontAxis.ENERGY: "energy_per_sample_j",
    FrontAxis.POWER: "peak_w",
    FrontAxis.COST: "owning_usd",
    FrontAxis.CARBON: "embodied_kg",
}
# the objective where devices are bought, which throughput alone does not tell then
BOUGHT = ("value", "value_bound")
OF_PLANS = (
    *("model", "hbm_bytes", *(each.key for each in COMPARED)),
    *("status", "time_per_batch_s", "time_per_batch_bound_s"),
)


@dataclass(frozen=True)
class LackingColumn:
    """What a file of a run lacks to be one."""

    file: str
    what: str


def lacking_columns(
    designs: pd.DataFrame, plans: pd.DataFrame, models: frozenset[str], *, on_device: bool
) -> LackingColumn | None:
    """What the tables of a run lack that its readers rely on; ``models`` are those of the best
    design, if there is one."""
    of_chips = () if on_device else COLUMNS
    for file, table, names in (
        (DESIGNS, designs, (*OF_DESIGNS, *of_chips)),
        (PLANS, plans, OF_PLANS if models else ()),
    ):
        for name in (*names, *({LAYER_GROUPS} & set(table.columns))):
            if name not in table:
                return LackingColumn(file, f"it has no column {name}")
            kind = "texts" if name in TEXTS else "switches" if name in SWITCHES else "numbers"
            if _kind_of(table[name]) != kind:
                return LackingColumn(file, f"its column {name} does not hold {kind}")
        if models and not set(table["model"].unique()) <= models:
            return LackingColumn(
                file,
                f"it is about other models than {', '.join(sorted(models))}, which best.json holds",
            )
    return None


def with_later_axes(table: pd.DataFrame) -> pd.DataFrame:
    """A ``table`` of a run as it is written now: those of before do not name the width of experts,
    which was that of all else, and groups of shards, of which there was one."""
    later: dict[str, str | int] = {"etp": ExpertWidth.SAME.value, "shard_groups": 1}
    lacking = {name: later[name] for name in later if "model" in table and name not in table}
    return table.assign(**lacking) if lacking else table


def complete_designs(designs: pd.DataFrame) -> pd.DataFrame:
    """``designs`` as they are written now: those of before do not say where the groups of a layer
    lie."""
    return designs if LAYER_GROUPS in designs else designs.assign(**{LAYER_GROUPS: UNSTATED})


def _kind_of(column: pd.Series[Any]) -> str:
    from pandas.api import types

    if types.is_bool_dtype(column.dtype):
        return "switches"
    return "numbers" if types.is_numeric_dtype(column.dtype) else "texts"


def plan_of(point: Mapping[Any, Any]) -> UniformPlan:
    """The best plan of a design point, as far as its row tells it."""
    stated = {each.key: each.read(point[each.key]) for each in OF_SHAPES}
    layout = stated.pop("layout").axes
    return UniformPlan(**stated, layout=layout, pp=int(point["pp"]), dp=int(point["dp"]))


def chip_of(point: Mapping[Any, Any]) -> Accelerator:
    """The accelerator of a design point."""
    sizes: dict[str, Any] = {name: int(point[name]) for name in SIZES}
    varied = {name: point[name] for name in VARIED if name in point}
    # a number that is not there equals nothing
    stated = {name: value for name, value in varied.items() if value is not None and value == value}
    return Accelerator(**sizes, **stated, area_mm2=float(point["area_mm2"]))


def axis_column(designs: pd.DataFrame, axis: FrontAxis) -> str:
    """The column of ``designs`` that holds what they have of an axis of fronts."""
    return (
        TOTAL_ENERGY if axis is FrontAxis.ENERGY and TOTAL_ENERGY in designs else AXIS_COLUMNS[axis]
    )


def designs_table(
    groups: Sequence[PointGroup], hardware: Hardware, front: Sequence[FrontAxis]
) -> pd.DataFrame:
    """One row per design point, with its status, its best plan's degrees, and whether it is on the
    Pareto front of these axes."""
    import pandas as pd

    if not groups:
        return _no_designs(hardware)
    models = list(dict.fromkeys(group.key.model for group in groups))
    accelerators = hardware.accelerators if isinstance(hardware, DesignedChips) else None
    table = pd.concat(
        [_group_frame(group, accelerators, models) for group in groups], ignore_index=True
    )
    table["on_front"] = _on_front(table, front)
    return table


def _no_designs(hardware: Hardware) -> pd.DataFrame:
    """The same without rows."""
    import pandas as pd

    columns = (*OF_DESIGNS, LAYER_GROUPS, *(COLUMNS if isinstance(hardware, DesignedChips) else ()))
    texts = pd.CategoricalDtype([""])  # whose kind a file without rows tells too
    kinds = {
        name: texts if name in TEXTS else bool if name in SWITCHES else float for name in columns
    }
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})


def plans_table(group: PointGroup | None, row: int) -> pd.DataFrame:
    """One row per plan of all shapes of ``group`` on configuration ``row``: its fate, its bound and
    its best cut's seconds."""
    import pandas as pd

    frames = []
    for place in range(len(group.shapes) if group is not None else 0):
        assert group is not None
        for plans, found in group.solved(place * group.configurations + row):
            arrays, shape = plans.plans, plans.plans.shape
            frames.append(
                pd.DataFrame(
                    {
                        "model": group.key.model,
                        "hbm_bytes": group.key.memory_bytes,
                        **{each.key: each.of(shape) for each in OF_SHAPES},
                        **{each.key: column_of(arrays, each) for each in axes.OF_PLANS},
                        "status": [PlanStatus(code).name.lower() for code in found.status.tolist()],
                        "time_per_batch_s": np.where(
                            np.isfinite(found.plan_s), found.plan_s, np.nan
                        ),
                        "time_per_batch_bound_s": np.where(
                            np.isfinite(found.plan_bounds_s), found.plan_bounds_s, np.nan
                        ),
                    }
                )
            )
    if frames:
        return pd.concat(frames, ignore_index=True)
    return pd.DataFrame({"model": pd.Series(dtype=str)})


def column_of(plans: UniformPlans, axis: PlanAxis) -> Any:
    """The values of an axis of which ``plans`` have several, shape (plans,)."""
    return plans.order_names if axis.key == "group_order" else getattr(plans, axis.key)


def _group_frame(
    group: PointGroup, accelerators: AcceleratorSet | None, models: Sequence[str]
) -> pd.DataFrame:
    import pandas as pd

    def category(codes: IntArray, names: Sequence[str]) -> pd.Categorical[int]:
        return pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(list(names)))

    points = np.arange(len(group.status))
    rows, shape_of = group.rows(points), points // group.configurations
    evaluated = group.status == PointStatus.EVALUATED
    iteration_s = np.where(evaluated, group.iteration_s, np.nan)
    shapes = [shape.plan for shape in group.shapes]
    chip = {}
    if accelerators is not None:
        chip = {name: getattr(accelerators, name)[rows] for name in COLUMNS}
        if accelerators.variants != (STANDARD,):
            linked = any(variant.links is not None for variant in accelerators.variants)
            varied = [name for name in VARIED if linked or name != "links"]
            chip |= {name: np.array(getattr(accelerators, name))[rows] for name in varied}
        if group.metrics.memory_bytes is not None:
            throughput, owned = group.batch_samples / iteration_s, group.owned_devices
            chip |= {name: getattr(group.metrics, name) for name in ("peak_w", "embodied_kg")}
            chip["owning_usd"] = group.metrics.device_usd(owned)
            chip[TOTAL_ENERGY] = group.metrics.total_joules(group.energy_j, throughput, owned)
    placements = [
        str(plan.group_order) if isinstance(plan.group_order, Assignment) else CONSECUTIVE
        for plan in shapes
    ]

    def column(axis: PlanAxis) -> Any:
        values = [axis.of(plan) for plan in shapes]
        if not issubclass(axis.field.item, StrEnum):
            return np.array(values)[shape_of]
        names = [each.value for each in axis.field.item]
        names += sorted({*values} - {*names})  # such as modules that are recomputed
        return category(np.array([names.index(each) for each in values])[shape_of], names)

    frame = pd.DataFrame(
        {
            "model": category(np.full(len(points), models.index(group.key.model)), models),
            "hbm_bytes": group.key.memory_bytes,
            **{each.key: column(each) for each in OF_SHAPES},
            LAYER_GROUPS: np.array(placements)[shape_of],
            **chip,
            "status": category(
                group.status.astype(np.int64), [status.name.lower() for status in PointStatus]
            ),
            "throughput_samples_per_s": group.batch_samples / iteration_s,
            "time_per_batch_s": iteration_s,
            "throughput_bound_samples_per_s": group.fastest_bound,
            "energy_per_sample_j": group.energy_j
            if accelerators is not None
            else np.full(len(points), np.nan),
            "memory_bytes": np.where(evaluated, group.memory_bytes, np.nan),
            "pp": np.where(evaluated, group.pp, 0),
            "dp": np.where(evaluated, group.dp, 0),
            **dict(zip(BOUGHT, group.bought_values, strict=False)),
        }
    )
    return frame if not group.absent.any() else frame[~group.absent]


def _on_front(table: pd.DataFrame, front: Sequence[FrontAxis]) -> NDArray[np.bool_]:
    """The Pareto front of these axes per model, over all its micro-batch sizes and plans; nothing
    where there is no axis.

    Where chips bring their memory it is over all memory sizes, else per size.
    """
    on_front = np.zeros(len(table), dtype=bool)
    evaluated = (table["status"] == "evaluated").to_numpy()
    same = ["model"] if TOTAL_ENERGY in table else ["model", "hbm_bytes"]
    throughput, *others = (axis_column(table, axis) for axis in front) if front else ("",)
    for _, part in table[evaluated].groupby(same, observed=True) if front else ():
        values = better_is_larger(
            part[throughput].to_numpy(), *(part[name].to_numpy() for name in others)
        )
        on_front[part.index.to_numpy()[nondominated(values)]] = True
    return on_front
