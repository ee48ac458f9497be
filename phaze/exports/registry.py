"""The programs that plans are written out for, by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from phaze_common.errors import InputError
from phaze_common.suggestions import nearest

if TYPE_CHECKING:
    from phaze.exports.launch import Exporter

HOMES = {  # modules with an ``EXPORTER``, imported when it is asked for
    "megatron_lm": "phaze.exports.megatron_lm.exporter",
    "megatron_bridge": "phaze.exports.nemo.exporter",
    "torchtitan": "phaze.exports.torchtitan.exporter",
    "accelerate": "phaze.exports.accelerate.exporter",
    "deepspeed": "phaze.exports.deepspeed.exporter",
    "hf_trainer": "phaze.exports.hf_trainer.exporter",
    "chakra": "phaze.exports.chakra.exporter",
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
