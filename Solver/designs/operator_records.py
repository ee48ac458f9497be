"""What every operator of a best design costs (FLOPs, off-chip bytes, seconds, joules), and the
tensors between its layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from Estimator.chips.energy import OperatorEnergy
from Estimator.plans.layer_costs import layer_names, moded_layers, run_again
from GraphExtractor.graph import Operator, OperatorKind
from Solver.designs.confirmed_schedules import LayerSchedule
from Solver.designs.joint import Choice
from Solver.designs.schedule_records import KeptTensor, PricedOperator
from Solver.designs.search_context import SearchContext
from Solver.hardware import DesignedChips, ExistingDevice
from Solver.schedule.problem import Mode


def scheduled_operators(
    context: SearchContext, row: int, schedules: Sequence[LayerSchedule]
) -> Iterator[PricedOperator]:
    """Operators of the best design on ``row``, in the mode in which its schedules run them."""
    hardware = context.hardware
    assert isinstance(hardware, DesignedChips)  # others have no schedules
    energy = OperatorEnergy(hardware.accelerators.accelerator(row), hardware.platform)
    for item in schedules:
        for each in item.schedule.assignments:
            operator = item.operators.operators[each.operator]
            traffic = energy.traffic(operator, all_cores=each.mode is Mode.ALL)
            seconds = each.end_s - each.start_s - float(item.exposed_s[each.operator])
            yield _priced(
                operator,
                model=item.model,
                layer=item.layer,
                graph=item.graph.partition("_")[0],
                layers=item.layers,
                repeats=item.repeats,
                hbm_bytes=traffic.hbm_bytes,
                seconds=seconds,
                energy=traffic.energy,
            )


def _priced(operator: Operator, **where_and_costs: Any) -> PricedOperator:
    return PricedOperator(
        name=operator.name,
        kind=operator.kind.value,
        flops=operator.flops,
        vector_operations=sum(work.elements for work in operator.vector),
        **where_and_costs,
    )


def streamed_operators(context: SearchContext, choice: Choice) -> Iterator[PricedOperator]:
    """Operators of the chosen plan on a device that exists, without collectives."""
    hardware = context.hardware
    assert isinstance(hardware, ExistingDevice)
    _, shape = choice.group.locate(choice.point)
    graph, plan = shape.graph, choice.group.plan(choice.point)
    distinct, sequence = moded_layers(graph, plan.recompute)
    names = layer_names(graph)
    for place, each in enumerate(distinct):
        layer = graph.layers[each.index]
        mine = tuple(name for name, kind in zip(names, sequence, strict=True) if kind == place)
        passes = {
            "forward": layer.forward.operators,
            "recompute": run_again(layer, each.mode),
            "backward": layer.backward.operators,
        }
        for graph_name, operators in passes.items():
            for operator in operators:
                if operator.kind is OperatorKind.COLLECTIVE:
                    continue
                seconds = hardware.operator_seconds(operator, plan.panels)
                moved = float(operator.bytes_read + operator.bytes_written)
                yield _priced(
                    operator,
                    model=graph.key.model,
                    layer=layer.name,
                    graph=graph_name,
                    layers=mine,
                    repeats=len(mine),
                    hbm_bytes=moved,
                    seconds=seconds,
                    energy=None,
                )


def layer_tensors(choice: Choice) -> Iterator[KeptTensor]:
    """The tensors between the layers of a chosen plan's model."""
    _, shape = choice.group.locate(choice.point)
    names = layer_names(shape.graph)
    for each in shape.graph.tensors:
        destinations = tuple(names[layer] for layer in each.destinations)
        ends = shape.graph.key.model, names[each.source], destinations
        yield KeptTensor(*ends, each.bytes, each.gradient_bytes)
