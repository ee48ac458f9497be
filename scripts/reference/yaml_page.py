"""docs/reference/yaml.md: every file that people write, its keys from the records and settings that
read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from phaze_common import file_formats
from phaze_common.settings import Kind, Setting
from scripts.reference.cli_page import default_of
from scripts.reference.examples import EXAMPLES
from scripts.reference.markdown import plain, table
from scripts.reference.records import table_of

HEAD = f"""# Files that you write

All files are YAML in UTF-8. An unknown or missing key, a value of the wrong kind and a contradiction are refused in a
sentence that names the file, the key and what is allowed (exit status 2). `scripts/reference_pages.py yaml` writes this
page from the records that read the files; a test reads every example.

- **Numbers with a unit**: where a key counts something measured, a text may stand for the number: `80 GB`, `3.35 TB/s`,
  `2.5 us`. Prefixes are exact: GB is 10^9 bytes, GiB 2^30.
- **A constant** is `{{value, unit, source}}`: a number, what it counts (the unit in the tables is the only one allowed),
  and where it is from. A text with a unit, as `80 GB`, may stand for it. **A constant with a range** has `low` and `high`
  besides, and maybe a `confidence` (`high`, `medium` or `low`). **A constant by capacity** has lists `capacity_bytes` and
  `value`, read on logarithmic axes.
- **Paths** are those from the folder of the file that holds them; what has no `/` and does not end in `.yaml` is the name
  of one that ships.
- **Versions**: every file may state `{file_formats.KEY}`, the version of its kind; without it is version 1. What becomes
  of other versions is told [here](files.md#versions).
- In keys, `[]` stands for each entry of a list, `NAME` for a name of your own.

## Models

A model is a name, dimensions, a Hugging Face `config.json` or a Python file ([models](../models.md), [listed
ones](models.md)); there is no YAML file of models.
"""
SETTINGS_HEADS = ("key", "also", "takes", "unit", "default", "meaning")


@dataclass(frozen=True)
class HardwareFile:
    """A kind of hardware file: what it is used by, the example of it, the record that reads it, and
    the folder of those that ship."""

    title: str
    use: str
    example: str
    record: type[Any]
    folder: str = ""

    @property
    def ships(self) -> str:
        """What ships, in a sentence."""
        from Estimator.hardware_files import hardware_names

        names = ", ".join(f"`{name}`" for name in hardware_names(self.folder))
        return f" What ships: {names}."


def page() -> str:
    """The page."""
    return "".join([HEAD, *_settings(), *(_hardware(each) for each in hardware_files()), _amped()])


def hardware_files() -> Iterator[HardwareFile]:
    """Every kind of hardware file."""
    from Estimator.chips.cost import Prices
    from Estimator.chips.design_space import ChipSize
    from Estimator.chips.design_space_files import DesignSpaceFile
    from Estimator.chips.memory import Memory
    from Estimator.chips.technology import Technology
    from Estimator.devices.device import Device
    from Estimator.devices.software import AttentionKernel, Software
    from Estimator.hardware_files import PlatformFile, VectorFunctionsFile
    from Estimator.network.cluster import Cluster
    from Estimator.network.contention import Contention

    yield HardwareFile(
        "Design space", "`--design-space FILE`.", "space.yaml", DesignSpaceFile, "design_spaces"
    )
    yield HardwareFile(
        "Chip", "`--chip FILE`: one accelerator of a design space.", "chip.yaml", ChipSize
    )
    technology = "`--technology FILE`, or `technology` of a design space."
    yield HardwareFile("Technology", technology, "technology.yaml", Technology, "technologies")
    yield HardwareFile(
        "Platform", "`platform` of a design space.", "platform.yaml", PlatformFile, "platforms"
    )
    functions = "`vector_functions` of a design space.", "functions.yaml", VectorFunctionsFile
    yield HardwareFile("Vector functions", *functions, "vector_functions")
    memory = "`axes.memory` of a design space, as `memory.yaml:4` for four stacks."
    yield HardwareFile("Memory", memory, "memory.yaml", Memory, "memories")
    yield HardwareFile("Prices", "`--prices FILE`.", "prices.yaml", Prices, "prices")
    device = "`--device FILE`; `phaze calibrate` writes such files."
    yield HardwareFile("Device", device, "device.yaml", Device, "devices")
    software = "`--software FILE`: a training framework."
    yield HardwareFile("Software", software, "software.yaml", Software, "software")
    kernel = "`attention` of a framework.", "attention.yaml", AttentionKernel
    yield HardwareFile("Attention kernel", *kernel, "attention")
    yield HardwareFile(
        "Contention", "`contention` of a framework.", "contention.yaml", Contention, "contention"
    )
    cluster = "`--cluster FILE`; any number may be `{value, source}`."
    yield HardwareFile("Cluster", cluster, "cluster.yaml", Cluster, "clusters")


def _example(name: str) -> str:
    return f'\n```yaml title="{name}"\n{EXAMPLES[name]}```\n'


def _hardware(kind: HardwareFile) -> str:
    about = plain((kind.record.__doc__ or "").partition("\n\n")[0])
    use = kind.use + (kind.ships if kind.folder else "")
    return (
        f"\n## {kind.title}\n\n{use}\n{_example(kind.example)}\n{about}\n\n{table_of(kind.record)}"
    )


def _settings() -> Iterator[str]:
    from phaze.cli.training_time import TRAINING_GROUPS
    from phaze.settings.request import setting_groups, settings_for
    from phaze.studies.training_time.settings import all_settings
    from phaze_common.setting_fields import Mode

    yield _SETTINGS["study"] + _example("study.yaml")
    yield from _grouped(settings_for(Mode.SEARCH).settings, setting_groups())
    for name in ("sweep", "setting"):
        yield _SETTINGS[name] + _example(f"{name}.yaml")
    yield _SETTINGS["plan"] + _example("plan.yaml")
    yield from _grouped(settings_for(Mode.EVALUATE).settings, setting_groups())
    yield _SETTINGS["training"] + _example("training.yaml")
    alone = [
        each for each in all_settings().settings if each.key not in settings_for(Mode.EVALUATE).keys
    ]
    yield from _grouped(alone, TRAINING_GROUPS)


_SETTINGS = {
    "study": """
## Study

`phaze run_solver --config study.yaml` (`extract_graph` and `prepopulate_estimates` take it too). The keys are the flags
with underscores; flags and `--set KEY=VALUE` precede the file. Only `model` is required. A run writes its own, with every
setting resolved.
""",
    "sweep": """
## Sweep

`phaze sweep sweep.yaml`: the keys of a [study](#study). Each value of a list is a point of its own; a list within a list
is one value. `name`, `output` and `csv` are of the sweep as a whole; `force_reextract_model` is none of it.
""",
    "setting": """
## Setting

`--setting setting.yaml`, or `setting: setting.yaml` in a study: defaults below everything that the study and the command
line say, by the keys of a [study](#study), `setting` itself excepted. What ships: `today`.
""",
    "plan": """
## Plan

`phaze evaluate --plan plan.yaml` (`compare`, `export` and `training-time` take it too): one value for each key. Required
are `model`, and `device` or `chip`. The best.json of a run is taken in its place. `phaze train --plan` takes the
best.json, or a plan with its stages by value as it holds them ([keys](files.md#plan)).
""",
    "training": """
## Training

`phaze training-time --config training.yaml`: the keys of a [plan](#plan), where none says what the plan is the best one is
searched, and
""",
}


def _grouped(settings: Iterable[Setting], groups: Mapping[str, Iterable[str]]) -> Iterator[str]:
    by_key = {each.key: each for each in settings}
    for title, keys in groups.items():
        rows = [_setting(by_key[key]) for key in keys if key in by_key]
        if rows:
            yield f"\n**{title}**\n\n{table(SETTINGS_HEADS, rows)}"


def _setting(setting: Setting) -> tuple[str, ...]:
    meaning, default = default_of(plain(setting.help))
    required = "required" if setting.key == "model" else "none"
    others = ", ".join(f"`{each}`" for each in setting.aliases)
    return f"`{setting.key}`", others, _takes(setting), setting.unit, default or required, meaning


def _takes(setting: Setting) -> str:
    bounds = f" {setting.least:.10g} to {setting.most:.10g}"
    one = {
        Kind.INTEGER: f"whole number{bounds}",
        Kind.NUMBER: f"number{bounds}",
        Kind.CHOICE: " ".join(f"`{each}`" for each in setting.choices),
        Kind.TEXT: "text",
        Kind.SWITCH: "true or false",
    }[setting.kind]
    if setting.other is not None:
        form = setting.other.FORM
        one += f", or {form.what} (`{form.example}`)"
    return one + ("; several" if setting.many else "") + (", or `all`" if setting.takes_all else "")


def _amped() -> str:
    from third_party.amped.catalogue import Category, parameters

    parts = [_AMPED]
    for category in Category:
        rows = [
            (f"`{each.name}`", each.kind.value, _number(each.default), plain(each.description))
            for each in parameters().values()
            if each.category is category
        ]
        parts.append(
            f"\n**{category.value}** (or "
            f"`{category.short}`)\n\n{table(('parameter', 'counts', 'default', 'meaning'), rows)}"
        )
    return "".join(parts)


_AMPED = """
## AMPeD configuration

`python -m third_party.amped run config.json`, a JSON file (`third_party/amped/examples` has some): four categories of
parameters, each given as `{"value": 8, "unit": ..., "description": ...}` or a bare value, looked up
(`{"from_lookup_table": true}`) or calculated (`{"calculated": true}`). What is not there is calculated or has its default.
"""


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.10g}"
