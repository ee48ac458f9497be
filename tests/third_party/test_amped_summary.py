"""config_summary.txt and the breakdown: read back as a configuration, and by the scripts of
DeepFlow that split their lines."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest

from phaze_common.errors import InputError
from tests.third_party.amped_cases import answer, configuration, written
from third_party.amped import estimate, read_configuration, shipped_tables
from third_party.amped.corrections import NAMES
from third_party.amped.estimate import EXAMPLE
from third_party.amped.reports import config_summary


@pytest.mark.parametrize("kept", [(), NAMES])
@pytest.mark.parametrize("path", [None, EXAMPLE], ids=["small", "example"])
def test_a_summary_reads_back_as_the_configuration_it_is_of(
    tmp_path: Path, path: Path | None, kept: tuple[str, ...]
) -> None:
    read = (
        read_configuration(path, shipped_tables())
        if path
        else configuration(inter_node_latency="1.7 us", zero_stage=1)
    )
    first = estimate(read, kept)
    again = estimate(
        read_configuration(written(tmp_path, config_summary(first)), shipped_tables()), kept
    )
    assert again.breakdown == first.breakdown and again.totals == first.totals
    assert {name: first.table.number(name) for name in first.table.given} == {
        name: again.table.number(name) for name in again.table.given
    }
    assert [each for each in config_summary(again).splitlines() if each.startswith("#")] == [
        each for each in config_summary(first).splitlines() if each.startswith("#")
    ]


def test_a_damaged_summary_is_refused(tmp_path: Path) -> None:
    text = config_summary(answer())
    for damage in (text.replace("layers ", "layers = ", 1), text.replace("# [given]", "#", 1)):
        assert damage != text
        with pytest.raises(
            InputError, match=r"is no parameter; give a config_summary\.txt as it was written"
        ):
            read_configuration(written(tmp_path, damage), shipped_tables())
    with pytest.raises(InputError, match="has no accelerator_architecture_parameters"):
        read_configuration(written(tmp_path, text[: text.index("4: ACC")]), shipped_tables())


def test_scripts_that_split_lines_find_every_value() -> None:
    """As DeepFlow's scripts read both files: as a table of one column, names by any part of them,
    the first counts."""
    result = estimate(read_configuration(EXAMPLE, shipped_tables()))
    table = pd.read_csv(io.StringIO(config_summary(result))).iloc[:, 0].str.split()
    found = {
        name: next(words[2] for words in table if name in words[0])
        for name in (
            *(
                "batch_size",
                "dimensionality",
                "context",
                "hidden_layer_dimension_for_attention_sublayers",
                "attention_heads",
            ),
            *(
                "hidden_layer_dimension_MLP_1",
                "hidden_layer_dimension_MLP_2",
                "layers",
                "tokens_to_train",
            ),
            *("data_parallel_degree", "tensor_parallel_degree", "pipeline_parallel_degree"),
        )
    }
    assert list(map(int, found.values())) == [
        1536,
        12288,
        2048,
        128,
        96,
        12288,
        49152,
        96,
        300_000_000_000,
        16,
        8,
        8,
    ]
    lines = pd.read_csv(io.StringIO(result.breakdown.text())).iloc[:, 0]
    for label in (
        "Total communication time forward pass (s)",
        "Computation time weight updates (s)",
    ):
        line = next(each for each in lines if label in each.split("-----"))
        assert float(line.split()[-1]) == result.breakdown[label]
