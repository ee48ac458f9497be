"""The text of the recipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phaze.exports.launch import Launch
from phaze.exports.megatron_bridge.settings import Setting, model_settings, records
from phaze.exports.words import commented
from phaze_common.choices import Precision, StateDtype

FILE = "phaze_recipe.py"
FUNCTION = "phaze_plan"
WHY_COLUMN = 72  # where comments begin, where the setting leaves room
RECIPES = {
    Precision.BF16: "bf16_mixed",
    Precision.FP16: "fp16_mixed",
    Precision.FP8: "bf16_with_fp8_delayed_scaling_mixed",
}

_IMPORTS = """\
import torch
from megatron.bridge.models.gpt_provider import GPTModelProvider
from megatron.bridge.training.comm_overlap import CommOverlapConfig
from megatron.bridge.training.config import (
    CheckpointConfig,
    ConfigContainer,
    DistributedDataParallelConfig,
    DistributedInitConfig,
    GPTDatasetConfig,
    LoggerConfig,
    OptimizerConfig,
    RNGConfig,
    SchedulerConfig,
    TokenizerConfig,
    TrainingConfig,
)
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.mixed_precision import get_mixed_precision_config
from megatron.bridge.training.pretrain import pretrain
from megatron.core.transformer.enums import AttnBackend
"""


def recipe(launch: Launch) -> str:
    """A module whose function returns the configuration, and which trains by it when it is
    started."""
    degrees = launch.degrees
    head = [
        '"""A plan of Phaze for Megatron Bridge (0.3.1 and later).',
        "",
        commented(
            f"{launch.plan.model} on {degrees.devices} x {launch.device}, cluster {launch.cluster}."
        ),
    ]
    if launch.iteration_s is not None:
        head.append(f"Predicted: {launch.iteration_s:.4g} s an iteration.")
    if launch.memory_bytes is not None:
        head.append(f"Predicted: {launch.memory_bytes / 2**30:.4g} GiB on the fullest device.")
    head += [
        "",
        f"Start it with torchrun --nnodes {launch.nodes} --nproc-per-node "
        f"{launch.processes_per_node} {FILE}, on every node with",
        "its own --node-rank and the same --master-addr; data is made up until dataset and "
        "tokenizer are changed.",
        '"""',
        "",
        "import os\n",
        _IMPORTS,
        "",
        f"def {FUNCTION}() -> ConfigContainer:",
        '    """Return the configuration of the plan."""',
        "    model = GPTModelProvider(",
        *_lines(model_settings(launch), "        "),
        "    )",
        *_precision(launch),
        "    return ConfigContainer(",
        "        model=model,",
        *_records(launch),
        "        mixed_precision=precision,",
        "    )",
        "",
        "",
        'if __name__ == "__main__":',
        *_connections(launch),
        f"    pretrain(config={FUNCTION}(), forward_step_func=forward_step)",
        "",
    ]
    return "\n".join(head)


def _connections(launch: Launch) -> Iterator[str]:
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    if launch.degrees.zero_stage > 1:
        yield (
            f'    os.environ.pop("{name}", None)  # Megatron-FSDP refuses 1: its gathers run '
            "beside computation"
        )
    elif launch.degrees.tp > 1 or launch.degrees.cp > 1:
        yield (
            f'    os.environ["{name}"] = "1"  # tp and cp need it before Blackwell: kernels '
            "keep their order"
        )


def _precision(launch: Launch) -> Iterator[str]:
    precision = launch.plan.precision
    if precision is Precision.FP32:
        yield "    precision = None  # fp32: weights, gradients and all products"
        return
    yield (
        f'    precision = get_mixed_precision_config("{RECIPES[precision]}")  # the plan\'s '
        f"precision {precision.value}"
    )
    formats = launch.degrees.state_formats
    if precision is Precision.FP8:
        how = "fp8" if formats.fp8_weights else "bf16"
        yield (
            f"    precision.fp8_param_gather = {formats.fp8_weights}  # priced so: weights are "
            f"kept and gathered in {how}"
        )
    if formats.gradient_dtype is not None:
        whole = formats.gradient_dtype is StateDtype.FP32
        yield (
            f"    precision.grad_reduce_in_fp32 = {whole}  # the plan adds up gradients in "
            f"{formats.gradient_dtype}"
        )


def _records(launch: Launch) -> Iterator[str]:
    for record in records(launch):
        yield f"        {record.field}={record.kind}("
        yield from _lines(record.settings, "            ")
        yield "        ),"


def _lines(settings: Iterable[Setting], indent: str) -> Iterator[str]:
    for setting in settings:
        yield f"{indent}{setting.key}={setting.value},".ljust(WHY_COLUMN - 1) + f" # {setting.why}"
