"""Write docs/constants.md: every constant of the hardware that ships, with its unit, its range and
where it comes from.

    .venv/bin/python scripts/constants_page.py

A test says when it is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PAGE = ROOT / "docs" / "constants.md"
HARDWARE = ROOT / "Estimator" / "hardware"
HEAD = """# Constants

Every constant of the files in `Estimator/hardware`, with its source (`scripts/constants_page.py` writes it). A source that says
*assumption* or *choice* is one; one that says *fitted* names the runs or measurements. To published runs of training were fitted:

{fits}
All other published runs are predictions (`phaze validate`). Of a file of your own nothing stands here.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


def page() -> str:
    """The page, room by room and file by file."""
    from phaze.validation.fitted import fitted_constants

    fits = "".join(
        f"- {each.constants} ({each.of}), to runs whose source has `{each.pattern}`\n"
        for each in fitted_constants()
    )
    parts = [HEAD.format(fits=fits)]
    for room in sorted(path for path in HARDWARE.iterdir() if path.is_dir()):
        files = [(path, list(_constants(path))) for path in sorted(room.glob("*.yaml"))]
        listed = [(path, constants) for path, constants in files if constants]
        if listed:
            parts.append(f"\n## {room.name.replace('_', ' ').capitalize()}\n")
        for path, constants in listed:
            rows = "".join(
                f"| `{name}` | {amount} | {source} |\n" for name, amount, source in constants
            )
            parts.append(
                f"\n### {path.stem}\n\n| constant | value | source |\n| --- | --- | --- |\n{rows}"
            )
    return "".join(parts)


def _constants(path: Path) -> Iterator[tuple[str, str, str]]:
    """Name, value with unit and range, and source of each constant of a file."""
    from phaze_common.records import read_yaml

    yield from _within(read_yaml(path), "")


def _within(value: Any, name: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, dict) and "source" in value and ("value" in value or "low" in value):
        yield name, _amount(value), str(value["source"]).replace("|", "\\|")
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _within(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            label = each.get("name", place) if isinstance(each, dict) else place
            yield from _within(each, f"{name}.{label}")


def _amount(constant: dict[str, Any]) -> str:
    value = constant.get("value")
    text = (
        ", ".join(_number(each) for each in value)
        if isinstance(value, list)
        else ""
        if value is None
        else _number(value)
    )
    text += f" {constant['unit']}" if constant.get("unit") else ""
    if "low" in constant and "high" in constant:
        text += f" ({_number(constant['low'])} to {_number(constant['high'])})"
    return text.strip()


def _number(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,.10g}"
    return str(value)


if __name__ == "__main__":
    main()
