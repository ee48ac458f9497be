"""Settings with a name are defaults: what a study or the command line states counts more, and
nothing of them is lost."""

from pathlib import Path

import pytest

from phaze.settings.config_files import setting_names
from phaze.settings.resolve import resolve
from phaze_common.errors import InputError
from phaze_common.setting_fields import Mode


def test_a_setting_gives_what_nothing_else_states() -> None:
    request = resolve(
        {"zero_stage": 0}, {"model": "bertlarge", "setting": "today", "micro_batch_size": [8]}
    )
    assert (request.hardware.design_space, request.hardware.cluster, request.hardware.devices) == (
        "today_5nm",
        "dgx_h100",
        1024,
    )
    assert (
        request.plan.zero_stage,
        request.plan.micro_batch_size,
        request.plan.overlap_gradients,
    ) == (
        (0,),
        (8,),
        (True,),
    )
    assert len(request.plan.tp) > 1


def test_what_is_recorded_asks_the_same_without_the_setting() -> None:
    request = resolve({}, {"model": "bertlarge", "setting": "today"})
    assert "setting" not in request.as_mapping()
    assert resolve(request.as_mapping(), {}).as_mapping() == request.as_mapping()


def test_a_study_may_name_one_and_rivals_of_its_settings_replace_them() -> None:
    request = resolve({"model": "bertlarge", "setting": "today"}, {"max_tp": 2})
    assert request.plan.tp == (1, 2)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(
        (Path(__file__).parents[3] / "Estimator/hardware/design_spaces/today_5nm.yaml").read_text()
    )
    (tmp_path / "mine.yaml").write_text("design_space: ./space.yaml\nobjective: cost_per_token\n")
    request = resolve({}, {"model": "bertlarge", "setting": str(tmp_path / "mine.yaml")})
    assert request.hardware.design_space == str(tmp_path / "space.yaml")
    assert request.search.objective.value == "cost_per_token"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no setting named 'yesterday'; .*known: .*today.*; or give a YAML file"),
        ("setting: today\n", "a setting cannot build on another one"),
        ("nosuch: 1\n", "setting .*: unknown key 'nosuch'"),
        ("- 1\n", "holds a list"),
    ],
)
def test_what_is_no_setting_is_refused(content: str | None, said: str, tmp_path: Path) -> None:
    name = "yesterday"
    if content is not None:
        name = str(tmp_path / "mine.yaml")
        Path(name).write_text(content)
    with pytest.raises(InputError, match=said):
        resolve({}, {"model": "bertlarge", "setting": name})


def test_on_devices_that_exist_it_is_refused_by_name() -> None:
    with pytest.raises(
        InputError, match=r"setting today: design_space [a-z0-9_]+ is about chips to design"
    ):
        resolve({}, {"model": "bertlarge", "setting": "today", "device": "h100"}, Mode.SEARCH)


@pytest.mark.parametrize("name", setting_names())
def test_every_setting_is_one(name: str) -> None:
    assert resolve({}, {"model": "gpt2", "setting": name}).workload.models[0].name == "gpt2"
