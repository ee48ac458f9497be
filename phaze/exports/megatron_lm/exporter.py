"""Megatron-LM core_v0.16.1 and later: a script that starts ``pretrain_gpt.py`` under torchrun with
all that the plan means."""

from __future__ import annotations

from phaze.exports.launch import ExportedFile, Exporter, Launch
from phaze.exports.megatron_lm.arguments import CONNECTIONS, device_connections, groups, shape_of
from phaze.exports.megatron_lm.limits import CHECKS
from phaze.exports.options import flags, options
from phaze.exports.words import commented

FILE = "launch.sh"
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


def files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``launch.sh``."""
    return (ExportedFile(FILE, script(launch), executable=True),)


def script(launch: Launch) -> str:
    """A bash script that starts as it is, on mock data, from a checkout of Megatron-LM."""
    parts = [part for part in groups(launch) if part.arguments]
    arrays = "".join(
        f"# {part.title}.\n{part.variable}=(\n"
        + flags(part.arguments, "    ", WHY_COLUMN)
        + "\n)\n\n"
        for part in parts
    )
    names = [*(part.variable for part in parts), "DATA", "TRAINING"]
    given = " \\\n    ".join(f'"${{{name}[@]}}"' for name in names)
    return f"""\
{_head(launch)}
{_processes(launch)}
{arrays}{_data(launch)}
{_TRAINING}
# What the command line adds comes last and wins.
exec torchrun "${{TORCHRUN[@]}}" "${{MEGATRON_PATH}}/pretrain_gpt.py" \\
    {given} \\
    "$@"
"""


def _head(launch: Launch) -> str:
    devices = launch.degrees.devices
    where = commented(
        f"# {launch.plan.model} on {devices} x {launch.device}, cluster {launch.cluster}."
    )
    lines = (
        "#!/usr/bin/env bash",
        "# A plan of Phaze for Megatron-LM (core_v0.16.1 and later).",
        where,
        *(f"# {sentence}" for sentence in launch.predictions),
        "# Start it on every node with MASTER_ADDR and its own NODE_RANK; MEGATRON_PATH is a "
        "checkout of Megatron-LM.",
        "set -euo pipefail",
        "",
    )
    return "\n".join(lines)


def _array(text: str) -> str:
    return flags(options(text), "    ", WHY_COLUMN)


def _processes(launch: Launch) -> str:
    degrees = launch.degrees
    widths = f"tp {degrees.tp} x cp {degrees.cp} x dp {degrees.dp} x pp {degrees.pp} devices"
    torchrun = _array(f"""
        nnodes "${{NNODES}}" # {widths}
        nproc-per-node "${{GPUS_PER_NODE}}" # a process for each device of a node
        node-rank "${{NODE_RANK}}" # groups lie over consecutive ranks, so nodes must be numbered
        master-addr "${{MASTER_ADDR}}" # the node of rank 0
        master-port "${{MASTER_PORT}}" # any free port of it
    """)
    connections, (value, why) = "", device_connections(launch)
    if value:
        connections = f"export {CONNECTIONS}={value}  # {why}\n"
    elif why:
        connections = f"unset {CONNECTIONS}  # {why}\n"
    return f"""\
MEGATRON_PATH="${{MEGATRON_PATH:-Megatron-LM}}"
NNODES="${{NNODES:-{launch.nodes}}}"
NODE_RANK="${{NODE_RANK:-0}}"
MASTER_ADDR="${{MASTER_ADDR:-localhost}}"
MASTER_PORT="${{MASTER_PORT:-29500}}"
GPUS_PER_NODE="${{GPUS_PER_NODE:-{launch.processes_per_node}}}"
if (( NNODES * GPUS_PER_NODE != {degrees.devices} )); then
    echo "the plan is for {degrees.devices} devices, given NNODES ${{NNODES}} x \
GPUS_PER_NODE ${{GPUS_PER_NODE}}" >&2
    exit 2
fi
TORCHRUN=(
{torchrun}
)
{connections}"""


def _data(launch: Launch) -> str:
    """Data and tokenizer: those of the environment, else made up."""
    tokens = shape_of(launch).vocabulary
    real = _array("""
        data-path "${DATA_PATH}" # prefix of a preprocessed data set
        tokenizer-type "${TOKENIZER_TYPE:-HuggingFaceTokenizer}" # that it was made with
        tokenizer-model "${TOKENIZER_MODEL:?set it with DATA_PATH}" # its file or name
    """)
    mock = _array(f"""
        mock-data # made-up tokens: starts as it is
        tokenizer-type NullTokenizer # no files needed
        vocab-size {tokens - 1} # and the end of a document: {tokens} tokens before padding
    """)
    return f"""\
# Data: DATA_PATH with TOKENIZER_TYPE and TOKENIZER_MODEL, else made up.
if [[ -n "${{DATA_PATH:-}}" ]]; then
DATA=(
{real}
)
else
DATA=(
{mock}
)
fi
"""


EXPORTER = Exporter("megatron_lm", "Megatron-LM", CHECKS, files, node_script=FILE)
