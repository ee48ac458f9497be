"""Searches of chips whose links are part of the design: what is best, what links take, and what is
refused."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from small_study import solved, write_hardware
from test_whole_chips import SPACE

import phaze
from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from Estimator.chips.own_links import own_links
from Estimator.hardware_files import load_cluster
from Estimator.network.own_links import check_links, over_links
from phaze.runs.finished_run import open_run
from phaze.settings.problem import hardware_of
from phaze.settings.request import Request
from phaze.settings.resolve import resolve
from phaze.studies.context import search_context
from phaze.studies.robust.uncertain import Physics, uncertain_constants
from phaze_common.choices import Objective
from phaze_common.errors import InputError
from phaze_common.progress import SilentProgress
from phaze_common.setting_fields import Mode
from Solver.designs.re_solve import priced
from Solver.hardware import DesignedChips
from Solver.results import SearchResult
from Solver.schedule import native
from Solver.schedule.solver import NodeLimit

GPT = "gpt:layers=2,hidden=512,heads=8,vocabulary=1000,sequence_length=128"
LINKS = ["2x2GB/s", "4x10GB/s", "18x50GB/s"]
BANDWIDTH = "bandwidth_bytes_per_s"
CLUSTER: dict[str, Any] = {
    "name": "two_tiers",
    "num_devices": 16,
    "tiers": [
        {
            "name": "own",
            "group_size": 4,
            "bandwidth_bytes_per_s": 2.0e10,
            "latency_s": 1.0e-6,
            "link_parts": 1,
        },
        {"name": "far", "group_size": 16, "bandwidth_bytes_per_s": 1.0e10, "latency_s": 5.0e-6},
    ],
}
LINKED = SPACE | {
    "axes": SPACE["axes"] | {"num_tc": [8], "memory": ["hbm2e:1", "hbm3:2"], "links": LINKS},
    "references": [],
}


def study(
    folder: Path,
    space: dict[str, Any] = LINKED,
    network: dict[str, Any] = CLUSTER,
    **changes: object,
) -> Request:
    settings: dict[str, object] = {
        "model": "bertbase",
        "micro_batch_size": [4],
        "sequence_length": 128,
        "global_batch_size": 64,
        "tp": [2, 4],
        "recompute": "none",
    }
    return resolve(
        {},
        settings
        | write_hardware(folder, space, network)
        | {"output": str(folder / "out")}
        | changes,
    )


def chips_of(folder: Path, **changes: object) -> DesignedChips:
    hardware = hardware_of(study(folder, **changes))
    assert isinstance(hardware, DesignedChips)
    return hardware


def value_of(request: Request, hardware: DesignedChips) -> float:
    found = priced(search_context(request, SilentProgress()), hardware).best_optimum()
    return 0.0 if found is None else found.value


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SearchResult]:
    folder = tmp_path_factory.mktemp("linked")
    return folder, solved(study(folder), axes=True)


@pytest.mark.parametrize(
    "objective",
    [
        Objective.THROUGHPUT,
        pytest.param(Objective.THROUGHPUT_PER_AREA, marks=pytest.mark.thorough),
        Objective.COST_PER_TOKEN,
    ],
)
def test_the_best_is_the_best_of_all_chips_each_searched_in_a_cluster_as_fast_as_its_links(
    objective: Objective, tmp_path: Path
) -> None:
    """The other way round: no links are stated, the cluster's file says what they give."""
    request = study(tmp_path, objective=objective.value)
    result, hardware, values = solved(request), hardware_of(request), []
    assert isinstance(hardware, DesignedChips) and result.best is not None and result.best.optimal
    assert len(set(hardware.accelerators.links)) == len(LINKS)
    for text in LINKS:
        tiers = [
            CLUSTER["tiers"][0] | {"bandwidth_bytes_per_s": own_links(text).bandwidth_bytes_per_s},
            CLUSTER["tiers"][1],
        ]
        unlinked = LINKED | {
            "axes": {key: value for key, value in LINKED["axes"].items() if key != "links"}
        }
        alone = study(
            tmp_path / text.replace("/", ""),
            unlinked,
            CLUSTER | {"tiers": tiers},
            objective=objective.value,
        )
        best = solved(alone).best
        values.append(0.0 if best is None else best.value)
    assert result.best.value == pytest.approx(max(values), rel=1e-12)
    assert (
        result.best.accelerator is not None
        and result.best.accelerator.links == LINKS[int(np.argmax(values))]
    )


def test_each_chip_of_a_space_is_priced_as_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together with others of other links, alone, and standing on a cluster of its own; schedules
    are proven at once, which of several chips only those are that others do not dominate."""
    monkeypatch.setitem(native.NODES, NodeLimit.FIRST, native.NODES[NodeLimit.THOROUGH])
    request = study(
        tmp_path,
        space=LINKED
        | {"axes": LINKED["axes"] | {"num_vc": [8], "glb_mib": [32], "memory": ["hbm3:2"]}},
    )
    hardware = hardware_of(request)
    assert isinstance(hardware, DesignedChips)
    run = search_context(request, SilentProgress())
    together = priced(run, hardware)
    (group,) = together.groups(run.problem.memory_bytes[0])
    for row in range(len(hardware.accelerators)):
        chip = hardware.accelerators.accelerator(row)
        points = [place * group.configurations + row for place in range(len(group.shapes))]
        mine = min(each.iteration_s for each in group.evaluated(np.array(points)))
        alone, standing = (
            value_of(request, hardware.only([chip])),
            value_of(request, hardware.standing(chip)),
        )
        assert (
            group.batch_samples / mine
            == pytest.approx(alone, rel=1e-12)
            == pytest.approx(standing, rel=1e-12)
        )
        stands, own = (
            hardware.standing(chip).some(np.array([0])).metrics,
            hardware.only([chip]).metrics,
        )
        for name in (
            "owning_usd",
            "static_w",
            "embodied_kg",
            "area_mm2",
        ):  # no less is known of some of those that stand
            assert getattr(stands, name) == getattr(own, name) > 0.0
        assert stands.use == own.use is not None


def test_what_streams_is_priced_on_the_links_of_each_chip(tmp_path: Path) -> None:
    """Panels of 2D products and keys around rings, of chips with different links at once and one by
    one."""
    axes = LINKED["axes"] | {"num_vc": [8], "glb_mib": [32], "width": [128], "memory": ["hbm3:2"]}
    ring = {"layout": "sequence", "cp": [4], "tp": [1], "exchange": "ring"}
    for number, plan in enumerate(({"layout": "2d", "tp": [2], "tp2": [2]}, ring)):
        request = study(tmp_path / str(number), LINKED | {"axes": axes}, model=GPT, **plan)
        hardware, run = hardware_of(request), search_context(request, SilentProgress())
        assert isinstance(hardware, DesignedChips) and len(hardware.accelerators) == len(LINKS)
        (group,), values = priced(run, hardware).groups(run.problem.memory_bytes[0]), []
        for row in range(len(LINKS)):
            points = [place * group.configurations + row for place in range(len(group.shapes))]
            mine = group.batch_samples / min(
                each.iteration_s for each in group.evaluated(np.array(points))
            )
            assert mine == pytest.approx(
                value_of(request, hardware.only([hardware.accelerators.accelerator(row)])),
                rel=1e-12,
            )
            values.append(mine)
        assert values == sorted(values) and values[0] < values[-1]


def test_more_links_are_never_slower_and_take_area_power_and_money(tmp_path: Path) -> None:
    hardware, request = chips_of(tmp_path), study(tmp_path)
    assert hardware.space is not None
    chip, reached = hardware.accelerators.accelerator(0), []
    for text in LINKS:
        linked = hardware.space.with_area(replace(chip, links=text))
        whole = hardware.space.whole(AcceleratorSet.of([linked]))
        metrics = (
            whole.area_mm2,
            whole.peak_w,
            whole.static_w,
            whole.cost_usd,
            whole.owning_usd,
            whole.embodied_kg,
        )
        reached.append(
            (value_of(request, hardware.only([linked])), *(float(each[0]) for each in metrics))
        )
    for fewer, more in pairwise(reached):
        assert more[0] >= fewer[0] and all(
            after > before for before, after in zip(fewer[1:], more[1:], strict=True)
        )


def test_the_run_tells_its_links_and_reads_back(
    found: tuple[Path, SearchResult], capsys: pytest.CaptureFixture[str]
) -> None:
    best = found[1].best
    folder = next((found[0] / "out").rglob("best.json")).parent
    assert (
        best is not None and best.accelerator is not None and open_run(folder).result.best == best
    )
    axis = next(each for each in best.axes if each.axis == "links")
    assert [value.value for value in axis.values] == LINKS and axis.chosen == best.accelerator.links
    assert set(open_run(folder).designs["links"]) == set(LINKS)
    assert phaze.main(["evaluate", "--plan", str(folder / "best.json"), "--format", "json"]) == 0
    (plan,) = best.models.values()
    assert f'"iteration_s":{plan.time_per_batch_s:.6}'[:20] in capsys.readouterr().out.replace(
        " ", ""
    )
    assert (
        phaze.main(["report", str(folder)]) == 0
        and "links of a chip" in (folder / "report.html").read_text()
    )


def test_a_finished_run_is_asked_for_other_links_and_memory(
    found: tuple[Path, SearchResult], capsys: pytest.CaptureFixture[str]
) -> None:
    """The design takes what is offered then, and no constant is changed that its links decide."""
    folder = str(next((found[0] / "out").rglob("best.json")).parent)
    asked = ["--what-if", "links=2x2GB/s", "--what-if", "memory=hbm2e:1", "--format", "json"]
    assert phaze.main(["explain", folder, *asked]) == 0
    slower, smaller = json.loads(capsys.readouterr().out)["what_ifs"]
    assert slower["same"] < 1.0 and slower["best"] < 1.0 and smaller["same"] is not None
    assert slower["point"]["accelerator"]["links"] == "2x2GB/s"
    assert smaller["point"]["accelerator"]["memory_system"] == "hbm2e:1"
    assert phaze.main(["explain", folder, "--instead", "glb_bytes=4MiB"]) == 0
    capsys.readouterr()
    assert phaze.main(["explain", folder, "--what-if", "network_bandwidth=2x"]) == 2
    assert "follows from the chips' own links" in capsys.readouterr().err


def test_what_is_not_known_of_links_is_how_much_of_them_is_reached(tmp_path: Path) -> None:
    space = study(tmp_path).records.space
    assert space is not None
    cluster = study(tmp_path).records.cluster
    for stated in (space, replace(space, axes=replace(space.axes, links=None))):
        (found,) = (
            each
            for each in uncertain_constants(Physics(stated, cluster))
            if each.name == "cluster.tiers.*.efficiency"
        )
        assert found.paths == ("cluster.tiers.0.efficiency", "cluster.tiers.1.efficiency")
        assert (
            max(found.high * tier.efficiency for tier in cluster.tiers) <= 1.0 + 1e-12
        )  # and what links cost stays


def test_where_traffic_slows_computation_down_faster_links_close_nothing(tmp_path: Path) -> None:
    """Contention is in proportion to the bandwidth of the links, so that messages of mere latency
    are better off on slow ones."""
    metrics = chips_of(tmp_path).metrics
    assert metrics.tier_bytes_per_s is not None and metrics.links_disturb
    first = metrics.tier_bytes_per_s[:, 0]
    columns = [column.tolist() for column in metrics.of_plans.T]
    assert first.tolist() in columns and (-first).tolist() in columns
    alone = replace(metrics, links_disturb=False)
    assert first.tolist() not in [column.tolist() for column in alone.of_plans.T]


def test_a_chip_of_a_file_has_links_of_its_own(tmp_path: Path) -> None:
    sizes = {
        "num_tc": 8,
        "num_vc": 8,
        "width": 64,
        "depth": 64,
        "width_vc": 128,
        "glb_mib": 32,
        "memory": "hbm3:2",
    }
    (tmp_path / "chip.yaml").write_text(yaml.safe_dump(sizes | {"links": "6 x 25 GB/s"}))
    chip = study(tmp_path, chip=str(tmp_path / "chip.yaml")).records.chip
    assert chip is not None and chip.links == "6x25GB/s"
    (tmp_path / "chip.yaml").write_text(yaml.safe_dump(sizes))
    with pytest.raises(InputError, match="links is left out"):
        study(tmp_path, chip=str(tmp_path / "chip.yaml"))
    one = study(tmp_path, chip=str(tmp_path / "chip.yaml"), links=["4x10GB/s"]).records.chip
    assert one is not None and one.links == "4x10GB/s"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("18", "there is no x between the number of links and the bandwidth of each"),
        ("18*25GB/s", "there is no x between the number of links and the bandwidth of each"),
        ("0x25GB/s", "there cannot be 0 links"),
        ("9999x25GB/s", "there cannot be 9999 links"),
        ("-1x5GB/s", "'-1' is no number of links"),
        ("1.5x25GB/s", "'1.5' is no number of links"),
        ("x25GB/s", "'' is no number of links"),
        ("18x0GB/s", "a link cannot have 0GB/s"),
        ("18x-25GB/s", "a link cannot have -25GB/s"),
        ("18x25", "'25' is no bandwidth without a unit"),
        ("18x25GB", "'25GB' is no bandwidth"),
        ("18x", "'' is no bandwidth"),
    ],
)
def test_links_in_another_form_are_refused_with_what_is_wrong(
    text: str, wrong: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refused:
        study(tmp_path, links=[text])
    allowed = "give 1 to 4096 links and the bandwidth of each, each way, such as 18x25GB/s"
    assert str(refused.value) == f"links is {text!r}: {wrong}; {allowed}"


def test_links_alike_have_one_label() -> None:
    assert own_links("18 x 25 GB/s") == own_links("18x0.025TB/s") == own_links("18x200Gbit/s")
    assert (
        own_links("18 x 25 GB/s").label == "18x25GB/s"
        and own_links("1x25GB/s").words == "1 link of 25 GB/s"
    )


@pytest.mark.parametrize(
    ("cluster", "text", "said"),
    [
        ("torus_3d", "18x25GB/s", None),
        ("torus_3d", "8x50GB/s", "give a multiple of 6 links, such as 6x66.67GB/s"),
        ("torus_2d", "6x50GB/s", "give a multiple of 4 links"),
        ("tpu_v4", "6x50GB/s", None),
        ("fully_connected", "7x64GB/s", None),
        (
            "fully_connected",
            "18x25GB/s",
            "cannot share 18 out evenly over direct links between all; give a multiple of 7 links",
        ),
        ("v100_4x8", "6x25GB/s", None),
        ("rail_optimised", "18x25GB/s", None),
        ("dgx_h100", "5x25GB/s", None),
    ],
)
def test_links_must_be_shared_out_evenly(cluster: str, text: str, said: str | None) -> None:
    if said is not None:
        with pytest.raises(InputError, match=said):
            check_links(load_cluster(cluster), own_links(text))
        return
    check_links(load_cluster(cluster), own_links(text))


def test_tiers_over_own_links_get_what_these_give() -> None:
    """As the files of TPU v4 and DGX H100 say it of their own links; ports beyond stay as they
    are."""
    assert over_links(load_cluster("tpu_v4"), own_links("6x50GB/s")) == load_cluster("tpu_v4")
    assert over_links(load_cluster("dgx_h100"), own_links("18x25GB/s")) == load_cluster("dgx_h100")
    assert over_links(load_cluster("fully_connected"), own_links("7x64GB/s")) == load_cluster(
        "fully_connected"
    )
    twice = over_links(load_cluster("dgx_h100"), own_links("36x25GB/s"))
    assert [tier.bandwidth_bytes_per_s for tier in twice.tiers] == [9e11, 5e10]
    assert over_links(twice, None) is twice


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"cluster": "torus_3d", "links": ["18x25GB/s", "8x50GB/s"]},
            "links are 8x50GB/s, but tier x of cluster torus_3d",
        ),
        (
            {"technology": "phaze_22nm", "design_space": "phaze_icml24", "links": ["6x50GB/s"]},
            "take area and power of a whole die",
        ),
        (
            {"constants": ["cluster.tiers.*.bandwidth=2x"]},
            "bandwidth of tier own of cluster two_tiers is changed, but follows from",
        ),
        ({"device": "h100", "links": ["18x25GB/s"]}, "links"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], said: str, tmp_path: Path) -> None:
    hardware = {"design_space": None} if "device" in changes else {}
    with pytest.raises(InputError, match=said):
        study(tmp_path, **(hardware | changes))


def test_a_network_that_has_no_use_for_links_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiers = [
        {key: value for key, value in tier.items() if key != "link_parts"}
        for tier in CLUSTER["tiers"]
    ]
    files = write_hardware(tmp_path, LINKED, CLUSTER | {"tiers": tiers})
    flags = [
        "run_solver",
        "--model",
        "bertbase",
        "--design-space",
        files["design_space"],
        "--cluster",
        files["cluster"],
    ]
    assert phaze.main(flags) == 2
    said = capsys.readouterr().err
    assert (
        "no tier of cluster two_tiers runs over the chips' own links" in said
        and said.strip().count("\n") == 0
    )


def test_what_states_no_links_is_as_it_was(tmp_path: Path) -> None:
    axes = {key: value for key, value in LINKED["axes"].items() if key != "links"}
    hardware = chips_of(tmp_path, space=LINKED | {"axes": axes})
    assert hardware.metrics.tier_bytes_per_s is None and set(hardware.accelerators.links) == {None}
    chip = hardware.accelerators.accelerator(0)
    assert hardware.cluster_of(chip) is hardware.cluster and isinstance(chip, Accelerator)


@pytest.mark.parametrize(("cluster", "parts"), [("dgx_h100", 1), ("torus_2d", 2), ("torus_3d", 3)])
def test_chips_without_links_of_their_own_pay_for_all_that_the_cluster_gives_them(
    cluster: str, parts: int
) -> None:
    given = {"model": "bertbase", "design_space": "tpu_like_7nm", "cluster": cluster}
    space = resolve({}, given).records.space
    assert space is not None
    first = load_cluster(cluster).tiers[0].bandwidth_bytes_per_s
    assert space.link_bandwidth_bytes_per_s == pytest.approx(parts * first)


def test_one_plan_is_priced_with_a_memory_and_links_that_are_named() -> None:
    chip = {
        "model": "bertbase",
        "chip": "tpu_v4_like",
        "design_space": "tpu_like_7nm",
        "dp": 4,
        "global_batch_size": 16,
    }
    space = resolve({}, chip | {"memory": "hbm2e:4"}, Mode.EVALUATE).records.space
    assert space is not None and space.axes.memory == ("hbm2e:4",)
