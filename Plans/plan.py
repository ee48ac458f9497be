"""A training plan: everything a framework must be told to train a model on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from Common.choices import Precision as Precision
from Common.errors import InputError
from Estimator.devices.device import Device
from Estimator.network.cluster import Cluster
from GraphExtractor.graph import Attention, GraphKey, Recompute
from Plans.pipeline.schedule import PipelineSchedule
from Solver.placement.problem import GroupOrder


def usual_precision(device: Device) -> Precision:
    """What a plan trains in unless it says otherwise: bf16, or fp16 on devices without it."""
    return Precision.BF16 if Precision.BF16.matrix_format in device.matrix.peak else Precision.FP16


@dataclass(frozen=True)
class TrainingPlan:
    """Degrees, batch, and what is recomputed, sharded and overlapped.

    ``interleave`` is the number of model chunks per pipeline stage (virtual stages). ``stage_layers`` are the layers of each
    chunk in model order, embedding and head counted; None balances the blocks as Megatron-LM does. ``overlap_gradients`` and
    ``overlap_tensor`` None leave it to the framework. ``ep`` of the dp · cp devices that hold the same parameters divide the
    experts among them.
    """

    micro_batch_size: int = 1
    global_batch_size: int = 1
    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    interleave: int = 1
    gpipe: bool = False
    recompute: Recompute = Recompute.NONE
    sequence_parallel: bool = False
    zero_stage: int = 0
    optimizer: str = "adam"
    precision: Precision = Precision.BF16
    attention: Attention = Attention.FLASH
    group_order: GroupOrder = GroupOrder.DATA_INNER
    stage_layers: tuple[int, ...] | None = None
    overlap_gradients: bool | None = None
    overlap_tensor: bool | None = None

    @property
    def devices(self) -> int:
        """Devices the plan occupies."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def chunks(self) -> int:
        """Model chunks of a pipeline."""
        return self.pp * self.interleave

    @property
    def micro_batches(self) -> int:
        """Micro-batches per pipeline; the last one of the most loaded pipeline counts as a whole one."""
        return -(-self.global_batch_size // (self.micro_batch_size * self.dp))

    @property
    def schedule(self) -> PipelineSchedule:
        """Order of the passes."""
        if self.gpipe:
            return PipelineSchedule.GPIPE
        return PipelineSchedule.INTERLEAVED if self.interleave > 1 else PipelineSchedule.ONE_F_ONE_B

    @property
    def stage_stride(self) -> int:
        """Devices between a device and its like in the next pipeline stage."""
        inner = self.tp * self.cp
        return inner * self.dp if self.group_order is GroupOrder.DATA_INNER else inner

    @property
    def replica_stride(self) -> int:
        """Devices between a device and its like in the next replica."""
        inner = self.tp * self.cp
        return inner if self.group_order is GroupOrder.DATA_INNER else inner * self.pp

    def graph_key(self, model: str, sequence_length: int) -> GraphKey:
        """The graph of one device of the plan's groups."""
        return GraphKey(
            model,
            self.micro_batch_size,
            sequence_length,
            self.tp,
            self.attention,
            self.sequence_parallel and self.tp > 1,
            self.precision.graph_dtype,
            self.cp,
            self.ep,
        )


def plan_mapping(plan: TrainingPlan) -> dict[str, Any]:
    """The plan by the keys of its settings, as plain values; a file of it is the same plan."""
    return {
        "tp": plan.tp,
        "pp": plan.pp,
        "dp": plan.dp,
        "cp": plan.cp,
        "ep": plan.ep,
        "micro_batch_size": plan.micro_batch_size,
        "global_batch_size": plan.global_batch_size,
        "interleave": plan.interleave,
        "schedule": plan.schedule.value,
        "stage_layers": None if plan.stage_layers is None else list(plan.stage_layers),
        "recompute": plan.recompute.value,
        "sequence_parallel": plan.sequence_parallel,
        "zero_stage": plan.zero_stage,
        "optimizer": plan.optimizer,
        "precision": plan.precision.value,
        "attention": plan.attention.value,
        "group_order": plan.group_order.value,
        "overlap_gradients": plan.overlap_gradients,
        "overlap_tensor": plan.overlap_tensor,
    }


def check_cluster(plan: TrainingPlan, cluster: Cluster) -> None:
    """Refuse plans that need more devices than there are.

    Raises:
        InputError: says how many there are.
    """
    if plan.devices > cluster.num_devices:
        given = f"the plan needs {plan.devices} devices, {cluster.name} has {cluster.num_devices}"
        raise InputError(f"{given}; use smaller degrees or a larger cluster")


def check_plan(plan: TrainingPlan) -> None:
    """Refuse plans that contradict themselves.

    Raises:
        InputError: says what was given and what is allowed.
    """
    for name in ("micro_batch_size", "global_batch_size", "tp", "pp", "dp", "cp", "ep", "interleave"):
        value = getattr(plan, name)
        if value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")
    if plan.dp * plan.cp % plan.ep:
        raise InputError(
            f"ep is {plan.ep}, which does not divide the dp {plan.dp} x cp {plan.cp} = {plan.dp * plan.cp} devices that could "
            f"divide the experts among them; give a divisor of {plan.dp * plan.cp}"
        )
    if plan.micro_batch_size * plan.dp > plan.global_batch_size:
        raise InputError(
            f"dp {plan.dp} replicas with micro-batches of {plan.micro_batch_size} need a global batch of at least "
            f"{plan.micro_batch_size * plan.dp}, given {plan.global_batch_size}; raise it or lower dp or the micro-batch size"
        )
    if plan.gpipe and plan.interleave > 1:
        raise InputError(f"GPipe runs one chunk per stage, given interleave {plan.interleave}; give 1, or leave GPipe out")
    if not 0 <= plan.zero_stage <= 3:
        raise InputError(f"zero_stage is {plan.zero_stage}; it must be 0, 1, 2 or 3")
    if plan.stage_layers is not None and (len(plan.stage_layers) != plan.chunks or min(plan.stage_layers) < 1):
        raise InputError(
            f"stage_layers has {len(plan.stage_layers)} entries {list(plan.stage_layers)}; give {plan.chunks} positive numbers, "
            f"one per pipeline stage{' and chunk' if plan.interleave > 1 else ''}"
        )
