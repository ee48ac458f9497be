"""Records of the software that runs on a device: a training framework with the libraries of its
year."""

from dataclasses import dataclass, field, replace
from typing import Annotated

from Estimator.network.contention import Contention
from Estimator.quantity import Quantity
from GraphExtractor.graph import Keeping
from phaze_common.choices import Dispatcher, ExpertOverlap, Precision

WEIGHT_BYTES = 2.0  # of a weight's gradient as a product makes it
NEWEST = 9999  # year of software whose libraries are those that devices state


@dataclass(frozen=True)
class AttentionKernel:
    """A kernel of fused attention: what it reaches ``forward`` and ``backward`` relative to
    FlashAttention-2 on the same device.

    Where a device says what the kernel of this ``name`` reaches there, that counts. ``widths`` are
    those of heads that it has kernels for, upwards; heads of another width are padded to the next
    (none: any width is its own).
    """

    name: str
    forward: Annotated[Quantity, "fraction"]
    backward: Annotated[Quantity, "fraction"]
    widths: tuple[int, ...] = ()

    def padding(self, width: int) -> float:
        """How many times as wide as ``width`` the heads are that it computes."""
        return min((each for each in self.widths if each >= width), default=width) / width


@dataclass(frozen=True)
class Composed:
    """A function that a framework makes of several ``kernels``, which move so many ``bytes`` per
    element together."""

    bytes: Annotated[Quantity, "bytes"]
    kernels: Annotated[Quantity, "count"]


@dataclass(frozen=True)
class GroupedProducts:
    """How the layers of experts, which have weights of their own, are run.

    In their products the part ``exposed`` of the shorter of arithmetic and traffic does not run
    beside the longer, on devices that do not say it themselves. The host needs ``issue`` for the
    product of each expert (None: one kernel runs those of all). Tokens are brought into the order
    of their experts and back at the part ``permutation`` of the memory bandwidth. In each pass a
    layer takes the host, beside the kernels of its operators, ``routing`` for what surrounds the
    router up to the counts of tokens, and ``dispatch`` for what follows up to their sum. In fewer
    than 16 bits each expert's product has ``scaling`` small kernels of its own, and wherever tokens
    are brought into order or back their rows are copied to be padded, ``padding`` bytes an element,
    unless a graph of the whole iteration replays kernels that work on all experts.
    """

    exposed: Annotated[Quantity, "fraction"]
    permutation: Annotated[Quantity, "fraction"]
    issue: Annotated[Quantity | None, "s"] = None
    routing: Annotated[Quantity | None, "s"] = None
    dispatch: Annotated[Quantity | None, "s"] = None
    scaling: Annotated[Quantity | None, "count"] = None
    padding: Annotated[Quantity | None, "bytes"] = None


@dataclass(frozen=True)
class Sharding:
    """What ZeRO stage 3 costs beyond its traffic.

    Of the gathers that there is time to hide ``hidden`` are; every gather copies so many bytes of
    each parameter within the device, from and to the buffers of the collective. Where they are not
    for all weights of a layer at once, it has so many ``collectives`` in a pass; where each is of a
    list of the devices' parts, the host issues a copy of every ``part`` while the device waits.
    Where at most ``live`` parameters may be whole, larger layers that are recomputed are gathered
    for that and for the backward pass.
    """

    hidden: Annotated[Quantity, "fraction"]
    copies: Annotated[Quantity, "bytes"]  # per parameter and gather
    collectives: Annotated[Quantity | None, "count"] = None  # None: one
    part: Annotated[Quantity | None, "s"] = None  # None: one tensor has all parts
    live: Annotated[Quantity | None, "count"] = None  # None: as many as fit


@dataclass(frozen=True)
class Software:
    """What a training framework does with a traced step on a device.

    ``host_issue_s`` is what the host needs to issue one kernel; ``fused_tails`` are the vector
    functions that the matrix library applies to a product's tiles for free, every other one is a
    kernel of its own. ``fused_softmax_multiple`` is the number that micro-batch x heads must divide
    for the one-kernel softmax of unfused attention, which skips what a causal mask hides if
    ``masked_softmax``; otherwise it is ``unfused_softmax_kernels``, which move
    ``unfused_softmax_bytes`` per score (``forward`` and ``backward``).

    ``year`` is that of its matrix library: on devices that were young then, products reached less
    (``Device.libraries``). ``attention`` is its kernel of fused attention. ``eager``: functions
    behind a product, a norm or attention that the compiler of a later framework would join are
    kernels of their own. In fp8, inputs of products and gradients are cast and transposed,
    ``quantisation`` bytes an element.
    """

    name: str
    host_issue: Annotated[Quantity, "s"]  # of one kernel, by the host
    fused_tails: tuple[str, ...]
    fused_softmax_multiple: Annotated[Quantity, "count"]
    unfused_softmax_kernels: Annotated[Quantity, "count"]
    unfused_softmax_bytes: Annotated[dict[str, Quantity], "bytes"]
    masked_softmax: bool
    gradient_bytes: Annotated[Quantity, "bytes"]  # per parameter in the data-parallel reduction
    # traffic per parameter of adding a micro-batch's gradient to those before it
    accumulation: Annotated[Quantity, "bytes"]
    reserved_memory: Annotated[Quantity, "bytes"]  # context, communication buffers
    overlap_gradients: bool  # whether gradients are sent beside the backward pass
    overlap_tensor: bool  # whether tensor-parallel communication runs beside products
    overlap_pipeline: bool  # of interleaved schedules; the others wait for their messages
    contention: Contention | None = None  # of what is overlapped; None: nothing is slowed down
    year: int = NEWEST
    attention: AttentionKernel | None = None
    eager: bool = False
    quantisation: Annotated[Quantity | None, "bytes"] = None  # None: nothing
    sharding: Sharding | None = None  # None: as its traffic
    grouped: GroupedProducts | None = None  # of experts; None: as one batched product
    # by precision, where another
    gradient_bytes_of: Annotated[dict[str, Quantity], "bytes"] = field(default_factory=dict)
    # weights are gathered from shards of the optimizer's own copy, and no others are kept
    gathers_main_weights: bool = False
    # under ZeRO-3 a weight is gathered, and its gradient reduced, by itself, not a layer at once
    gathers_by_weight: bool = False
    # of gradients kept beside those, per parameter; None: none
    second_gradient: Annotated[Quantity | None, "bytes"] = None
    # ZeRO-1 reduces whole gradients on every device, where others scatter them
    reduces_all: bool = False
    # where gradients are sent beside the backward pass, updated weights are so beside the first
    # forward pass
    gathers_beside: bool = True
    # functions made of several kernels, by name
    composed: dict[str, Composed] = field(default_factory=dict)
    # element-wise operators behind one another are one kernel, which makes again what lies between
    # them
    joins: bool = False
    joined_loss: bool = False  # the loss is one kernel, whatever else is ``eager``
    # of a logit, held at once by a loss that tensor-parallel devices divide beyond what it keeps;
    # None: as joined
    parallel_loss: Annotated[Quantity | None, "bytes"] = None
    loss_apart: bool = False  # each operator of the loss is a kernel, though others are joined
    # the gradient of the loss takes the place of its softmax: there is none in fp32 besides
    loss_in_place: bool = False
    # products that add to sums of gradients hand on empty tensors of the weights' shapes
    fused_gradients: bool = False
    # of ``reserved_memory``, what matrix libraries hold as tensors; None: nothing
    library_memory: Annotated[Quantity | None, "bytes"] = None
    # allocators add to activations and temporaries; None: nothing
    fragmentation: Annotated[Quantity | None, "fraction"] = None
    # of the host, while the device waits; None: nothing
    between_iterations: Annotated[Quantity | None, "s"] = None
    # once an iteration for every shard of ZeRO 1 or 2, whose gradients are reduced and weights sent
    # by themselves; None: all go together
    shard_issue: Annotated[Quantity | None, "s"] = None
    # interleaved schedules of only pp micro-batches run all forward passes first
    whole_warm_up: bool = False
    # around a ring each device has early and late tokens, so that a causal mask leaves all as much
    balanced_rings: bool = True
    blocks: bool = False  # the host waits for every kernel (CUDA_LAUNCH_BLOCKING=1)
    # of an operator then, whose kernels the host issues while the device waits; None: as one
    blocked_issue: Annotated[Quantity | None, "s"] = None
    dispatcher: Dispatcher = Dispatcher.ALLTOALL  # of tokens to experts
    overlap_experts: ExpertOverlap = ExpertOverlap.NONE  # what runs beside their exchange

    def keeping(self, *, in_fp8: bool) -> Keeping:
        """What it makes of the bytes that a traced step keeps, in fp8 if that is trained in."""
        spare = 0.0 if self.fragmentation is None else self.fragmentation.value
        one_by_one = self.loss_apart or (self.eager and not self.joined_loss)
        return Keeping(
            in_fp8,
            self.joins,
            one_by_one,
            self.loss_in_place,
            self.fused_gradients,
            spare,
            self.gathers_by_weight,
            0.0 if self.parallel_loss is None else self.parallel_loss.value,
        )

    @property
    def with_gradients_apart(self) -> "Software":
        """The same where weight gradients are added up by kernels of their own."""
        if not self.product_adds:
            return self
        width = self.gradient_bytes.value
        moved = replace(self.accumulation, value=2 * width + WEIGHT_BYTES)
        return replace(self, accumulation=moved, fused_gradients=False)

    @property
    def attention_kernel(self) -> str:
        """What its kernel of fused attention is called."""
        return "flash" if self.attention is None else self.attention.name

    def calling(self, kernel: AttentionKernel) -> "Software":
        """The same with another kernel of fused attention."""
        return replace(self, attention=kernel)

    @property
    def product_adds(self) -> bool:
        """Whether products of weight gradients add to those of earlier micro-batches themselves."""
        return self.accumulation.value == 0.0

    def gradient_bytes_in(self, precision: Precision) -> float:
        """Bytes of a parameter's gradient in the data-parallel reduction of a training in
        ``precision``."""
        return self.gradient_bytes_of.get(precision.kind.value, self.gradient_bytes).value
