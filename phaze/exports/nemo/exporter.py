"""Megatron Bridge: a recipe, a Python module with a function that returns the ``ConfigContainer``
of a plan.

Names are those of megatron-bridge 0.3.1 (bridge/training/config.py, bridge/models/gpt_provider.py),
which trains with Megatron-Core 0.16; so it can be told what Megatron-LM can, but for rank orders,
which it has only without experts and contexts.
"""

from __future__ import annotations

from phaze.exports.launch import ExportedFile, Exporter, Launch, unsupported
from phaze.exports.megatron_lm.limits import CHECKS, pipeline_inner
from phaze.exports.nemo.recipe import FILE, recipe
from phaze.exports.refusals import Refusals
from phaze_common.choices import GroupOrder


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


EXPORTER = Exporter("megatron_bridge", "Megatron Bridge", (*CHECKS, _order), files)
