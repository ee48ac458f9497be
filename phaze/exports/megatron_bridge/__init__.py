"""Megatron Bridge: a recipe, a Python module with a function that returns the ``ConfigContainer``
of a plan.

Names are those of megatron-bridge 0.3.1 (bridge/training/config.py, bridge/models/gpt_provider.py),
which trains with Megatron-Core 0.16; so it can be told what Megatron-LM can, but for rank orders,
which it has only without experts and contexts.
"""

from __future__ import annotations

from dataclasses import dataclass

from phaze.exports.launch import ExportedFile, Inexpressible, Launch
from phaze.exports.megatron_bridge.recipe import FILE, recipe
from phaze.exports.megatron_lm.limits import first_limit, pipeline_inner
from phaze_common.choices import GroupOrder


@dataclass(frozen=True)
class MegatronBridge:
    """Writes ``phaze_recipe.py``; refuses what Megatron-LM is not told either, and some rank orders
    more."""

    name: str = "megatron_bridge"
    title: str = "Megatron Bridge"

    def inexpressible(self, launch: Launch) -> Inexpressible | None:
        """See protocol; ``megatron_lm.limits`` lists where that is stricter than Megatron."""
        refused = first_limit(launch)
        if refused is None and pipeline_inner(launch) and launch.degrees.cp > 1:
            return Inexpressible(
                "its rank order with the pipeline inside the replicas is not for context or "
                "expert parallelism",
                (("group_order", GroupOrder.DATA_INNER.value),),
            )
        return refused

    def files(self, launch: Launch) -> tuple[ExportedFile, ...]:
        """See protocol."""
        return (ExportedFile(FILE, recipe(launch)),)


EXPORTER = MegatronBridge()
