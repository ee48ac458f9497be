"""A line of a published table, in the words in which it was published."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedRow:
    """A published run: one line of the file. None and empty texts are what the line does not say.

    Words that decide something (``interleave``, ``recompute``, ``zero``, ``network``...) are kept
    as they are written; ``cluster`` and ``software`` name what ships. ``unclear`` lists the columns
    that hold words where a number belongs.
    """

    line: int
    source: str
    model: str
    parameters: float | None
    layers: int | None
    hidden: int | None
    heads: int | None
    ffn: int | None
    sequence_length: int | None
    vocabulary: int | None
    gpu: str
    devices: int | None
    tp: int | None
    pp: int | None
    dp: int | None
    cp: int | None
    ep: int | None
    interleave: str
    micro_batch_size: int | None
    global_batch: float | None
    global_batch_in_tokens: bool
    recompute: str
    sequence_parallel: str
    zero: str
    precision: str
    framework: str
    network: str
    notes: str
    iteration_s: float | None
    tflops_per_device: float | None
    tflops_convention: str
    mfu: float | None
    memory_bytes: float | None
    cluster: str = ""
    software: str = ""
    unclear: tuple[str, ...] = ()
    date: str = ""
    url: str = ""
    overlap: str = ""
    etp: int | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    expert_ffn: int | None = None
    tokens_per_s_per_device: float | None = None


@dataclass(frozen=True)
class RefusedRow:
    """A line that is no run, and the reason with its column; what it says of itself, as far as that
    could be read."""

    line: int
    source: str
    model: str
    reason: str
