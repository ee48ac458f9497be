"""Megatron Bridge: a recipe, a Python module with a function that returns the ``ConfigContainer``
of a plan.

Names are those of megatron-bridge 0.3.1 (bridge/training/config.py, bridge/models/gpt_provider.py),
which trains with Megatron-Core 0.16; so it can be told what Megatron-LM can, but for rank orders,
which it has only without experts and contexts.
"""

from __future__ import annotations

from collections.abc import Iterator

from phaze.exports.launch import ExportedFile, Exporter, Launch, unsupported
from phaze.exports.megatron_lm.arguments import CONNECTIONS, device_connections
from phaze.exports.megatron_lm.limits import CHECKS, pipeline_inner
from phaze.exports.nemo.settings import model_settings, records
from phaze.exports.options import keywords
from phaze.exports.refusals import Refusals
from phaze.exports.words import commented
from phaze_common.choices import GroupOrder, Precision, StateDtype

FILE = "phaze_recipe.py"
FUNCTION = "phaze_plan"
WHY_COLUMN = 72  # where comments begin, where the setting leaves room
RECIPES = {
    Precision.BF16: "bf16_mixed",
    Precision.FP16: "fp16_mixed",
    Precision.FP8: "bf16_with_fp8_delayed_scaling_mixed",
    Precision.FP8_CURRENT: "bf16_with_fp8_current_scaling_mixed",
    Precision.FP8_BLOCK: "bf16_with_fp8_subchannel_scaling_mixed",
    Precision.MXFP8: "bf16_with_mxfp8_mixed",
    Precision.NVFP4: "bf16_with_nvfp4_mixed",
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


def _order(launch: Launch) -> Refusals:
    if pipeline_inner(launch) and launch.degrees.cp > 1:
        yield unsupported(
            "its rank order with the pipeline inside the replicas is not for context or "
            "expert parallelism",
            group_order=GroupOrder.DATA_INNER.value,
        )


def files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``phaze_recipe.py``."""
    return (ExportedFile(FILE, recipe(launch)),)


def recipe(launch: Launch) -> str:
    """A module whose function returns the configuration, and which trains by it when it is
    started."""
    degrees, model = launch.degrees, launch.plan.model
    predicted = "".join(f"{sentence}\n" for sentence in launch.predictions)
    where = commented(f"{model} on {degrees.devices} x {launch.device}, cluster {launch.cluster}.")
    others = "\n".join(
        f"        {record.field}={record.kind}(\n"
        f"{keywords(record.settings, ' ' * 12, WHY_COLUMN)}\n        ),"
        for record in records(launch)
    )
    body = [
        "    model = GPTModelProvider(",
        keywords(model_settings(launch), " " * 8, WHY_COLUMN),
        "    )",
        *_precision(launch),
        "    return ConfigContainer(",
        "        model=model,",
        others,
        "        mixed_precision=precision,",
        "    )",
        "",
        "",
        'if __name__ == "__main__":',
        *_connections(launch),
    ]
    listed = "\n".join(body)
    return f'''\
"""A plan of Phaze for Megatron Bridge (0.3.1 and later).

{where}
{predicted}
Start it with torchrun --nnodes {launch.nodes} --nproc-per-node {launch.processes_per_node} \
{FILE}, on every node with
its own --node-rank and the same --master-addr; data is made up until dataset and tokenizer are \
changed.
"""

import os

{_IMPORTS}

def {FUNCTION}() -> ConfigContainer:
    """Return the configuration of the plan."""
{listed}
    pretrain(config={FUNCTION}(), forward_step_func=forward_step)
'''


def _connections(launch: Launch) -> Iterator[str]:
    value, why = device_connections(launch)
    if value:
        yield f'    os.environ["{CONNECTIONS}"] = "{value}"  # {why}'
    elif why:
        yield f'    os.environ.pop("{CONNECTIONS}", None)  # {why}'


def _precision(launch: Launch) -> Iterator[str]:
    precision, formats = launch.plan.precision, launch.degrees.state_formats
    if precision is Precision.FP32:
        yield "    precision = None  # fp32: weights, gradients and all products"
        return
    made = f'get_mixed_precision_config("{RECIPES[precision]}")'
    yield f"    precision = {made}  # the plan's precision {precision.value}"
    if precision.is_reduced:
        yield "    precision.first_last_layers_bf16 = False  # priced so: all blocks alike"
        why = f"weights are kept and gathered in {'fp8' if formats.fp8_weights else 'bf16'}"
        yield f"    precision.fp8_param_gather = {formats.fp8_weights}  # priced so: {why}"
    if formats.gradient_dtype is not None:
        whole = formats.gradient_dtype is StateDtype.FP32
        why = f"the plan adds up gradients in {formats.gradient_dtype}"
        yield f"    precision.grad_reduce_in_fp32 = {whole}  # {why}"


EXPORTER = Exporter("megatron_bridge", "Megatron Bridge", (*CHECKS, _order), files)
