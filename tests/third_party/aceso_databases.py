"""Small databases in Aceso's format, and every plan of a small question by enumeration."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from third_party.aceso.chains import model_chain
from third_party.aceso.database import OPERATOR_COLUMNS, Database, read_database
from third_party.aceso.models import find_model, is_tunable
from third_party.aceso.plans import StagePlan
from third_party.aceso.resharding import Choice, resharding_us
from third_party.aceso.stage_prices import stage_price

GPT = ("enc-1st-layernorm", "enc-attention-qkv", "enc-post-MLP-dropout", "gpt-post-process")
T5 = ("enc-1st-layernorm", "enc-post-MLP-dropout", "dec-1st-layernorm", "dec-post-MLP-dropout")
RESNET = ("conv1", "bn1", "block-0-0-conv1", "block-0-0-bn3")
ROWS = {"gpt": GPT, "t5": T5, "resnet": RESNET}
MOST_MIB = 40


def write_database(
    folder: Path,
    seed: int,
    family: str,
    size: str = "tiny",
    *,
    rows: Sequence[str] = (),
    batches: Sequence[int] = (1, 2),
    widths: Sequence[int] = (1, 2),
) -> None:
    """Random times and sizes; wider operators are faster, hold less and are not twice as fast."""
    drawn = random.Random(seed)
    algorithms = (0,) if family == "t5" else (0, 1)
    own = {
        name: [drawn.uniform(50, 500) for _ in range(2)] + [drawn.randint(1, 20) for _ in range(6)]
        for name in rows or ROWS[family]
    }
    for batch, width, algorithm in itertools.product(batches, widths, algorithms):
        lines = [",".join(OPERATOR_COLUMNS)]
        for name, values in own.items():
            scale = batch / width
            times = [value * scale * drawn.uniform(1.0, 1.4) for value in values[:2]]
            sizes = [
                values[2] * batch,
                values[3] * batch,
                values[4] / width,
                values[5] * scale,
                values[6] * scale,
                values[7] * scale,
            ]
            lines.append(",".join([name, *(f"{each:.3f}" for each in (*times, *sizes))]))
        (folder / f"{family}_{size}_mbs{batch}_tp{width}_algo{algorithm}.csv").write_text(
            "\n".join(lines) + "\n"
        )
    for name, devices in itertools.product(
        ("all_gather", "all_reduce", "reduce_scatter", "all_to_all"), (2, 4)
    ):
        lines = [
            "data_size(MB),time(ms)",
            *(f"{mib},{drawn.uniform(0.001, 0.2):.3f}" for mib in range(MOST_MIB + 1)),
        ]
        (folder / f"prim_{family}_{size}_{name}_{devices}gpus.csv").write_text(
            "\n".join(lines) + "\n"
        )
    for kind, speed in (("intra", 30.0), ("inter", 5.0)):
        sizes = ",".join(str(2**at) for at in range(11))
        speeds = ", ".join(f"{speed * (1 + 0.03 * at):.2f}" for at in range(11))
        (folder / f"p2p_{kind}_node.csv").write_text(f"{sizes}\n{speeds}\n")


def tiny(folder: Path, seed: int, family: str) -> Database:
    """A model of four operators."""
    write_database(folder, seed, family)
    return read_database(folder, find_model(family, "tiny", None if family == "resnet" else 1))


@dataclass(frozen=True)
class Stage:
    """One way to run a stretch: microseconds, and MiB with none and with one stage behind it."""

    us: float
    mib: float
    more_mib: float


def ways(
    database: Database,
    first: int,
    end: int,
    devices: int,
    micro_batch: int,
    enters: bool,
    leaves: bool,
) -> Iterator[Stage]:
    """Every way to run operators ``first`` to ``end`` on ``devices``, priced by the exact model."""
    rows = model_chain(database.model, database.names).rows[first:end]
    choices = [
        [
            Choice(width, devices // width, algorithm)
            for width in database.tensor_parallel
            if devices % width == 0
            and micro_batch % (devices // width) == 0
            and micro_batch // (devices // width) in database.micro_batch_sizes
            for algorithm in database.algorithms
            if algorithm == 0 or is_tunable(database.model.family.name, database.names[row])
        ]
        for row in rows
    ]
    for chosen in itertools.product(*choices):
        changes = (
            sum(resharding_us(database, a, left, b, right, micro_batch))
            for (a, left), (b, right) in itertools.pairwise(zip(rows, chosen, strict=True))
        )
        if not all(change < 1e12 for change in changes):
            continue
        for flags in itertools.product((False, True), repeat=len(rows)):
            stage = StagePlan(devices, chosen, flags)
            none, one = (
                stage_price(
                    database,
                    rows,
                    stage,
                    micro_batch,
                    behind,
                    enters_node=enters,
                    leaves_node=leaves,
                )
                for behind in (0, 1)
            )
            yield Stage(none.us, none.memory_mib, one.memory_mib)


def shortest_plan_s(
    database: Database,
    devices: int,
    per_node: int,
    global_batch: int,
    limit_mib: float,
    most_stages: int,
) -> float | None:
    """Seconds of the best plan, by trying all."""
    length = len(model_chain(database.model, database.names).rows)
    best = None
    for micro_batch in database.micro_batch_sizes:
        if global_batch % micro_batch:
            continue
        number = global_batch // micro_batch
        known: dict[tuple[int, int, int, bool, bool], list[Stage]] = {}
        for stages in range(1, min(most_stages, devices, length) + 1):
            for cuts in itertools.combinations(range(1, length), stages - 1):
                ends = (0, *cuts, length)
                for counts in itertools.product((1, 2, 4), repeat=stages):
                    if sum(counts) != devices:
                        continue
                    at = (0, *itertools.accumulate(counts))
                    if any(a // per_node != (b - 1) // per_node for a, b in itertools.pairwise(at)):
                        continue
                    times = []
                    for stage in range(stages):
                        enters, leaves = (
                            at[stage] > 0 and at[stage] % per_node == 0,
                            at[stage + 1] % per_node == 0,
                        )
                        key = (ends[stage], ends[stage + 1], counts[stage], enters, leaves)
                        if key not in known:
                            known[key] = list(ways(database, *key[:3], micro_batch, enters, leaves))
                        behind = stages - 1 - stage
                        fit = [
                            way.us
                            for way in known[key]
                            if way.mib + behind * (way.more_mib - way.mib) <= limit_mib + 1e-9
                        ]
                        if not fit:
                            break
                        times.append(min(fit))
                    if len(times) == stages:
                        seconds = ((number - 1) * max(times) + sum(times)) * 1e-6
                        best = seconds if best is None else min(best, seconds)
    return best
