"""Megatron-LM: a script that starts ``pretrain_gpt.py`` under torchrun with all that the plan
means."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.exports.launch import ExportedFile, Inexpressible, Launch
from phaze.exports.megatron_lm.limits import first_limit
from phaze.exports.megatron_lm.script import script

FILE = "launch.sh"


@dataclass(frozen=True)
class MegatronLM:
    """Writes ``launch.sh`` for Megatron-LM core_v0.16.1 and later; stricter than it where it fails
    only as it runs."""

    name: str = "megatron_lm"
    title: str = "Megatron-LM"

    def inexpressible(self, launch: Launch) -> Inexpressible | None:
        """See protocol; ``limits`` lists where that is stricter than Megatron-LM."""
        return first_limit(launch)

    def files(self, launch: Launch) -> tuple[ExportedFile, ...]:
        """See protocol."""
        return (ExportedFile(FILE, script(launch), executable=True),)


EXPORTER = MegatronLM()
