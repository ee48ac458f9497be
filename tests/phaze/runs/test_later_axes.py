"""Tables of runs that were written before an axis was there."""

import pandas as pd

from phaze.runs.design_tables import with_later_axes


def test_experts_were_as_wide_as_all_else() -> None:
    before = pd.DataFrame({"model": ["mixtral-8x7b"] * 2, "tp": [2, 4]})
    now = with_later_axes(before)
    assert now["etp"].tolist() == ["same", "same"] and "etp" not in before
    assert now["shard_groups"].tolist() == [1, 1]
    assert with_later_axes(now) is now
    assert "etp" not in with_later_axes(pd.DataFrame())
