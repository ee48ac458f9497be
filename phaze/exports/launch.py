"""What is exported: a plan with what surrounds it, the files that launch it, and what of it no file
can say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.plan import Plan
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.rates import Machine
from Estimator.plans.results import PipelineReport
from phaze.exports.shape import DecoderShape, decoder_shape
from phaze_common.choices import Dispatcher, ExpertOverlap


@dataclass(frozen=True, eq=False)
class Launch:
    """A plan to be launched. ``degrees`` is it by its degrees, ``layers`` are the names of the
    model's in execution order.

    ``device`` and ``cluster`` are those that it was made for, in words; ``overlap_gradients``,
    ``overlap_tensor``, ``dispatcher`` and ``overlap_experts`` are as its framework does them where
    the plan leaves it to that. ``iteration_s`` and ``memory_bytes`` are predicted, of the fullest
    stage. Programs that run iterations ask for what it is made of: the ``pipeline`` of its passes
    and the ``priced`` plan.
    """

    plan: Plan
    degrees: UniformPlan
    layers: tuple[str, ...]
    device: str
    cluster: str
    devices_per_node: int
    overlap_gradients: bool
    overlap_tensor: bool
    dispatcher: Dispatcher = Dispatcher.ALLTOALL
    overlap_experts: ExpertOverlap = ExpertOverlap.NONE
    iteration_s: float | None = None
    memory_bytes: float | None = None
    pipeline: PipelineReport | None = None
    priced: PricedPlan | None = None

    @property
    def nodes(self) -> int:
        """Nodes that the plan occupies."""
        return -(-self.degrees.devices // self.devices_per_node)

    @property
    def processes_per_node(self) -> int:
        """Devices of a node that it uses; of the last one, too, unless there is only one."""
        return min(self.degrees.devices, self.devices_per_node)

    @property
    def machine(self) -> Machine | None:
        """What runs the plan; None where it was not priced."""
        return None if self.priced is None else self.priced.machine

    @property
    def attention_kernel(self) -> str:
        """The kernel of fused attention that it was priced with; empty where none is known."""
        return "" if self.machine is None else self.machine.software.attention_kernel

    @property
    def predictions(self) -> tuple[str, ...]:
        """What is predicted of it, in sentences."""
        seconds, memory = self.iteration_s, self.memory_bytes
        time = f"Predicted: {seconds:.4g} s an iteration." if seconds is not None else ""
        held = f"{memory / 2**30:.4g} GiB on the fullest device" if memory is not None else ""
        return tuple(filter(None, (time, held and f"Predicted: {held}.", self.routed)))

    @property
    def routed(self) -> str:
        """How experts are loaded in what is predicted, in a sentence; empty where alike."""
        load = self.degrees.expert_load
        if self.degrees.ep == 1 or load == 1.0:
            return ""
        return f"Predicted with {load:g} times the mean of tokens for the busiest experts."

    @cached_property
    def shape(self) -> DecoderShape | None:
        """The model as launchers are told it; None where it is no decoder of blocks alike."""
        return decoder_shape(self.plan.model)

    @cached_property
    def blocks_of_chunks(self) -> tuple[int, ...]:
        """Repeated blocks in every chunk of the pipeline, in model order, without embedding and
        head."""
        ends = {self.layers[0], self.layers[-1]} if len(self.layers) > 1 else set[str]()
        return tuple(sum(layer not in ends for layer in chunk.layers) for chunk in self.plan.stages)


@dataclass(frozen=True)
class ExportedFile:
    """One file by its path in the folder of an export."""

    path: str
    content: str | bytes
    executable: bool = False


@dataclass(frozen=True)
class UnsupportedPlan:
    """What a program cannot be told, in a sentence, and the settings (flags of ``evaluate``) of the
    nearest plan that it can."""

    what: str
    nearest: tuple[tuple[str, object], ...] = ()


Refusal = Callable[[Launch], Iterator[UnsupportedPlan]]


def unsupported(what: str, **nearest: object) -> UnsupportedPlan:
    """``what`` cannot be told; the nearest plan that can has these settings."""
    return UnsupportedPlan(what, tuple(nearest.items()))


@dataclass(frozen=True)
class Exporter:
    """A program that a plan can be written out for, by pure functions of a launch.

    ``refusals`` yield what it cannot be told, in this order. ``files`` are those of a launch that
    it can be told; every choice in them has a comment that says why. ``node_script`` is the one
    that starts a node, empty where none does.
    """

    name: str
    title: str
    refusals: tuple[Refusal, ...]
    files: Callable[[Launch], tuple[ExportedFile, ...]]
    node_script: str = ""

    def unsupported(self, launch: Launch) -> UnsupportedPlan | None:
        """What of ``launch`` the program cannot be told, the first of it; None where all can be."""
        if launch.degrees.sites > 1:
            return unsupported("it starts one site, not several with an outer step", sites=1)
        return next((found for refusal in self.refusals for found in refusal(launch)), None)
