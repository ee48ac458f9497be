"""A published row and a typed run that say everything, to be changed field by field."""

from dataclasses import replace
from typing import TypeVar

from phaze.validation.published_runs import PublishedRow
from phaze.validation.typed_run import StatedDegrees, TypedRun
from phaze_common.choices import Attention, Precision, Recompute

Run = TypeVar("Run", PublishedRow, TypedRun)

ROW = PublishedRow(
    line=2,
    source="a paper of 2021, Table 1",
    model="GPT 3.6B",
    parameters=3.6e9,
    layers=30,
    hidden=3072,
    heads=32,
    ffn=12288,
    sequence_length=2048,
    vocabulary=51200,
    gpu="A100-80GB-SXM",
    devices=64,
    degrees=StatedDegrees(tp=2, pp=1, dp=32, cp=1, ep=1),
    interleave="1",
    micro_batch_size=16,
    global_batch=512.0,
    global_batch_in_tokens=False,
    recompute="full",
    sequence_parallel="no",
    zero="0",
    precision="fp16",
    framework="Megatron-LM",
    network="",
    notes="",
    iteration_s=3.697,
    tflops_per_device=None,
    tflops_convention="",
    mfu=None,
    memory_bytes=None,
)


def row_with(**changes: object) -> PublishedRow:
    """The complete row with some fields changed."""
    return _changed(ROW, changes)


RUN = TypedRun(
    line=2,
    source="a paper of 2021, Table 1",
    model="GPT 3.6B",
    family="gpt",
    parameters=3.6e9,
    layers=30,
    hidden=3072,
    heads=32,
    ffn=12288,
    sequence_length=2048,
    vocabulary=51200,
    device="A100-80GB-SXM",
    devices=64,
    software="megatron_2021",
    attention=Attention.EAGER,
    precision=Precision.FP16,
    degrees=StatedDegrees(tp=2, pp=1, dp=32, cp=1, ep=1),
    interleave=1,
    micro_batch_size=16,
    global_batch_samples=512,
    recompute=Recompute.FULL,
    sequence_parallel=False,
    zero_stage=0,
    iteration_s=3.697,
)


def run_with(**changes: object) -> TypedRun:
    """The complete run with some fields changed."""
    return _changed(RUN, changes)


def _changed(run: Run, changes: dict[str, object]) -> Run:
    degrees = {name: changes.pop(name) for name in vars(run.degrees) if name in changes}
    return replace(run, degrees=replace(run.degrees, **degrees), **changes)  # type: ignore[arg-type]
