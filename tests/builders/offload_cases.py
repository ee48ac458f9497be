"""Random cases whose plans keep things in host memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from Estimator.chips.technology import Quantity
from Estimator.devices.device import HostLink
from Estimator.devices.files import load_software
from Estimator.network.cluster import Hosts
from Estimator.plans.offload import Offload
from Estimator.plans.rates import Machine
from tests.builders.random_searches import Case, RandomHardware, random_case

CONTENTION = load_software("megatron_2022").contention
PARTS = (0.0, 0.5, 1.0)


def link(bytes_per_s: float) -> HostLink:
    """A link to a host that reaches so much."""
    return HostLink(Quantity(bytes_per_s, "bytes/s", "test"), Quantity(1.0, "fraction", "test"))


@dataclass(frozen=True, eq=False)
class HostedHardware(RandomHardware):
    """Random hardware with hosts."""

    host_bytes_per_s: float = 1.0
    host_memory_bytes: float | None = None

    def machine(self, row: int, memory_bytes: float) -> Machine:
        whole = super().machine(row, memory_bytes)
        cluster = replace(whole.cluster, hosts=Hosts(1, 1, self.host_memory_bytes))
        software = replace(whole.software, contention=CONTENTION)
        return replace(whole, host=link(self.host_bytes_per_s), cluster=cluster, software=software)


def offloads(seed: int, count: int) -> tuple[Offload, ...]:
    """So many different ones, the first of which is none."""
    random, found = np.random.default_rng([seed, 77]), [Offload()]
    while len(found) < count:
        one = Offload(*random.choice(PARTS, 4, p=(0.5, 0.25, 0.25)).tolist())
        if one not in found:
            found.append(one)
    return tuple(found)


def hosted_case(
    seed: int,
    count: int = 4,
    host_memory: float | None = None,
    memory: float = 0.7,
    **given: object,
) -> Case:
    """A random case where every plan may keep one of ``count`` choices in host memory, and devices
    have less of their own."""
    case = random_case(seed, **given)
    random = np.random.default_rng([seed, 78])
    (model,) = case.problem.models
    kept = {name: getattr(case.hardware, name) for name in RandomHardware.__dataclass_fields__}
    hardware = HostedHardware(
        **kept, host_bytes_per_s=10.0 ** random.uniform(2.5, 5.0), host_memory_bytes=host_memory
    )
    space = replace(model.space, further=(("offload", offloads(seed, count)),))
    sizes = tuple(round(size * memory) for size in case.problem.memory_bytes)
    problem = replace(case.problem, models=(replace(model, space=space),), memory_bytes=sizes)
    return Case(problem, hardware, case.models)
