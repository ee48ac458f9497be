"""What a search tells of how far it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import phaze
from phaze_common.progress import Advance

TINY = {
    "model": "gpt:layers=2,hidden=128,heads=4,ffn=256,vocabulary=512",
    "sequence_length": 64,
    "global_batch_size": 32,
}


@dataclass
class CountedProgress:
    """Steps that every phase was to have, and had."""

    phases: dict[str, tuple[int, int]] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str, total: int) -> Iterator[Advance]:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count

        yield advance
        assert name not in self.phases
        self.phases[name] = done, total


@pytest.mark.thorough
@pytest.mark.parametrize(
    "hardware",
    [
        {
            "device": "a100_80gb",
            "devices": 16,
            "micro_batch_size": 1,
            "group_order": "all",
            "layout": "auto",
            "sequence_parallel": False,
            "tp": 2,
            "cp": 2,
            "tp2": 2,
            "panels": [1, 2],
        },
        {
            "chip": "tpu_v4",
            "hbm_size": 32,
            "cluster": "nvlink_infiniband",
            "devices": 16,
            "group_order": "all",
            "tp": [1, 2],
        },
    ],
    ids=["device", "chip"],
)
def test_every_phase_has_as_many_steps_as_it_says(
    hardware: dict[str, object], tmp_path: Path
) -> None:
    progress = CountedProgress()
    asked = phaze.study(**TINY, **hardware, recompute="none", output=tmp_path)
    phaze.run_solver(asked, progress)
    assert all(done <= total for done, total in progress.phases.values()), progress.phases
    whole = [
        (done, total)
        for name, (done, total) in progress.phases.items()
        if name.startswith(("training", "layer times"))
    ]
    assert len(whole) == 2 and all(done == total > 1 for done, total in whole), progress.phases
