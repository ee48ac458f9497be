"""The layouts that a request asks for: what contradicts them, the degrees that they have together,
and which a model can have."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from Estimator.plans.degrees import Layout, UniformPlan, divided_experts
from GraphExtractor.graph import GraphKey
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.models.registry import find_model
from GraphExtractor.widths import check_key, check_panels
from phaze.settings.request import Request
from phaze_common.choices import KeyExchange, LayoutName, TensorLayout
from phaze_common.errors import InputError
from phaze_common.setting_fields import Mode

OF_LAYOUTS = ("tp2", "cp")  # axes whose values depend on the layout
SHOWN = 12  # values listed in a refusal


def check_layouts(request: Request, families: Mapping[str, ModelFamily]) -> None:
    """Refuse values of axes that none of the layouts has. ``families`` are by name of model.

    Raises:
        InputError: says which, and the layouts that have them.
    """
    layouts, plan = {*request.plan.layout}, request.plan
    _check_panels(request, families)
    if plan.layout == (LayoutName.SEQUENCE,) and max(plan.cp) == 1:
        raise InputError(
            "cp is 1, but layout sequence cuts sequences over cp devices; give a cp above 1, or "
            "another layout"
        )
    if plan.layout == (LayoutName.TWO_D,) and False not in plan.sequence_parallel:
        raise InputError(
            "sequence_parallel is true, but a 2d layout divides the tokens anyway, along its "
            "second axis; leave sequence parallelism out, or give another layout"
        )
    if request.mode is not Mode.SEARCH:
        return
    if plan.layout == (LayoutName.ONE_D,) and KeyExchange.GATHER not in plan.exchange:
        raise InputError(
            f"exchange is {', '.join(plan.exchange)}, but a search of layout 1d gathers "
            "keys and values; leave exchange out, or give --layout sequence"
        )
    if layouts.isdisjoint({LayoutName.TWO_D, LayoutName.AUTO}) and max(plan.tp2) > 1:
        raise InputError(
            f"tp2 is {listed(plan.tp2)}, but only 2d layouts have two tensor axes, given layout "
            f"{', '.join(plan.layout)}; leave tp2 out, or add 2d"
        )


def _check_panels(request: Request, families: Mapping[str, ModelFamily]) -> None:
    several = [panels for panels in request.plan.panels if panels > 1]
    if not several:
        return
    if {LayoutName.TWO_D, LayoutName.AUTO}.isdisjoint(request.plan.layout):
        raise InputError(
            f"panels is {listed(several)}, but only products of a 2d layout run in panels, given "
            f"layout {', '.join(request.plan.layout)}; leave panels out, or use layout 2d"
        )
    for (model, family), panels in product(families.items(), several):
        check_panels(panels, model, family)


def second_axes(request: Request) -> list[tuple[int, int]]:
    """Values of tp2 and cp that the layouts have together, as ``plan_space`` lists them."""
    names, found = {*request.plan.layout}, set[tuple[int, int]]()
    if names & {LayoutName.ONE_D, LayoutName.AUTO}:
        found |= {(1, cp) for cp in (request.plan.cp if names == {LayoutName.ONE_D} else (1,))}
    if names & {LayoutName.SEQUENCE, LayoutName.AUTO}:
        found |= {(1, cp) for cp in request.plan.cp}
    if names & {LayoutName.TWO_D, LayoutName.AUTO}:
        found |= set(
            product(request.plan.tp2, request.plan.cp if names == {LayoutName.TWO_D} else (1,))
        )
    return sorted(found)


def listed(values: Sequence[int]) -> str:
    """``values`` in a sentence, of many the first."""
    shown = ", ".join(map(str, values[:SHOWN]))
    return shown + (", ..." if len(values) > SHOWN else "")


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
            together = divided_experts(request.plan.etp, tp, request.plan.sequence_parallel)
            for split, etp in together:
                axes = {"sequence_parallel": split, "etp": etp, "exchange": exchange}
                layout = Layout(tp=tp, cp=cp, ep=ep, **axes)
                if cp > 1 and layout.least_devices <= devices:
                    yield layout
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


def axes_within(
    values: Mapping[str, Any], searched: Collection[LayoutName], settings: Mapping[str, object]
) -> dict[str, object]:
    """``settings`` of a search of plans with these ``values`` of axes, in the layouts that can have
    them among those that a study ``searched``.

    Axes that those layouts have not are as plans have them by themselves; those that the study's
    layouts have not are open (None).
    """
    every = {*LayoutName} - {LayoutName.AUTO} if LayoutName.AUTO in searched else {*searched}
    can = _layouts_with(values, every)
    if can == every and values.get("layout") != LayoutName.ONE_D.value:
        return dict(settings)  # 1d with a cp is called another
    others: dict[str, object] = {}
    if LayoutName.SEQUENCE not in can:
        others["cp"] = [1]
    elif LayoutName.SEQUENCE not in every:
        others |= {"cp": None, "exchange": None}
    if LayoutName.TWO_D not in can:
        others |= {"tp2": [1], "panels": [1]}
    elif LayoutName.TWO_D not in every:
        others |= {"tp2": None, "panels": None, "exchange": None}
    if can == {LayoutName.ONE_D}:
        others["exchange"] = [KeyExchange.GATHER.value]
    return {**others, **settings, "layout": [name.value for name in LayoutName if name in can]}


def _layouts_with(values: Mapping[str, Any], searched: set[LayoutName]) -> set[LayoutName]:
    """The layouts among ``searched`` that can have the values, else the one that can."""
    if "layout" in values:
        alone = LayoutName(values["layout"])
        # sequences cut with experts, whose keys are gathered, are searched with one tensor axis
        with_experts = alone is LayoutName.SEQUENCE and values.get("ep", 1) > 1
        return {LayoutName.ONE_D if with_experts else alone}
    if max(values.get("tp2", 1), values.get("panels", 1)) > 1:
        return {LayoutName.TWO_D}
    if values.get("exchange", KeyExchange.GATHER.value) != KeyExchange.GATHER.value:
        return searched - {LayoutName.ONE_D} or {LayoutName.SEQUENCE}
    if "cp" in values and len(searched) > 1:
        return {LayoutName.SEQUENCE} if values["cp"] > 1 else searched - {LayoutName.SEQUENCE}
    return searched
