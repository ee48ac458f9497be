"""The settings of a search on hardware that is given: ``run_solver --device``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from Common.errors import InputError
from Common.settings import Kind, Setting, SettingTable
from Studies.plan_settings import DEVICE, PRECISION, SOFTWARE
from Studies.settings import STUDY, ZERO_STAGE

DEVICES = Setting("devices", Kind.INTEGER, "with --device: devices in use (default: all of the cluster)", most=2**20)
INTERLEAVE = Setting(
    "interleave", Kind.INTEGER, "with --device: model chunks per pipeline stage to search (default: all)", many=True, most=1024
)
EP = Setting(
    "ep",
    Kind.INTEGER,
    "with --device: expert parallel degrees to search (default: all that divide the experts and the devices)",
    many=True,
    most=4096,
)
EXTRA = tuple(
    replace(setting, help=f"with --device: {setting.help.removeprefix('with --device: ')}")
    for setting in (SOFTWARE, DEVICES, INTERLEAVE, EP, PRECISION)
)
ABOUT_CHIPS = frozenset(
    {"hbm_size", "design_space", "technology", "objective", "solver"}
)  # what a device that exists has, or leaves no choice

PLAN_SEARCH = SettingTable(
    (
        replace(DEVICE, help="search the placement alone, on devices that exist: a name or a YAML file"),
        *EXTRA,
        replace(ZERO_STAGE, help="ZeRO stages to search (default: all)", many=True),
        *(setting for setting in STUDY.settings if setting.key not in ABOUT_CHIPS | {ZERO_STAGE.key}),
    ),
    rivals=STUDY.rivals,
)

RUN_SOLVER = SettingTable((*STUDY.settings, PLAN_SEARCH.settings[0], *EXTRA), rivals=STUDY.rivals)  # of either kind of search


def asks_for_device(*given: Mapping[str, object]) -> bool:
    """Whether any of the settings says that the hardware is given.

    Raises:
        InputError: a setting that only makes sense with a device stands without one.
    """
    names = {str(name).replace("-", "_") for mapping in given for name, value in mapping.items() if value is not None}
    if DEVICE.key in names:
        return True
    alone = sorted(names & {setting.key for setting in EXTRA})
    if alone:
        raise InputError(f"{alone[0]} belongs to a search on devices that exist; add --device, or leave {alone[0]} out")
    return False


def refuse_settings_of_chips(given: Mapping[str, object], source: str) -> None:
    """Refuse what describes the chips that a search designs, with a sentence of its own.

    Raises:
        InputError: names the setting.
    """
    for name in given:
        known = {alias: setting.key for setting in STUDY.settings for alias in (setting.key, *setting.aliases)}
        key = known.get(str(name).replace("-", "_"))
        if key in ABOUT_CHIPS:
            raise InputError(f"{source}: {name} is about chips to design, but the device is given; leave {name} or --device out")
