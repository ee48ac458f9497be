"""``max_cluster_cost``: how many devices money buys, and what a run says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_study import solved
from test_whole_chips import study

import phaze
from Estimator.chips.cost import load_prices
from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster, Tier, with_devices
from Estimator.plans.results import Status
from phaze.report.sentences.explanation import explain
from phaze.runs.finished_run import open_run
from phaze.settings.problem import hardware_of
from phaze.studies.context import search_context
from phaze_common.errors import InputError
from phaze_common.progress import SilentProgress
from Solver.designs.re_solve import priced
from Solver.hardware import DesignedChips
from Solver.purchase import Purchase, cluster_switches_usd
from Solver.results import AxisScope, SearchResult

USD = 30_000.0
PRICES = load_prices("datacenter_2025")


def by_counting(purchase: Purchase, device_usd: float) -> int:
    """Devices bought one by one, as long as the money lasts."""
    devices = 0
    while (
        devices < purchase.most_devices
        and purchase.cluster_usd(device_usd, devices + 1) <= purchase.usd
    ):
        devices += 1
    return devices


def test_devices_by_hand() -> None:
    """Two of 1,000 $ need no switch; a third makes each 400 $ dearer: three are 4,200 $."""
    purchase = Purchase(4_000.0, (1, 2, 8), (0.0, 0.0, 400.0))
    assert purchase.affordable(np.array([1_000.0, 4_000.0, 4_001.0, 900.0, 100.0])).tolist() == [
        2,
        1,
        0,
        3,
        8,
    ]
    assert (
        purchase.cluster_usd(1_000.0, 2) == 2_000.0 and purchase.cluster_usd(1_000.0, 3) == 4_200.0
    )
    assert replace(purchase, usd=4_200.0).affordable(np.array([1_000.0])).tolist() == [3]


@pytest.mark.parametrize("name", ["dgx_h100", "tpu_v4", "phaze_icml24", "nvlink_infiniband"])
def test_the_share_of_switches_is_that_of_the_part_of_the_cluster(name: str) -> None:
    cluster = with_devices(load_cluster(name), 1024)
    purchase = Purchase.of(1e6, cluster, PRICES)
    for devices in (1, 2, 7, 8, 9, 63, 64, 65, 1023, 1024):
        part = with_devices(cluster, devices)
        assert purchase.share_usd(np.array([devices]))[0] == cluster_switches_usd(
            part, devices, PRICES
        )


def test_as_many_are_bought_as_one_by_one() -> None:
    random = np.random.default_rng(7)
    for _ in range(40):
        sizes = np.cumsum(random.integers(1, 20, 3)).tolist()
        tiers = [
            Tier(str(size), size, float(random.choice([1e9, 1e10, 1e11])), 0.0) for size in sizes
        ]
        prices = replace(
            PRICES,
            switch_radix=replace(
                PRICES.switch_radix, value=float(random.choice([2.0, 3.0, 4.0, 64.0]))
            ),
        )
        purchase = Purchase.of(
            float(random.integers(50, 20_000)), Cluster("random", sizes[-1], tuple(tiers)), prices
        )
        assert list(purchase.switches_usd) == sorted(purchase.switches_usd)
        own_usd = random.integers(10, 3_000, 5).astype(float)
        assert purchase.affordable(own_usd).tolist() == [
            by_counting(purchase, usd) for usd in own_usd
        ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SearchResult]:
    request = study(tmp_path_factory.mktemp("money"), max_cluster_cost=USD, name="money")
    result = solved(request, limits=True)
    return request.folders.run, result


def test_the_best_is_that_of_every_chip_with_as_many_devices_as_it_allows(
    run: tuple[Path, SearchResult],
) -> None:
    """Each chip alone, with the number of devices given that its price allows: the question that
    was asked before."""
    folder, result = run
    assert result.best is not None and result.best.optimal
    request = study(folder.parent, max_cluster_cost=USD)
    hardware = hardware_of(request)
    assert isinstance(hardware, DesignedChips) and hardware.metrics.caps is not None
    values = []
    for row in range(0, hardware.configurations, 2):
        devices = int(hardware.metrics.caps[row])
        assert (
            devices * hardware.metrics.owning_usd[row]
            <= USD
            < (devices + 1) * hardware.metrics.owning_usd[row]
        )
        context = search_context(study(folder.parent, devices=devices), SilentProgress())
        assert isinstance(context.hardware, DesignedChips)
        alone = priced(
            context, context.hardware.only([hardware.accelerators.accelerator(row)])
        ).best_optimum()
        values.append(0.0 if alone is None else alone.value)
        if hardware.accelerators.accelerator(row) == result.best.accelerator:
            assert values[-1] == pytest.approx(result.best.value, rel=1e-9)
    assert max(values) <= result.best.value * (1 + 1e-9)


def test_what_is_bought_is_told(
    run: tuple[Path, SearchResult], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, result = run
    best = result.best
    assert best is not None and best.chip is not None
    (plan,), (use,) = best.models.values(), best.chip.uses.values()
    bought = use.bought
    assert (
        bought is not None
        and bought.devices
        == plan.devices_used
        <= bought.affordable_devices
        < bought.most_devices
        == 16
    )
    assert bought.cluster_usd + bought.left_usd == pytest.approx(USD) and bought.money_binds
    assert bought.cluster_usd == pytest.approx(bought.devices * best.chip.owning_usd)
    assert (
        json.loads((folder / "best.json").read_text())["chip"]["uses"]["bertbase"]["bought"][
            "devices"
        ]
        == bought.devices
    )
    again = open_run(folder)
    assert again.result == result
    money = next(limit for limit in best.limits if limit.resource == "money")
    assert money.amount == USD and money.unlimited_gain > 0.0 and "Money binds" in money.words
    devices = next(limit for limit in best.limits if limit.resource == "number of devices")
    assert devices.unlimited_gain == 0.0
    said = explain(again)
    assert any(f"{bought.devices} devices bought for" in sentence for sentence in said.lead)
    assert (
        phaze.main(
            [
                "explain",
                str(folder),
                "--what-if",
                f"max_cluster_cost={3 * USD}",
                "--instead",
                "pp=2",
            ]
        )
        == 0
    )
    assert f"max_cluster_cost={3 * USD}" in capsys.readouterr().out
    assert phaze.main(["report", str(folder)]) == 0
    assert "the money buys at most" in (folder / "report.html").read_text()


@pytest.mark.parametrize("objective", ["throughput", "cost_per_token"])
def test_the_best_of_every_value_of_an_axis_is_that_of_a_search_of_it_alone(
    objective: str, tmp_path: Path
) -> None:
    request = study(
        tmp_path,
        max_cluster_cost=9_000.0,
        objective=objective,
        micro_batch_size=4,
        recompute="none",
    )
    result, context = solved(request, axes=True), search_context(request, SilentProgress())
    hardware, best = context.hardware, result.best
    assert isinstance(hardware, DesignedChips) and best is not None
    axis = next(
        axis
        for axis in best.axes
        if axis.axis == "memory_system" and axis.scope is AxisScope.DESIGNS
    )
    for value in axis.values:
        rows = [
            row
            for row, memory in enumerate(hardware.accelerators.memory_system)
            if memory == value.value
        ]
        chips = [hardware.accelerators.accelerator(row) for row in rows]
        alone = priced(context, hardware.only(chips)).best_optimum()
        assert alone is not None and value.status is Status.OPTIMAL
        assert value.reached == pytest.approx(alone.value, rel=1e-9)


def test_tokens_cost_what_the_devices_of_the_plan_do(tmp_path: Path) -> None:
    best = solved(study(tmp_path, max_cluster_cost=USD, objective="cost_per_token")).best
    assert best is not None and best.chip is not None
    (plan,), (use,) = best.models.values(), best.chip.uses.values()
    assert best.value == pytest.approx(1e6 / use.usd_per_million_tokens)
    prices, watts = load_prices("datacenter_2025"), use.average_w * plan.devices_used
    watts -= use.beside_j * plan.throughput_samples_per_s  # which objectives leave out
    assert use.beside_j > 0.0
    years_s = prices.service.value * 8766 * 3600 * prices.utilisation.value
    per_s = plan.devices_used * best.chip.owning_usd / years_s
    per_s += (
        (watts + plan.devices_used * prices.host_power.value)
        * prices.pue.value
        * prices.electricity.value
        / 3.6e6
    )
    assert use.usd_per_million_tokens == pytest.approx(
        1e6 * per_s / (plan.throughput_samples_per_s * plan.sequence_length)
    )


def test_one_plan_may_not_cost_more_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study(tmp_path)
    files = [
        "--design-space",
        str(tmp_path / "space.yaml"),
        "--cluster",
        str(tmp_path / "cluster.yaml"),
    ]
    chip = {
        "num_tc": 8,
        "num_vc": 8,
        "width": 64,
        "depth": 64,
        "width_vc": 128,
        "glb_mib": 4,
        "memory": "gddr6:2",
    }
    (tmp_path / "chip.yaml").write_text(json.dumps(chip))
    asked = [
        "evaluate",
        "--model",
        "bertbase",
        "--sequence-length",
        "128",
        "--chip",
        str(tmp_path / "chip.yaml"),
        *files,
    ]
    assert phaze.main([*asked, "--dp", "3", "--max-cluster-cost", "12000"]) == 0
    capsys.readouterr()
    assert phaze.main([*asked, "--dp", "4", "--max-cluster-cost", "12000"]) == 2
    assert (
        "the plan uses 4 devices, and max_cluster_cost buys at most 3 of this chip"
        in capsys.readouterr().err
    )


def test_what_cannot_be_bought_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["run_solver", "--model", "bertbase", "--output", str(tmp_path)]
    for given, said in (
        (["--max-cluster-cost", "-5"], "max-cluster-cost"),
        (
            ["--max-cluster-cost", "1e6", "--device", "h100"],
            "--max-cluster-cost 1000000 is about chips to design",
        ),
        (
            ["--front", "cost", "--device", "h100"],
            "--front cost is about chips to design, but the device h100 is given",
        ),
        (
            ["--links", "18x25GB/s", "--device", "h100"],
            "--links 18x25GB/s is about chips to design, but the device h100",
        ),
        (
            ["--max-cluster-cost", "1e6"],
            "--max-cluster-cost 1000000 needs whole dies, which the technology phaze_22nm of",
        ),
        (
            ["--max-cluster-cost", "100", "--design-space", "tpu_like_7nm"],
            "--max-cluster-cost 100 leaves no chip of tpu_",
        ),
    ):
        assert phaze.main([*asked, *given]) == 2
        refusal = capsys.readouterr().err
        assert said in refusal and "Traceback" not in refusal


def test_a_plan_of_more_devices_than_the_money_buys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="max_cluster_cost buys at most 2"):
        solved(study(tmp_path, max_cluster_cost=8_000.0, tp=4))
