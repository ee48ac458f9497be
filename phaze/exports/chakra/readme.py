"""What stands beside execution traces for those who run them."""

from __future__ import annotations

from phaze.exports.chakra.replay import Replay
from phaze.exports.launch import Launch
from phaze.exports.words import in_markdown

PREFIX = "traces/iteration"

RUN = f"""#!/usr/bin/env bash
# Runs the traces in ASTRA-sim; ASTRA_SIM is its binary with the analytical network.
set -euo pipefail
cd "$(dirname "$0")"
"${{ASTRA_SIM:?give the path of AstraSim_Analytical_Congestion_Aware (or _Unaware)}}" \\
  --workload-configuration={PREFIX} \\
  --system-configuration=system.json \\
  --network-configuration=network.yml \\
  --remote-memory-configuration=memory.json \\
  --comm-group-configuration=groups.json
"""


def readme(launch: Launch, nodes: int, replayed: Replay | None) -> str:
    """How to run the files of ``launch``, whose traces have so many ``nodes``, and what they do and
    do not hold."""
    degrees = launch.degrees
    model, device, cluster = map(in_markdown, (launch.plan.model, launch.device, launch.cluster))
    predicted_s, replays = launch.iteration_s or 0.0, ""
    if replayed is not None:
        takes = f"it takes {replayed.iteration_s:.9g} s; the prediction is {predicted_s:.9g} s."
        replays = f"\nReplayed by its dependencies with these durations {takes}\n"
    return f"""# One iteration of {model} on {degrees.devices} x {device}, as execution traces

tp {degrees.tp}, pp {degrees.pp} ({degrees.schedule}, {degrees.interleave} chunk(s) a stage), dp {degrees.dp}, cp {degrees.cp}, \
ep {degrees.ep}, ZeRO {degrees.zero_stage}, {degrees.micro_batches} micro-batches of {degrees.micro_batch_size}; {nodes:,} nodes.
{replays}
    ASTRA_SIM=/path/to/AstraSim_Analytical_Congestion_Aware ./run.sh

| file | |
| --- | --- |
| `{PREFIX}.RANK.et` | Chakra execution trace of a rank, schema 0.0.4: messages behind their lengths, `GlobalMetadata` first |
| `groups.json` | ranks of the communicators that nodes name in `pg_name` |
| `system.json`, `network.yml`, `memory.json` | ASTRA-sim's system, analytical network ({cluster}) and remote memory |

What is in the traces:

- A compute node per chunk, pass and micro-batch: `duration_micros` is predicted, without what shows of communication in the
  pass; `duration_s` is the same unrounded, `start_time_micros` when it starts by the prediction. `num_ops` are FLOPs of matrix
  products, `tensor_size` bytes read and written.
- Collectives of a pass by kind and group, those of all its layers together: one node for what adds to the pass and one,
  "hidden", for what runs beside it, each with its part of the bytes. `comm_size` is what a rank gives to it: its part of what is
  gathered, all of what is reduced. ASTRA-sim times them itself; `duration_micros` is our prediction of each.
- Panels of 2D layouts and keys and values around a ring are gathers and scatters of the same tensors, which move as many bytes.
- Sends and receives between stages, with tags of their own. The sender waits for them unless the framework overlaps them.
- Gradients, weights that ZeRO gathers, gradients of tied parameters, the norm of the gradients, for which all ranks wait, and the
  optimizer's step, of the slowest stage everywhere. Updated weights (ZeRO 1 and 2) are gathered before the step, where the
  prediction counts them: the bytes are those of the gather behind it. `num_ops` of the step are one per parameter.
- `data_deps` is all that must be finished before a node starts. What of it only keeps the order of a device is in `ctrl_deps`,
  too: feeders that read `data_deps` alone would otherwise run passes in another order.

What is not: single operators, memory, and traffic between devices and their hosts, whose seconds are in those of the passes.
A collective of ASTRA-sim among some of the ranks is one ring of all of them. One communication of a device runs at a time there,
so a hidden collective can hold up a message, which is not in the prediction.
"""
