"""Megatron-LM core_v0.16.1 and later: a script that starts ``pretrain_gpt.py`` under torchrun with
all that the plan means."""

from __future__ import annotations

from phaze.exports.launch import ExportedFile, Exporter, Launch
from phaze.exports.megatron_lm.limits import CHECKS
from phaze.exports.megatron_lm.script import script

FILE = "launch.sh"


def files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``launch.sh``."""
    return (ExportedFile(FILE, script(launch), executable=True),)


EXPORTER = Exporter("megatron_lm", "Megatron-LM", CHECKS, files, node_script=FILE)
