"""A measured run in typed fields: one meaning each, with units, and None for what is not known."""

from dataclasses import dataclass
from enum import StrEnum

from phaze_common.choices import Attention, Precision, Recompute


class FlopsConvention(StrEnum):
    """What published FLOP/s and utilisations count."""

    HARDWARE = "hardware"  # with what is recomputed (Narayanan et al. SC'21, equation 3)
    MODEL = "model"  # without (Korthikanti et al. 2022, appendix A)
    MODEL_CAUSAL = "model_causal"  # and without the scores that a causal mask leaves out (Dao 2023)
    PARAMETERS = "parameters"  # 6 per parameter and token, no attention (Kaplan et al. 2020)


class MemoryFigure(StrEnum):
    """What a published figure of memory counts."""

    ALLOCATED = "allocated"  # by tensors (torch.cuda.max_memory_allocated)
    RESERVED = "reserved"  # held from the device, as its driver shows


@dataclass(frozen=True)
class TypedRun:
    """A measured run. The fields behind ``line`` are the columns of a typed file, in this order.

    ``model`` is a listed model, or any name beside ``layers`` and ``hidden``; ``family`` are the
    blocks that are traced. ``parameters`` and ``vocabulary`` are counts, ``sequence_length``
    tokens. ``node_bytes_per_s`` is what a device has of the network between nodes. ``year`` is that
    of the software, ``attention_kernel`` the name of its fused attention
    (``Estimator/hardware/attention``), ``blocking_launches`` whether its host waited for every
    kernel. ``gradient_bytes`` are those of a gradient as it is kept and reduced. ``etp`` is the
    tensor parallel width of experts, ``interleave`` are chunks per pipeline stage. ``iteration_s``
    is the measured time; without it follows from ``tflops_per_device`` or ``mfu`` (a fraction),
    counted by ``flops_convention``. ``memory_bytes`` are those of the fullest device, counted as
    ``memory_kind`` says (None: reserved). ``notes`` are for readers: nothing reads them.
    """

    line: int
    source: str
    model: str = ""
    family: str | None = None
    parameters: float | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    ffn: int | None = None
    sequence_length: int | None = None
    vocabulary: int | None = None
    device: str | None = None
    devices: int | None = None
    cluster: str | None = None
    devices_per_node: int | None = None
    node_bytes_per_s: float | None = None
    software: str | None = None
    year: int | None = None
    attention: Attention | None = None
    attention_kernel: str | None = None
    precision: Precision | None = None
    gradient_bytes: int | None = None
    overlap_gradients: bool | None = None
    overlap_tensor: bool | None = None
    blocking_launches: bool | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    cp: int | None = None
    ep: int | None = None
    etp: int | None = None
    interleave: int | None = None
    micro_batch_size: int | None = None
    global_batch_samples: int | None = None
    recompute: Recompute | None = None
    sequence_parallel: bool | None = None
    zero_stage: int | None = None
    iteration_s: float | None = None
    tflops_per_device: float | None = None
    mfu: float | None = None
    flops_convention: FlopsConvention | None = None
    memory_bytes: float | None = None
    memory_kind: MemoryFigure | None = None
    notes: str = ""
