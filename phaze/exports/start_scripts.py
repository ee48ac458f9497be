"""What scripts that start one process for each device have in common."""

from __future__ import annotations

from phaze.exports.launch import ExportedFile, Launch

RUN = "run.sh"


def run_script(*lines: str, comments: tuple[str, ...] = ()) -> ExportedFile:
    """A script of ``lines`` that run in its folder, behind ``comments``."""
    head = ("#!/usr/bin/env bash", *comments, "set -euo pipefail", 'cd "$(dirname "$0")"')
    return ExportedFile(RUN, "\n".join((*head, *lines)) + "\n", executable=True)


def on_each_node(launch: Launch) -> list[str]:
    """What several nodes are each given: their number, and the address of the first."""
    if launch.nodes == 1:
        return []
    return [
        f"# start it on each of {launch.nodes} nodes with NODE_RANK 0 to {launch.nodes - 1} and "
        "the same MASTER_ADDR",
        ': "${NODE_RANK:?number of this node}" "${MASTER_ADDR:?address of node 0}"',
    ]


def torchrun(launch: Launch) -> str:
    """The command with its own flags; its static rendezvous keeps the numbers of nodes, and with
    them the order of groups."""
    where = "--standalone"
    if launch.nodes > 1:
        where = (
            '--node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" '
            '--master-port "${MASTER_PORT:-29500}"'
        )
    return f"torchrun --nnodes {launch.nodes} --nproc-per-node {launch.processes_per_node} {where}"
