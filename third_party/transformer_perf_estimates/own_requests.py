"""A question, and configurations of it, as requests of ours; and plans of ours as configurations.

The search has the choices of transformer-perf-estimates: its degrees, its numbers of panels,
micro-batches that divide evenly, nothing recomputed, no interleaving, optimizer states sharded over
replicas (ZeRO-1), sequence parallelism wherever weights are split along one axis, gathered keys and
values, and every way to share out the fast domain. How layers lie on stages is chosen: our models
have an embedding and a head, so that equal stages are none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from Estimator.plans.assignment import AXES, Assignment
from Estimator.plans.degrees import UniformPlan
from GraphExtractor.models.registry import find_model
from GraphExtractor.widths import panels_fit
from phaze.settings.hardware import HardwareFiles
from phaze.settings.request import Request, StatedChunks
from phaze.settings.resolve import resolve
from phaze_common.choices import GroupOrder, LayoutName, Recompute
from phaze_common.echo import as_given
from phaze_common.errors import InputError
from phaze_common.setting_fields import Mode

from .configurations import MICRO_BATCH_SIZES, Configuration, Strategy, Training
from .models import TransformerModel, published_models
from .own_hardware import OwnHardware, own_hardware, stands_for
from .spaces import space

SOURCE = "the case under our own physics"
CLUSTER = "of-the-system"  # what the cluster is called, which is known by value


@dataclass(frozen=True)
class OwnQuestion:
    """A question of transformer-perf-estimates with what of ours answers it: a model by name, and
    hardware."""

    training: Training
    model: str
    hardware: OwnHardware

    @staticmethod
    def of(training: Training, model: str | None = None, device: str | None = None) -> OwnQuestion:
        """The question of ``training``; ``model`` and ``device`` are those of ours that stand for
        its own, if not the usual ones. Raises InputError: they do not, or nothing of ours does."""
        name = model or own_model(training.model)
        _check_sizes(name, training.model)
        return OwnQuestion(training, name, own_hardware(training, device))

    def search_request(self, micro_batch_sizes: Sequence[int] = MICRO_BATCH_SIZES) -> Request:
        """The search of the best plan. Raises InputError: no configuration has such a micro-batch,
        or our model cannot have any of the layouts."""
        found = space(self.training)
        layouts, two_d = found.layouts, self.training.strategy is Strategy.TWO_D
        batches = [
            int(each) for each in np.unique(layouts.micro_batch) if each in micro_batch_sizes
        ]
        if not batches:
            raise InputError(
                "no configuration of the case has a micro-batch of "
                f"{', '.join(map(str, micro_batch_sizes))} sequences; "
                "name others with --micro-batch-size"
            )
        rows, widths = (
            [int(each) for each in np.unique(degrees)] for degrees in (layouts.tp2, layouts.tp1)
        )
        tokens = self.training.model.sequence_length
        settings: dict[str, Any] = {
            # Ours split the tokens of each sequence evenly.
            "tp": [each for each in widths if two_d or tokens % each == 0],
            "pp": [int(each) for each in np.unique(found.pp)],
            "micro_batch_size": batches,
            "group_order": [
                GroupOrder.TIERS.value
                if len(self.hardware.cluster.tiers) > 1
                else GroupOrder.DATA_INNER.value
            ],
            "devices": self.training.gpus,
        }
        match self.training.strategy:
            case Strategy.ONE_D:
                settings |= {"layout": [LayoutName.ONE_D.value], "sequence_parallel": [True]}
            case Strategy.SEQUENCE:
                names = [LayoutName.ONE_D.value, LayoutName.SEQUENCE.value]
                settings |= {"layout": names, "sequence_parallel": [True], "exchange": ["gather"]}
                settings |= {"cp": [each for each in rows if each > 1] or [1]}
            case Strategy.TWO_D:
                family = find_model(self.model)
                counts = [int(each) for each in np.unique(layouts.panels)]
                panels = [each for each in counts if panels_fit(each, family)] or [1]
                settings |= {"layout": [LayoutName.TWO_D.value], "exchange": ["gather"]}
                settings |= {"tp2": rows, "panels": panels}
        return self._resolved(settings, Mode.SEARCH)

    def request_of(self, configuration: Configuration) -> Request:
        """One configuration, its layers balanced over the stages as Megatron-LM does. Raises
        InputError: our model or our layouts cannot have it."""
        each, strategy = configuration, self.training.strategy
        settings: dict[str, Any] = {
            "tp": each.tp1,
            "pp": each.pp,
            "dp": each.dp,
            "micro_batch_size": each.micro_batch,
            "group_order": str(self._assignment(each))
            if len(self.hardware.cluster.tiers) > 1
            else GroupOrder.DATA_INNER.value,
        }
        if strategy is Strategy.TWO_D:
            settings |= {"layout": LayoutName.TWO_D.value, "tp2": each.tp2}
            if each.tp > 1:  # of one GPU a product is no several
                settings |= {"panels": each.panels}
        else:
            settings |= {"sequence_parallel": each.tp1 > 1, "cp": each.tp2}
            settings |= {"layout": LayoutName.SEQUENCE.value} if each.tp2 > 1 else {}
        return self._resolved(settings, Mode.EVALUATE)

    def _assignment(self, each: Configuration) -> Assignment:
        second = (each.nv_tp2, each.tp2 // each.nv_tp2)
        alone, two_d = (1, 1), self.training.strategy is Strategy.TWO_D
        return Assignment(
            tp=(each.nv_tp1, each.tp1 // each.nv_tp1),
            cp=alone if two_d else second,
            ep=alone,
            dp=(each.nv_dp, each.dp // each.nv_dp),
            pp=(each.nv_pp, each.pp // each.nv_pp),
            tp2=second if two_d else alone,
        )

    def configuration_of(self, plan: UniformPlan) -> Configuration:
        """A plan of ours as a configuration, with its own number of panels; of its stages only how
        many there are. Raises InputError: its devices do not share out the fast domain as
        configurations do."""
        shares = self._shares(plan)
        second = plan.tp2 if self.training.strategy is Strategy.TWO_D else plan.cp
        layouts = space(self.training).layouts
        alike = (
            (layouts.tp1 == plan.tp)
            & (layouts.tp2 == second)
            & (layouts.micro_batch == plan.micro_batch_size)
        )
        if not alike.any():
            raise InputError(
                f"transformer-perf-estimates has no configuration of tp {plan.tp} x {second}"
            )
        return Configuration(
            tp1=plan.tp,
            tp2=second,
            pp=plan.pp,
            dp=plan.dp,
            micro_batch=plan.micro_batch_size,
            panels=plan.panels,
            nv_tp1=shares["tp"],
            nv_tp2=shares["tp2"] * shares["cp"],
            nv_pp=shares["pp"],
            nv_dp=shares["dp"],
        )

    def _shares(self, plan: UniformPlan) -> dict[str, int]:
        size = min(self.training.gpus, self.training.nvlink_size)
        if isinstance(plan.group_order, Assignment):
            shares = {axis: int(getattr(plan.group_order, axis)[0]) for axis in AXES}
        elif plan.devices <= size:
            shares = {axis: int(getattr(plan, axis)) for axis in AXES}
        else:
            shares = dict.fromkeys(AXES, 1)
        if math.prod(shares.values()) != size:
            raise InputError(
                f"the plan has {math.prod(shares.values())} of its devices in a fast domain of "
                f"{size}, which configurations of transformer-perf-estimates fill"
            )
        return shares

    def _base_settings(self) -> dict[str, Any]:
        hardware = self.hardware
        return {
            "model": self.model,
            "sequence_length": self.training.model.sequence_length,
            "device": hardware.device,
            "memory_size": hardware.memory_size_gib,
            "memory_bandwidth": hardware.memory_bandwidth_gb_per_s,
            "peak_flops": hardware.peak_tflop_per_s,
            "software": hardware.software,
            "cluster": CLUSTER,
            "global_batch_size": self.training.global_batch,
        }

    def _resolved(self, settings: Mapping[str, Any], mode: Mode) -> Request:
        once: dict[str, Any] = {"recompute": Recompute.NONE.value, "interleave": 1, "zero_stage": 1}
        fixed = {key: [value] if mode is Mode.SEARCH else value for key, value in once.items()}
        return self.resolved(fixed | dict(settings), mode)

    def resolved(
        self, settings: Mapping[str, Any], mode: Mode, chunk_layers: StatedChunks | None = None
    ) -> Request:
        """A request of ``settings`` on top of those that all have in common. Raises InputError:
        they contradict each other, the model or the hardware."""
        files = HardwareFiles({("cluster", CLUSTER): self.hardware.cluster})
        settings = self._base_settings() | dict(settings)
        return resolve({}, settings, mode, source=SOURCE, files=files, chunk_layers=chunk_layers)


def own_model(model: TransformerModel) -> str:
    """Our name of a model: of the one that stands for a published one, else its sizes."""
    names = [name for name, each in published_models().items() if each == model]
    if names:
        return str(stands_for()["models"][names[0]])
    sizes = f"layers={model.layers},hidden={model.hidden},heads={model.heads},ffn={model.ffn}"
    return f"gpt:{sizes},sequence_length={model.sequence_length}"


def _check_sizes(name: str, model: TransformerModel) -> None:
    family = find_model(name)
    for ours, theirs, size in (
        ("layers", "depth", model.layers),
        ("hidden", "e", model.hidden),
        ("heads", "h", model.heads),
        ("ffn", "f", model.ffn),
    ):
        given = getattr(family, ours, None)
        if given != size:
            raise InputError(
                f"{as_given(name)} cannot stand for the model of the case: its {ours} is {given}, "
                f"that of the case ({theirs}) is "
                f"{size}; name a model of the same sizes with --model, or leave it out"
            )
