"""The search under Aceso's cost model against trying every plan; bounds of single stages against
every way to run them."""

import random
from pathlib import Path

import numpy as np
import pytest
from aceso_databases import shortest_plan_s, tiny, ways, write_database
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_common.errors import InfeasibleError
from third_party.aceso.baselines import baselines
from third_party.aceso.database import read_database
from third_party.aceso.evaluation import evaluate
from third_party.aceso.exact_stages import exact_stage
from third_party.aceso.least_limits import least_limit_us, longest_stages, windows
from third_party.aceso.models import find_model
from third_party.aceso.partitions import Cut
from third_party.aceso.pricing import LABELS, MANY_LABELS, Pricing, tried_multipliers
from third_party.aceso.questions import Machine, Question
from third_party.aceso.reaches import choices_of
from third_party.aceso.search import search
from third_party.aceso.spaces import NEVER, stage_space
from third_party.aceso.stage_paths import Stretch, path_price

FAMILIES = ("gpt", "t5", "resnet")
GENEROUS_S = 1000.0


def least_memory(folder: Path, seed: int, family: str) -> float:
    """MiB that the model needs on one device if nothing is recomputed."""
    database = tiny(folder, seed, family)
    return min(way.mib for way in ways(database, 0, 4, 1, 1, False, True))


@pytest.mark.some(1)
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=6)
@given(
    seed=st.integers(0, 10**6),
    share=st.floats(0.3, 1.6),
    devices=st.sampled_from((1, 2, 3, 4)),
    per_node=st.sampled_from((2, 4)),
    stages=st.sampled_from((2, 4)),
)
def test_the_plan_found_is_the_best_of_all(
    tmp_path_factory: pytest.TempPathFactory,
    family: str,
    seed: int,
    share: float,
    devices: int,
    per_node: int,
    stages: int,
) -> None:
    folder = tmp_path_factory.mktemp("database")
    limit = share * least_memory(folder, seed, family)
    database = tiny(folder, seed, family)
    best_s = shortest_plan_s(database, devices, min(per_node, devices), 4, limit, stages)
    question = Question(
        database,
        devices,
        4,
        limit,
        devices_per_node=per_node,
        most_stages=stages,
        time_limit_s=GENEROUS_S,
    )
    if best_s is None:
        with pytest.raises(InfeasibleError):
            search(question)
        return
    found = search(question)
    assert found.status == "optimal"
    assert found.iteration_s == pytest.approx(best_s, rel=1e-9)
    assert found.bound_s <= best_s * (1 + 1e-12)
    priced = evaluate(found.plan, database, per_node)
    assert priced.iteration_s == found.iteration_s and priced.memory_mib <= limit
    for baseline in baselines(question).values():
        if baseline.iteration_s is not None:
            assert baseline.iteration_s >= best_s * (1 - 1e-12)
            assert (
                baseline.plan is not None
                and evaluate(baseline.plan, database, per_node).memory_mib <= limit
            )


@pytest.mark.parametrize("family", FAMILIES)
def test_no_way_to_run_a_stage_is_below_its_bound_and_one_is_at_its_exact_time(
    tmp_path: Path, family: str
) -> None:
    """Bounds over multipliers, and exact times with all labels and with so few that some must stand
    for others."""
    drawn = random.Random(7)
    tight = 0
    for seed in range(5):
        folder = tmp_path / str(seed)
        folder.mkdir()
        limit = drawn.uniform(0.3, 1.2) * least_memory(folder, seed, family)
        database = tiny(folder, seed, family)
        question = Question(database, 2, 4, limit)
        chain = question.chain()
        spaces = tuple(
            space
            for devices in (1, 2)
            if (space := stage_space(database, chain, 2, devices)) is not None
        )
        pricing = Pricing(question, chain, spaces, 1e9)
        pricing.tighten(1e9)
        for first, end, at, behind in (
            (0, 4, 0, 0),
            (0, 2, 0, 1),
            (0, 4, 1, 0),
            (1, 4, 1, 0),
            (2, 4, 0, 0),
        ):
            leaves = end == 4
            priced = ways(database, first, end, spaces[at].devices, 2, False, leaves)
            fit = [way.us for way in priced if way.mib + behind * (way.more_mib - way.mib) <= limit]
            least = min(fit, default=NEVER)
            cut = Cut(0, at, behind, first, end - first)
            assert pricing.lower[pricing.place(cut)] <= least * (1 + 1e-12)
            stretch = pricing.stretch(cut)
            exact = exact_stage(
                spaces[at].arrays, stretch, pricing.densities, NEVER, MANY_LABELS, LABELS[-1]
            )
            assert exact.us == pytest.approx(least, rel=1e-12)
            assert exact.least_us == pytest.approx(least, rel=1e-9) or not fit
            thinned = exact_stage(
                spaces[at].arrays, stretch, np.array([0.0, 1.0]), NEVER, 1, LABELS[-1]
            )
            assert thinned.least_us <= least * (1 + 1e-12) <= thinned.us * (1 + 1e-9)
            tight += exact.us < NEVER and max(fit) > least
    assert tight > 5  # in most there was a choice


def test_layers_that_repeat_are_priced_as_if_each_were_written_out(tmp_path: Path) -> None:
    """A GPT of six equal layers, and the same operators as one long Wide-ResNet would be: no start
    is alike, same answer."""
    layer = ("enc-1st-layernorm", "enc-attention-context", "enc-post-MLP-dropout")
    write_database(tmp_path, 3, "gpt", rows=("encoder-embedding", *layer, "gpt-post-process"))
    database = read_database(tmp_path, find_model("gpt", "tiny", 6))
    limit = 700.0
    found = search(Question(database, 4, 4, limit, devices_per_node=2, time_limit_s=GENEROUS_S))
    assert found.status == "optimal"
    question = Question(database, 4, 4, limit, devices_per_node=2)
    chain = question.chain()
    for micro_batch in (1, 2):
        spaces = tuple(
            space
            for devices in (1, 2)
            if (space := stage_space(database, chain, micro_batch, devices))
        )
        pricing = Pricing(question, chain, spaces, 1e9)
        pricing.tighten(1e9)
        for first, length in ((1, 4), (4, 4), (13, 4), (10, 10), (16, 4), (0, 20), (18, 2)):
            for at in range(len(spaces)):
                cut = Cut(0, at, 0, first, length)
                exact = exact_stage(
                    spaces[at].arrays, pricing.stretch(cut), pricing.densities, NEVER, 10**6, 10**8
                )
                assert pricing.lower[pricing.place(cut)] <= exact.us * (1 + 1e-12)
    assert len(pricing.layout.starts) < chain.length


def test_a_stage_of_many_equal_layers_is_near_its_bound_without_labels(tmp_path: Path) -> None:
    """At the best multiplier all layers are as good recomputed as not: some of them are."""
    layer = ("enc-1st-layernorm", "enc-attention-context", "enc-post-MLP-dropout")
    write_database(tmp_path, 5, "gpt", rows=("encoder-embedding", *layer, "gpt-post-process"))
    database = read_database(tmp_path, find_model("gpt", "tiny", 60))
    chain = Question(database, 1, 4, 1e9).chain()
    space = stage_space(database, chain, 2, 1)
    assert space is not None
    nothing, everything = (np.full(chain.length, again, dtype=np.int64) for again in (0, 1))
    stretch = Stretch(chain.row_array, chain.pair_array, 0, 0, 1, 1e9)
    fast_us, most_mib = path_price(space.arrays, stretch, np.zeros_like(nothing), nothing)
    slow_us, least_mib = path_price(space.arrays, stretch, np.zeros_like(nothing), everything)
    for share in (0.25, 0.5, 0.75):
        limit = least_mib + share * (most_mib - least_mib)
        found = exact_stage(
            space.arrays,
            stretch._replace(limit_mib=limit),
            tried_multipliers((space,)),
            NEVER,
            1,
            0,
        )
        assert fast_us < found.least_us <= found.us < slow_us
        assert found.us - found.least_us < 0.05 * (slow_us - fast_us)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("model", "size", "gpus", "batch", "published_s"),
    [
        ("gpt", "1_3B", 4, 1024, 101.18),
        ("gpt", "2_6B", 8, 1024, 87.13),
        ("resnet", "2B", 4, 1536, 49.32),
    ],
)
def test_plans_are_better_than_those_that_aceso_found_and_proven(
    shared_data: Path, model: str, size: str, gpus: int, batch: int, published_s: float
) -> None:
    """The published seconds are those of Aceso's own search (EuroSys 2024, repository of the
    paper)."""
    database = read_database(shared_data / "aceso" / "v100_nvlink_4x8", find_model(model, size))
    found = search(Question(database, gpus, batch, 28000.0, time_limit_s=GENEROUS_S, gap=1e-3))
    assert found.iteration_s < published_s
    assert found.iteration_s - found.bound_s <= 1e-3 * found.iteration_s
    assert evaluate(found.plan, database).memory_mib <= 28000.0


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_stages_of_the_best_plan_lie_where_they_can_and_none_are_as_fast_as_the_least_limit(
    tmp_path: Path, family: str
) -> None:
    closed = 0
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        limit = (0.5 + 0.2 * seed) * least_memory(folder, seed, family)
        database = tiny(folder, seed, family)
        question = Question(
            database, 4, 4, limit, devices_per_node=2, most_stages=4, time_limit_s=GENEROUS_S
        )
        try:
            plan = search(question).plan
        except InfeasibleError:
            continue
        chain, machine = question.chain(), Machine(4, 2)
        sizes = [
            devices
            for devices in (1, 2)
            if stage_space(database, chain, plan.micro_batch, devices) is not None
        ]
        spaces = tuple(stage_space(database, chain, plan.micro_batch, devices) for devices in sizes)
        choices = choices_of(spaces, chain, limit, tried_multipliers(spaces))
        slowest_us = max(stage.us for stage in evaluate(plan, database, 2).stages)
        found = windows(choices, machine, 4, slowest_us)
        longest = longest_stages(choices, chain, slowest_us)
        first, rest = 0, 4
        for behind, stage in zip(reversed(range(len(plan.stages))), plan.stages, strict=True):
            assert found.lowest[behind, rest] <= first <= found.highest[behind, rest]
            assert len(stage.choices) <= longest[sizes.index(stage.devices)]
            first, rest = first + len(stage.choices), rest - stage.devices
        assert least_limit_us(choices, machine, 4, (1e-3, slowest_us)) <= slowest_us
        least = least_limit_us(choices, machine, 4, (1e-3, 100.0 * slowest_us))
        assert least <= slowest_us
        closed += least > 0.5 * slowest_us
    assert closed > 0


def test_however_slow_stages_may_be_all_devices_are_used(tmp_path: Path) -> None:
    """Few stages would hold the whole model, but as many as there are devices must be possible."""
    database = tiny(tmp_path, 1, "gpt")
    question = Question(database, 4, 4, 1e9, devices_per_node=2)
    chain = question.chain()
    spaces = (stage_space(database, chain, 1, 1),)
    choices = choices_of(spaces, chain, 1e9, tried_multipliers(spaces))
    found = windows(choices, Machine(4, 2), 4, 1e12)
    assert found.lowest[3, 4] == 0 and (found.highest[:3, 3] > 0).all()
    assert least_limit_us(choices, Machine(4, 2), 4, (1e-3, 1e12)) < 1e11
