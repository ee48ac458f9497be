"""The layouts that a search compares besides one tensor axis: which of those that are asked for a
model can have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

from Estimator.plans.degrees import Layout, UniformPlan
from GraphExtractor.graph import GraphKey
from GraphExtractor.models.registry import find_model
from GraphExtractor.widths import check_key
from phaze.settings.request import Request
from phaze_common.choices import KeyExchange, LayoutName, TensorLayout
from phaze_common.errors import InputError


def other_layouts(request: Request, model: str) -> tuple[Layout, ...]:
    """Layouts other than one tensor axis that ``model`` can have.

    Raises:
        InputError: layouts were asked for and none is possible; says why one of them is not.
    """
    family = find_model(model)
    wanted = list(_wanted_layouts(request, request.plan.ep if family.experts else (1,)))
    refused: InputError | None = None
    of_two_axes: InputError | None = None
    possible = []
    for layout in wanted:
        try:
            check_key(_key_of(layout, request, model), family)
        except InputError as error:
            refused = refused or error
            of_two_axes = of_two_axes or (error if layout.layout is TensorLayout.TWO_D else None)
        else:
            possible.append(layout)
    if (
        refused is not None
        and not possible
        and not {LayoutName.ONE_D, LayoutName.AUTO} & {*request.plan.layout}
    ):
        raise refused
    if (
        of_two_axes is not None
        and min(request.plan.tp2) > 1
        and all(each.layout is not TensorLayout.TWO_D for each in possible)
    ):
        raise of_two_axes  # which tp2 was given for
    return tuple(possible)


def _wanted_layouts(request: Request, ep_degrees: Sequence[int]) -> Iterator[Layout]:
    names, devices = {*request.plan.layout}, request.hardware.devices
    if names & {LayoutName.SEQUENCE, LayoutName.AUTO}:
        for tp, cp, ep, exchange in product(
            request.plan.tp, request.plan.cp, ep_degrees, request.plan.exchange
        ):
            for split in request.plan.sequence_parallel if tp > 1 else (False,):
                if cp > 1 and tp * math.lcm(cp, ep) <= devices:
                    yield Layout(tp=tp, cp=cp, ep=ep, sequence_parallel=split, exchange=exchange)
    if names & {LayoutName.TWO_D, LayoutName.AUTO} and False in request.plan.sequence_parallel:
        contexts = request.plan.cp if names == {LayoutName.TWO_D} else (1,)
        for tp, tp2, cp, exchange in product(
            request.plan.tp, request.plan.tp2, contexts, request.plan.exchange
        ):
            if tp * tp2 * cp <= devices and (tp2 * cp > 1 or exchange is KeyExchange.GATHER):
                for panels in request.plan.panels if tp * tp2 > 1 else (1,):
                    yield Layout(
                        tp=tp,
                        cp=cp,
                        layout=TensorLayout.TWO_D,
                        tp2=tp2,
                        exchange=exchange,
                        panels=panels,
                    )


def _key_of(layout: Layout, request: Request, model: str) -> GraphKey:
    plan = UniformPlan(
        micro_batch_size=min(request.plan.micro_batch_size),
        attention=request.plan.attention,
        precision=request.plan.precision,
    ).with_layout(layout)
    return plan.graph_key(model, request.sequence_length_of(model))
