"""What one choice is worth: pairs of published runs that differ in it alone, against predictions."""

import csv
from pathlib import Path

import pytest
from unpriced import no_plan_of_ours

from phaze.validation.pairs import ControlledPair, controlled_pairs
from phaze.validation.run import validate
from phaze_common.progress import SilentProgress

# sources, releases of one of which repeat each other, whose tables have such pairs
SOURCES = {
    "moe_runs.csv": ("skills: ", "ModelZoo", "v24.11.1", "25.11 performance summary"),
    "dense_runs.csv": ("v24.11.1", "26.04 performance summary", "Ironwood", "InternEvo"),
}


@pytest.fixture(scope="module")
def pairs(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ControlledPair, ...]:
    """Those of a part of the tables of 2024 to 2026."""
    found, folder = list[ControlledPair](), tmp_path_factory.mktemp("effects")
    for name, sources in SOURCES.items():
        with (shared_data / "runs_2026" / name).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        some = [row for row in rows if any(each in row["source"] for each in sources)]
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(some)
        graphs = folder / "graphs"
        report = validate(
            folder / name, None, None, None, graphs, SilentProgress(), no_plan_of_ours
        )
        found += controlled_pairs(report.runs)
    return tuple(found)


def test_effects_have_the_predicted_direction(pairs: tuple[ControlledPair, ...]) -> None:
    assert len(pairs) > 40 and len({each.key for each in pairs}) >= 4
    assert sum(each.sign_right for each in pairs) >= 0.9 * len(pairs)


def test_effects_have_the_predicted_size(pairs: tuple[ControlledPair, ...]) -> None:
    assert sum(each.close for each in pairs) >= 0.6 * len(pairs)
