"""Alternatives to the best design, against searches and enumerations that leave nothing else
open."""

import dataclasses
import itertools
import math
import re

import numpy as np
import pytest

from Estimator.plans.iteration import price_iteration
from Estimator.plans.results import Status
from phaze.report.sentences.differences import terms_of
from phaze.studies.explain.alternatives import alternative
from phaze.studies.explain.constraints import read_constraint
from phaze.studies.explain.repeat import best_design, repeat_search
from phaze_common.errors import InputError
from phaze_common.progress import SilentProgress


@pytest.fixture(scope="module")
def search(finished):
    return repeat_search(finished, SilentProgress())


def asked_of(text):
    return read_constraint(text, on_device=False)


def exhaustive(search, accelerators, *, pp=None, dp=None, micro_batch_size=None, recompute=None):
    """Samples per second of the best plan of every cut, degree and mode on any of the accelerators,
    one by one."""
    study, best = search.request, 0.0
    memory_bytes = max(study.hardware.hbm_sizes_bytes)  # what fits in less fits in more
    for chip in accelerators:
        hardware = search.run.hardware.only([chip])
        machine = hardware.machine(0, memory_bytes)
        for item in search.price(hardware).shapes:
            if micro_batch_size not in {None, item.micro_batch_size}:
                continue
            for shape in item.shapes:
                if recompute not in {None, shape.plan.recompute.value}:
                    continue
                (part,) = shape.parts
                layers = len(shape.graph.sequence)
                for stages in range(1, 17) if pp is None else (pp,):
                    for replicas in range(1, 16 // stages + 1) if dp is None else (dp,):
                        for cuts in itertools.combinations(range(1, layers), stages - 1):
                            counts = tuple(b - a for a, b in itertools.pairwise((0, *cuts, layers)))
                            plan = dataclasses.replace(
                                shape.plan, pp=stages, dp=replicas, stage_layers=counts
                            )
                            priced = price_iteration(plan, part.costs, machine)
                            if priced.status is Status.FEASIBLE:
                                best = max(best, priced.samples_per_s)
    return best


def space_of(search):
    space = search.run.hardware.accelerators
    return [space.accelerator(row) for row in range(len(space))]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "asked", ["pp=2", "pp=3,dp=4", "pp=2,micro_batch_size=4", "pp=1,recompute=full", "dp=1,pp=3"]
)
def test_a_plan_with_given_degrees_is_the_best_of_all_cuts(search, asked):
    constraint = asked_of(asked)
    found = alternative(search, constraint)
    values = {name: value for name, value in constraint.of_the_plan.items() if name != "tp"}
    expected = exhaustive(search, [search.best.point.accelerator], **values)
    assert found.point.value == pytest.approx(expected, rel=1e-9)
    assert found.slower == pytest.approx(search.best.point.value / expected, rel=1e-9)
    (plan,) = found.point.models.values()
    assert all(getattr(plan, name) == value for name, value in constraint.of_the_plan.items())
    assert sum(term.other_s for term in found.terms) == pytest.approx(
        plan.time_per_batch_s, rel=1e-9
    )
    assert found.point.accelerator == search.best.point.accelerator


@pytest.mark.some(1)
@pytest.mark.parametrize("asked", ["num_tc=1", "width=32,num_vc=1", "glb_mib=32,num_tc=16"])
def test_an_accelerator_with_given_values_is_the_best_of_them_all(search, asked):
    constraint = asked_of(asked)
    found = alternative(search, constraint)
    chips = [
        chip
        for chip in space_of(search)
        if all(getattr(chip, name) == value for name, value in constraint.sizes.items())
    ]
    sizes = search.request.hardware.hbm_sizes_bytes
    each = [best_design(search.price(search.run.hardware.only([chip])), sizes) for chip in chips]
    assert found.point.value == pytest.approx(max(one.point.value for one in each), rel=1e-12)
    assert all(
        getattr(found.point.accelerator, name) == value for name, value in constraint.sizes.items()
    )
    assert found.sentences


@pytest.mark.thorough
def test_chip_and_plan_are_chosen_together(search):
    constraint = asked_of("num_tc=1,pp=2,micro_batch_size=1")
    chips = [chip for chip in space_of(search) if chip.num_tc == 1]
    expected = exhaustive(search, chips, pp=2, micro_batch_size=1)
    assert alternative(search, constraint).point.value == pytest.approx(expected, rel=1e-9)


def test_what_the_best_design_has_is_the_best_design(search):
    (plan,) = search.best.point.models.values()
    chip = search.best.point.accelerator
    for asked in (
        f"pp={plan.pp}",
        f"num_tc={chip.num_tc},dp={plan.dp}",
        f"recompute={plan.recompute},width={chip.width}",
    ):
        found = alternative(search, asked_of(asked))
        assert found.slower == 1.0 and found.point == search.best.point
        assert all(term.best_s == term.other_s for term in found.terms)


def test_the_best_design_asked_again_is_what_the_run_says(search, finished):
    assert search.unchanged
    now, then = search.best.point, finished.result.best
    assert now.value == pytest.approx(then.value, rel=1e-12)
    for one, two in ((term.best_s, term.other_s) for term in terms_of(then, now)):
        assert one == pytest.approx(two, rel=1e-12)


def test_other_sizes_than_the_study_has_may_be_asked(search):
    larger = alternative(search, asked_of("micro_batch_size=2"))
    (plan,) = larger.point.models.values()
    assert plan.micro_batch_size == 2 and larger.slower > 0.0
    memory = alternative(search, asked_of("hbm_size=1"))
    assert memory.point is None or memory.point.hbm_bytes == 2**30


def test_a_known_chip_costs_what_the_run_said(search, finished):
    found = alternative(search, asked_of("chip=outside"))
    known = next(
        point for point in finished.result.references if point.hbm_bytes == found.point.hbm_bytes
    )
    assert found.point.value == pytest.approx(known.value, rel=1e-9)
    assert "not in the design space" in found.sentences[0]
    named = "num_tc=2,num_vc=2,width=64,depth=64,width_vc=64,glb_mib=16"
    assert alternative(search, asked_of(named)).point == found.point


@pytest.mark.parametrize("asked", ["hbm_size=0.125", "hbm_size=0.125,pp=2,recompute=full"])
def test_what_does_not_fit_says_by_how_much(search, asked):
    found = alternative(search, asked_of(asked))
    assert found.status is Status.INFEASIBLE and found.point is None and found.slower is None
    size, unit = re.search(
        r"however its layers are cut; ([\d.]+) (MiB|GiB) would do", found.reason
    ).groups()
    gib = float(size) / (1024 if unit == "MiB" else 1)
    for factor, fits in ((1.005, True), (0.97, False)):
        again = alternative(search, asked_of(asked.replace("0.125", f"{gib * factor}")))
        assert (again.point is not None) is fits


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("num_tc=3", "no accelerator of the design space has num_tc 3; it has 1, 4, 16"),
        ("chip=tpu_v9", "no known chip 'tpu_v9'; it has outside"),
        ("tp=5", "use one of 1, 2"),
        ("tp=64", "exceeds the 16 devices"),
        ("pp=15", "pp must be at most the 14 layers of the model"),
        (
            "pp=4,dp=8",
            "pp 4 x dp 8 needs 32 devices, sixteen has 16; possible with the rest as it is: pp of "
            "at most 2",
        ),
        (
            "dp=100",
            "dp 100 replicas with micro-batches of 1 need a global batch of at least 100, given 64",
        ),
        (
            "interleave=5",
            "pp x interleave must divide the 12 blocks of the model, given interleave 5",
        ),
        ("sequence_parallel=yes", "ask for a tp above 1 with it, such as tp=2"),
        ("micro_batch_size=128", "exceeds the global batch size 64"),
        ("width=32,width_vc=128", "has width 32 and width_vc 128 together"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_priced(
    finished, monkeypatch, asked, message
):
    monkeypatch.setattr("phaze.studies.explain.repeat.priced", None)
    with pytest.raises(InputError, match=message):
        alternative(repeat_search(finished, SilentProgress()), asked_of(asked))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("pp", "'pp' is not KEY=VALUE"),
        ("", "is not KEY=VALUE"),
        ("pp=8,pp=9", "pp is given twice"),
        ("stages=8", "unknown key 'stages'"),
        ("pp=eight", "pp is 'eight', but must be a whole number"),
        ("chip=outside,num_tc=4", "contradict each other"),
        ("glb_mib=4,glb_bytes=4194304", "exclude each other"),
        ("recompute=some", "one of none, selective, full"),
    ],
)
def test_what_cannot_be_read_is_refused(asked, message):
    with pytest.raises(InputError, match=message):
        asked_of(asked)


def test_a_run_whose_prices_have_changed_is_priced_anew_and_says_so(finished, caplog):
    best = dataclasses.replace(finished.result.best, value=finished.result.best.value * 1.01)
    other = dataclasses.replace(finished, result=dataclasses.replace(finished.result, best=best))
    search = repeat_search(other, SilentProgress())
    assert not search.unchanged and "have changed since" in caplog.text
    found = alternative(search, asked_of("num_tc=1"))  # the bounds of the run cannot be relied upon
    assert math.isfinite(found.point.value)
    same = alternative(dataclasses.replace(search, finished=finished), asked_of("num_tc=1"))
    assert found.point == same.point


def test_a_study_whose_files_are_gone_is_refused_in_a_sentence(finished):
    gone = dataclasses.replace(
        finished, settings=finished.settings | {"cluster": "/nowhere/cluster.yaml"}
    )
    with pytest.raises(
        InputError, match=r"cannot be repeated: cluster '/nowhere/cluster.yaml' is not a file"
    ):
        repeat_search(gone, SilentProgress())


def test_nothing_is_compared_with_nothing(finished):
    nothing = dataclasses.replace(finished, result=dataclasses.replace(finished.result, best=None))
    with pytest.raises(InputError, match="nothing to compare"):
        repeat_search(nothing, SilentProgress())


def test_numbers_are_plain(search):
    found = alternative(search, asked_of("num_tc=1,num_vc=1"))
    assert found.point.accelerator.num_tc == found.point.accelerator.num_vc == 1
    assert not any("nan" in sentence or "inf " in sentence for sentence in found.sentences)
    assert np.isfinite([term.other_s for term in found.terms]).all()
