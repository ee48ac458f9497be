"""The programs that plans are written out for, by name."""

from __future__ import annotations

from importlib import import_module

from Common.errors import InputError
from Common.suggestions import nearest
from third_party.exports.launch import Exporter

HOMES = {  # modules with an ``EXPORTER``, imported when it is asked for
    "megatron_lm": "third_party.exports.megatron_lm",
    "megatron_bridge": "third_party.exports.megatron_bridge",
    "torchtitan": "third_party.exports.torchtitan",
    "accelerate": "third_party.exports.accelerate",
    "deepspeed": "third_party.exports.deepspeed",
    "hf_trainer": "third_party.exports.hf_trainer",
    "chakra": "third_party.exports.chakra",
}


def exporter(name: str) -> Exporter:
    """The exporter of that ``name``.

    Raises:
        InputError: there is none.
    """
    if name not in HOMES:
        hint = nearest(name, list(HOMES), f"give {', '.join(HOMES)}")
        raise InputError(f"--to {name!r:.100} is no program that plans are exported to; {hint}")
    found: Exporter = import_module(HOMES[name]).EXPORTER
    return found
