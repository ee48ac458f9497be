"""What a user chooses among by name. Imports nothing, so that help texts can list the names at
once."""

from enum import StrEnum
from types import MappingProxyType


class Recompute(StrEnum):
    """Activation recomputation: of nothing, of core attention, or of the whole layer."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Attention(StrEnum):
    """Attention fused and tiled, or as products with the scores in memory."""

    FLASH = "flash"
    EAGER = "eager"


class StageCuts(StrEnum):
    """Where a model may be cut: between layers, or also where one tensor passes."""

    BETWEEN = "between"
    INSIDE = "inside"


class TensorLayout(StrEnum):
    """Tensor parallelism along one axis of devices (Megatron) or two (SUMMA)."""

    ONE_D = "1d"
    TWO_D = "2d"


class LayoutName(StrEnum):
    """Layouts of a transformer's layers as a user names them."""

    ONE_D = "1d"  # tensor parallelism along one axis, with sequence parallelism or not
    TWO_D = "2d"  # along two: tp columns times tp2 rows
    # sequences cut over cp devices with weights of their own, besides one tensor axis
    SEQUENCE = "sequence"
    AUTO = "auto"  # of a search: all of them

    @property
    def axes(self) -> TensorLayout:
        """The tensor axes of the layout."""
        return TensorLayout.TWO_D if self is LayoutName.TWO_D else TensorLayout.ONE_D


class KeyExchange(StrEnum):
    """How queries meet the keys and values of tokens on other devices.

    Keys and values are gathered before attention, passed around a ring while it runs (Liu et al.
    2023), or heads are exchanged for tokens before and behind it (DeepSpeed-Ulysses, Jacobs et al.
    2023).
    """

    GATHER = "gather"
    RING = "ring"
    ULYSSES = "ulysses"


class Dispatcher(StrEnum):
    """How tokens get to the devices of their experts and back.

    The plain ones send a copy for every expert that a token meets, or all tokens to all devices.
    DeepEP (DeepSeek-AI 2025) and HybridEP (NVIDIA 2025) send one to every node with such experts,
    which hands it on within.
    """

    ALLTOALL = "alltoall"
    ALLGATHER = "allgather"
    DEEPEP = "deepep"
    HYBRIDEP = "hybridep"

    @property
    def per_node(self) -> bool:
        """Whether a node gets a token once, however many of its experts this meets."""
        return self in (Dispatcher.DEEPEP, Dispatcher.HYBRIDEP)


class ExpertOverlap(StrEnum):
    """What runs beside the exchange of tokens with the devices of experts."""

    NONE = "none"
    SHARED = "shared"  # the experts that all tokens meet
    BATCHES = "batches"  # another micro-batch, of whose passes one goes the other way
    # the same, with products of weight gradients left for where there is nothing else to compute
    DELAYED = "delayed"

    @property
    def beside(self) -> str:
        """What hides it, in a sentence."""
        return {"none": "nothing", "shared": "shared experts"}.get(self.value) or (
            "another micro-batch" + ", weight gradients delayed" * (self is ExpertOverlap.DELAYED)
        )

    @property
    def of_batches(self) -> bool:
        """Whether it is another micro-batch."""
        return self in (ExpertOverlap.BATCHES, ExpertOverlap.DELAYED)


class ExpertWidth(StrEnum):
    """How many devices divide each expert: those of tensor parallelism, as all else, or none."""

    SAME = "same"
    ONE = "1"

    def of(self, tp: int) -> int:
        """Devices under a tensor parallel width."""
        return tp if self is ExpertWidth.SAME else 1


class Precision(StrEnum):
    """Number format of the matrix products; those of 8 and 4 bits are for products with weights,
    the rest of such a step runs in bf16 (``Estimator/devices/recipes.yaml``).

    In ``fp32`` everything is, weights and gradients too.
    """

    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"  # scaled as the framework does, by tensor
    FP32 = "fp32"
    FP8_CURRENT = "fp8_current"  # by tensor, of the tensor itself
    FP8_BLOCK = "fp8_block"  # by 128 numbers
    MXFP8 = "mxfp8"  # by 32 numbers
    NVFP4 = "nvfp4"  # in 4 bits, by 16 numbers

    @property
    def graph_dtype(self) -> str:
        """Format of the tensors between operators."""
        return {"fp16": "float16", "fp32": "float32"}.get(self.value, "bfloat16")

    @property
    def matrix_format(self) -> str:
        """Format of products with weights."""
        return _MATRIX_FORMATS[self.value]

    @property
    def is_reduced(self) -> bool:
        """Whether products with weights run in fewer than 16 bits."""
        return self.kind is Precision.FP8

    @property
    def reads_fp8(self) -> bool:
        """Whether products with weights can read them in fp8."""
        return self.is_reduced and self is not Precision.NVFP4

    @property
    def kind(self) -> "Precision":
        """The format without how numbers are scaled: fp8 for all of fewer than 16 bits, whose
        frameworks do the same with all else."""
        wide = (Precision.FP16, Precision.BF16, Precision.FP32)
        return self if self in wide else Precision.FP8


_MATRIX_FORMATS = MappingProxyType(
    {"fp16": "float16", "bf16": "bfloat16", "fp8": "float8", "fp32": "float32"}
    | {"fp8_current": "float8_current", "fp8_block": "float8_block"}
    | {"mxfp8": "mxfloat8", "nvfp4": "float4"}
)


class GroupOrder(StrEnum):
    """How groups nest over the devices, innermost (with the fastest links) first."""

    DATA_INNER = "tensor-data-pipeline"
    PIPELINE_INNER = "tensor-pipeline-data"
    # of a search: every way in which the axes can share out the tiers of the network
    TIERS = "tiers"

    @property
    def kind(self) -> str:
        """What sentences call it."""
        return "order"


class PipelineSchedule(StrEnum):
    """The order in which a stage runs its forward and backward passes."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"


class CudaGraphs(StrEnum):
    """Which kernels of a layer are replayed as CUDA graphs, which costs the host nothing."""

    NONE = "none"
    ATTENTION = "attn"
    ROUTER = "router"  # of experts, and what prepares the exchange of their tokens
    ATTENTION_ROUTER = "attn_router"
    LAYER = "layer"
    ITERATION = "iteration"  # with embedding and head


class Optimizer(StrEnum):
    """Optimizers whose bytes per parameter are known (``Estimator/plans/policies.yaml``)."""

    ADAM = "adam"
    SGD = "sgd"
    SGD_MOMENTUM = "sgd_momentum"
    MUON = "muon"


class StateDtype(StrEnum):
    """Number format of gradients or of the optimizer's own copy of the weights."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"

    @property
    def bytes(self) -> float:
        """Of one number."""
        return 4.0 if self is StateDtype.FP32 else 2.0


class MomentDtype(StrEnum):
    """Number format of the optimizer's moments."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"  # with a scale for each tensor, which counts as nothing

    @property
    def bytes(self) -> float:
        """Of one number."""
        return {MomentDtype.FP32: 4.0, MomentDtype.FP8: 1.0}.get(self, 2.0)


class Objective(StrEnum):
    """What the search maximises. Energy is that of the operators, per sample, and of whole chips
    what they draw all the time."""

    THROUGHPUT = "throughput"  # samples per second of the cluster
    THROUGHPUT_PER_AREA = "throughput_per_area"  # samples per second per mm2 of one chip
    THROUGHPUT_PER_JOULE = "throughput_per_joule"  # samples per joule
    # samples per dollar of what a cluster costs to own and to run
    THROUGHPUT_PER_DOLLAR = "throughput_per_dollar"
    COST_PER_TOKEN = "cost_per_token"  # the least; told as tokens per dollar
    # the least of what is embodied and emitted; told as tokens per kilogram
    CARBON_PER_TOKEN = "carbon_per_token"


class FrontAxis(StrEnum):
    """What a Pareto front may be of; all but throughput the less the better, and a front of nothing
    is none."""

    THROUGHPUT = "throughput"  # samples per second of the cluster, always among them
    AREA = "area"  # mm2 of one chip
    ENERGY = "energy"  # joules of a sample, with what is drawn all the time
    POWER = "power"  # watts of one chip with everything on it busy
    COST = "cost"  # US dollars of a device with its share of servers and network
    CARBON = "carbon"  # kilograms embodied in a device
    NONE = "none"  # alone: no front is asked for


class Combine(StrEnum):
    """What decides between designs for several models. A model's share is its objective over the
    best it reaches alone."""

    RELATIVE = "relative"  # the weighted geometric mean of the shares
    WORST = "worst"  # the least share
    # the mean of the shares: what a fleet gets done whose devices spend parts of their time on each
    TIME_SHARED = "time-shared"
    # the weighted mean of the objectives themselves, however different their sizes are
    MEAN = "mean"


class SolverName(StrEnum):
    """Who schedules operators in the search; an ILP solver confirms optima anyway."""

    NATIVE = "native"
    GUROBI = "gurobi"
    HIGHS = "highs"


class OffloadKind(StrEnum):
    """What a plan can keep in host memory."""

    OPTIMIZER = "optimizer"  # its state
    GRADIENTS = "gradients"
    WEIGHTS = "weights"
    ACTIVATIONS = "activations"  # saved for the backward pass
    AUTO = "auto"  # of a search: any of them
