"""Which operators of a layer are in which modules that frameworks recompute by name, and what a
layer saves less where they do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from GraphExtractor.fusion import Readers
from GraphExtractor.graph import CollectiveKind, OperatorKind
from GraphExtractor.operators import TracedOperator
from GraphExtractor.saved import SavedValues, less_in_fp8, less_joined
from GraphExtractor.values import Source, Value
from phaze_common.recompute_modules import RecomputeModule

_ATTENTION = re.compile(r"(?:self_)?att(?:n|ention)|self_attention")
_MLP = re.compile(r"mlp|feed_forward|ffn|block_sparse_moe")
_NORM = re.compile(r"(?:\w+_)?(?:layer_?)?norm\d?|ln_\w+")
_UP_PROJECTION = "kv_b_proj"
# products of latent attention that are not of its up-projection
_OTHER_PRODUCTS = re.compile(r"\w*_a_proj\w*|q_a_layernorm|o_proj|\w*(?:q|k|v)_proj")
_SHARED = re.compile(r"shared_experts?\w*")


@dataclass(frozen=True)
class ModuleValues:
    """Operators of a module, in order; what a layer ``drops`` of what it saves where the module is
    recomputed, and ``adds`` to it."""

    name: RecomputeModule
    operators: tuple[TracedOperator, ...]
    drops: frozenset[Value]
    adds: frozenset[Value]

    def saved(self, values: frozenset[Value]) -> frozenset[Value]:
        """What is saved instead of ``values``."""
        return (values - self.drops) | self.adds


def modules_of(
    layer: int, operators: tuple[TracedOperator, ...], saved: SavedValues, readers: Readers
) -> tuple[ModuleValues, ...]:
    """The modules of ``layer`` that have any of its ``operators``."""
    forward = [each for each in operators if not each.backward]
    again = {each.forward for each in operators if each.yields.value == "output" and each.backward}
    gathered = {
        value
        for each in forward
        if each.collective is not None and each.collective.kind is CollectiveKind.ALL_GATHER
        for value in each.outputs
    }
    found = []
    for name, members in _members(forward):
        inside = {each.node for each in members if each.node not in again}
        if not inside:
            continue
        kept = tuple(each for each in members if each.node in inside)
        drops, adds = _changes(name, layer, kept, saved, readers)
        if name is RecomputeModule.BETWEEN_PRODUCTS:  # a compiler makes nothing that nobody reads
            kept = _needed(kept, drops)
            drops, adds = _changes(name, layer, kept, saved, readers)
        adds -= gathered  # is gathered again, as backward passes do
        if drops:
            found.append(ModuleValues(name, kept, drops, adds - drops))
    return tuple(found)


def less_by(
    module: ModuleValues,
    layer: int,
    saved: SavedValues,
    operators: tuple[TracedOperator, ...],
    readers: Readers,
) -> tuple[int, int, int]:
    """Bytes that the layer saves less where ``module`` is recomputed, and what frameworks then save
    less of the rest in fp8 or with joined operators, beyond what they do without."""
    rest = replace(saved, none=module.saved(saved.none))
    if module.name.of_all_operators:  # what is kept stays as operators made it
        rest = replace(saved, none=frozenset())
    plain = sum(each.bytes for each in module.drops) - sum(each.bytes for each in module.adds)
    in_fp8 = less_in_fp8(layer, rest, readers).none - less_in_fp8(layer, saved, readers).none
    joined = (
        less_joined(layer, rest, operators, readers).none
        - less_joined(layer, saved, operators, readers).none
    )
    return plain, in_fp8, joined


def _members(
    forward: list[TracedOperator],
) -> Iterator[tuple[RecomputeModule, list[TracedOperator]]]:
    paths = {each.node: each.name.split(".") for each in forward}
    latent = any(_UP_PROJECTION in path for path in paths.values())
    # blocks of experts, whatever they are called
    routed = {tuple(path[: path.index("experts")]) for path in paths.values() if "experts" in path}

    def some(
        name: RecomputeModule, chosen: Iterable[bool]
    ) -> tuple[RecomputeModule, list[TracedOperator]]:
        return name, [each for each, member in zip(forward, chosen, strict=True) if member]

    def first(pattern: re.Pattern[str], each: TracedOperator) -> bool:
        path = paths[each.node]
        return len(path) > 1 and pattern.fullmatch(path[0]) is not None

    in_mlp = [first(_MLP, each) for each in forward]
    in_routed = [
        any(tuple(paths[each.node][: len(block)]) == block for block in routed) for each in forward
    ]
    yield some(RecomputeModule.CORE_ATTENTION, (each.core_attention for each in forward))
    cores = [place for place, each in enumerate(forward) if each.core_attention]
    yield some(
        RecomputeModule.LATENT_UP_PROJECTION,
        (
            latent
            and place < max(cores, default=0)
            and first(_ATTENTION, each)
            and not each.core_attention
            and not any(_OTHER_PRODUCTS.fullmatch(part) for part in paths[each.node])
            for place, each in enumerate(forward)
        ),
    )
    yield some(RecomputeModule.MLP, (each and not routed for each in in_mlp))
    yield some(RecomputeModule.EXPERTS, in_routed)
    yield some(
        RecomputeModule.EXPERT_ACTIVATION,
        (
            "experts" in paths[each.node] and each.kind is OperatorKind.ELEMENTWISE
            for each in forward
        ),
    )
    yield some(
        RecomputeModule.NORMS,
        (len(paths[each.node]) == 2 and first(_NORM, each) for each in forward),
    )
    yield some(
        RecomputeModule.SHARED_EXPERTS,
        (any(_SHARED.fullmatch(part) for part in paths[each.node]) for each in forward),
    )
    products = [each.kind is OperatorKind.GEMM and not each.core_attention for each in forward]
    numbers = [sum(products[: place + 1]) for place in range(len(products))]
    yield some(
        RecomputeModule.SECOND_PRODUCTS,
        (
            not each.core_attention and not (product and number % 2)
            for each, product, number in zip(forward, products, numbers, strict=True)
        ),
    )
    yield some(
        RecomputeModule.BETWEEN_PRODUCTS,
        (
            each.core_attention or each.kind not in (OperatorKind.GEMM, OperatorKind.COLLECTIVE)
            for each in forward
        ),
    )


def _needed(
    members: tuple[TracedOperator, ...], wanted: frozenset[Value]
) -> tuple[TracedOperator, ...]:
    """Those of ``members`` that what is ``wanted`` is made by."""
    found, left = [], set(wanted)
    for each in reversed(members):
        if not left.isdisjoint(each.outputs):
            found.append(each)
            left.update(use.value for use in each.uses)
    return tuple(reversed(found))


def _changes(
    name: RecomputeModule,
    layer: int,
    members: tuple[TracedOperator, ...],
    saved: SavedValues,
    readers: Readers,
) -> tuple[frozenset[Value], frozenset[Value]]:
    """What of ``saved`` is dropped where ``members`` run again, and what they need besides."""
    inside = {each.node for each in members}
    made = {value for each in members for value in each.outputs}
    drops = set()
    for value in made & saved.none:
        again = [each for each in readers[value] if each.backward and each.layer == layer]
        if name.without_output or all(each.forward in inside for each in again):
            drops.add(value)
    adds = {
        use.value
        for each in members
        for use in each.uses
        if use.value not in made
        and use.value not in saved.none
        and use.value.source not in (Source.PARAMETER, Source.CONSTANT)
        and use.value.node.op != "get_attr"
    }
    return frozenset(drops), frozenset(adds)
