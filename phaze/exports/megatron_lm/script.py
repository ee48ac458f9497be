"""The text of ``launch.sh``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from phaze.exports.launch import Launch
from phaze.exports.megatron_lm.arguments import Argument, Group, groups, shape_of
from phaze.exports.words import commented

WHY_COLUMN = 58  # where comments begin, where the argument leaves room

_TRAINING = """\
# What a plan says nothing about: change these at will, they cost no time.
TRAIN_ITERS="${TRAIN_ITERS:-50}"
LEARNING_RATE="${LEARNING_RATE:-1e-4}"
TRAINING=(
    --train-iters "${TRAIN_ITERS}"                        # enough to see the time of an iteration
    --lr "${LEARNING_RATE}"                               # no recommendation
    --lr-decay-style constant                             # no schedule
    --eval-iters 0                                        # iterations alone are timed
    --log-interval 1                                      # every iteration
    --log-throughput                                      # TFLOP/s per device beside its time
)
"""


def script(launch: Launch) -> str:
    """A bash script that starts as it is, on mock data, from a checkout of Megatron-LM."""
    parts = groups(launch)
    blocks = [
        _head(launch),
        _processes(launch),
        *(_array(part) for part in parts if part.arguments),
        _data(launch),
        _TRAINING,
    ]
    names = [*(part.variable for part in parts if part.arguments), "DATA", "TRAINING"]
    arrays = " \\\n    ".join(f'"${{{name}[@]}}"' for name in names)
    command = (
        'exec torchrun "${TORCHRUN[@]}" "${MEGATRON_PATH}/pretrain_gpt.py" \\\n    '
        f'{arrays} \\\n    "$@"\n'
    )
    return "\n".join([*blocks, "# What the command line adds comes last and wins.\n" + command])


def _head(launch: Launch) -> str:
    lines = [
        "#!/usr/bin/env bash",
        "# A plan of Phaze for Megatron-LM (core_v0.16.1 and later).",
        commented(
            f"# {launch.plan.model} on {launch.degrees.devices} x {launch.device}, cluster "
            f"{launch.cluster}."
        ),
    ]
    if launch.iteration_s is not None:
        lines.append(f"# Predicted: {launch.iteration_s:.4g} s an iteration.")
    if launch.memory_bytes is not None:
        lines.append(f"# Predicted: {launch.memory_bytes / 2**30:.4g} GiB on the fullest device.")
    start = (
        "# Start it on every node with MASTER_ADDR and its own NODE_RANK; MEGATRON_PATH is a "
        "checkout of Megatron-LM."
    )
    return "\n".join([*lines, start, "set -euo pipefail", ""])


def _processes(launch: Launch) -> str:
    degrees = launch.degrees
    lines = [
        'MEGATRON_PATH="${MEGATRON_PATH:-Megatron-LM}"',
        f'NNODES="${{NNODES:-{launch.nodes}}}"',
        'NODE_RANK="${NODE_RANK:-0}"',
        'MASTER_ADDR="${MASTER_ADDR:-localhost}"',
        'MASTER_PORT="${MASTER_PORT:-29500}"',
        f'GPUS_PER_NODE="${{GPUS_PER_NODE:-{launch.processes_per_node}}}"',
        f"if (( NNODES * GPUS_PER_NODE != {degrees.devices} )); then",
        f'    echo "the plan is for {degrees.devices} devices, given NNODES ${{NNODES}} x '
        'GPUS_PER_NODE ${GPUS_PER_NODE}" >&2',
        "    exit 2",
        "fi",
        "TORCHRUN=(",
        _line(
            Argument(
                "--nnodes",
                '"${NNODES}"',
                f"tp {degrees.tp} x cp {degrees.cp} x dp {degrees.dp} x pp {degrees.pp} devices",
            )
        ),
        _line(
            Argument(
                "--nproc-per-node", '"${GPUS_PER_NODE}"', "a process for each device of a node"
            )
        ),
        _line(
            Argument(
                "--node-rank",
                '"${NODE_RANK}"',
                "groups lie over consecutive ranks, so nodes must be numbered",
            )
        ),
        _line(Argument("--master-addr", '"${MASTER_ADDR}"', "the node of rank 0")),
        _line(Argument("--master-port", '"${MASTER_PORT}"', "any free port of it")),
        ")",
    ]
    if degrees.zero_stage > 1:
        lines.append(
            "unset CUDA_DEVICE_MAX_CONNECTIONS  # Megatron-FSDP refuses 1: its gathers run beside "
            "computation"
        )
    elif degrees.tp > 1 or degrees.cp > 1:
        lines.append(
            "export CUDA_DEVICE_MAX_CONNECTIONS=1  # tp and cp need it before Blackwell: kernels "
            "keep their order"
        )
    return "\n".join([*lines, ""])


def _array(group: Group) -> str:
    return "\n".join(
        [f"# {group.title}.", f"{group.variable}=(", *_lines(group.arguments), ")", ""]
    )


def _data(launch: Launch) -> str:
    """Data and tokenizer: those of the environment, else made up."""
    vocabulary = shape_of(launch).vocabulary
    mock = [
        Argument("--mock-data", None, "made-up tokens: starts as it is"),
        Argument("--tokenizer-type", "NullTokenizer", "no files needed"),
        Argument(
            "--vocab-size",
            vocabulary - 1,
            f"and the end of a document: {vocabulary} tokens before padding",
        ),
    ]
    real = [
        Argument("--data-path", '"${DATA_PATH}"', "prefix of a preprocessed data set"),
        Argument(
            "--tokenizer-type", '"${TOKENIZER_TYPE:-HuggingFaceTokenizer}"', "that it was made with"
        ),
        Argument(
            "--tokenizer-model", '"${TOKENIZER_MODEL:?set it with DATA_PATH}"', "its file or name"
        ),
    ]
    return "\n".join(
        [
            "# Data: DATA_PATH with TOKENIZER_TYPE and TOKENIZER_MODEL, else made up.",
            'if [[ -n "${DATA_PATH:-}" ]]; then',
            "DATA=(",
            *_lines(real),
            ")",
            "else",
            "DATA=(",
            *_lines(mock),
            ")",
            "fi",
            "",
        ]
    )


def _lines(arguments: tuple[Argument, ...] | list[Argument]) -> Iterator[str]:
    return (_line(argument) for argument in arguments)


def _line(argument: Argument) -> str:
    text = str(argument.value)
    quoted = text if text.startswith('"$') else shlex.quote(text)
    given = argument.flag if argument.value is None else f"{argument.flag} {quoted}"
    return f"    {given}".ljust(WHY_COLUMN - 1) + f" # {argument.why}"
