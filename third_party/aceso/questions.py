"""What is searched."""

from dataclasses import dataclass
from typing import NamedTuple

from phaze_common.errors import InputError

from .chains import Chain, model_chain
from .database import Database
from .evaluation import DEVICES_PER_NODE
from .plans import Plan, StagePlan

MOST_STAGES = 16  # of Aceso's own search
TIME_LIMIT_S = 50.0
MOST_DEVICES = 1024
MOST_STAGES_EVER = 256


class Machine(NamedTuple):
    """Devices in all and of a node."""

    devices: int
    per_node: int


@dataclass(frozen=True)
class Question:
    """A database, a cluster, a batch and a limit on the memory of a device.

    Attributes:
        gap: relative, at which the search may end.
    """

    database: Database
    devices: int
    global_batch: int
    memory_limit_mib: float
    devices_per_node: int = DEVICES_PER_NODE
    most_stages: int = MOST_STAGES
    time_limit_s: float = TIME_LIMIT_S
    gap: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.devices <= MOST_DEVICES:
            raise InputError(f"{self.devices} GPUs are asked for; give 1 to {MOST_DEVICES}")
        if not 1 <= self.most_stages <= MOST_STAGES_EVER:
            raise InputError(
                f"up to {self.most_stages} stages are asked for; give 1 to {MOST_STAGES_EVER}"
            )
        if not self.micro_batch_sizes:
            sizes = ", ".join(map(str, self.database.micro_batch_sizes))
            raise InputError(
                f"a global batch of {self.global_batch} is not a whole number of any profiled "
                f"micro-batch ({sizes}); give one that is"
            )

    @property
    def micro_batch_sizes(self) -> tuple[int, ...]:
        """The profiled micro-batch sizes that divide the global batch."""
        return tuple(
            size for size in self.database.micro_batch_sizes if self.global_batch % size == 0
        )

    @property
    def per_node(self) -> int:
        """Devices of a node."""
        return min(self.devices_per_node, self.devices)

    @property
    def machine(self) -> Machine:
        """Devices in all and of a node."""
        return Machine(self.devices, self.per_node)

    @property
    def node_flags(self) -> int:
        """Ways in which a stage may cross nodes: 4 where it may receive from (1) and send to (2)
        another one, else 1."""
        return 4 if self.devices > self.per_node else 1

    @property
    def stages_at_most(self) -> int:
        """Stages that a plan can have."""
        return min(self.most_stages, self.devices)

    def plan(self, micro_batch: int, stages: tuple[StagePlan, ...]) -> Plan:
        """The plan of these stages."""
        return Plan(self.database.model, self.global_batch, micro_batch, stages)

    def chain(self) -> Chain:
        """The operators of the model."""
        return model_chain(self.database.model, self.database.names)
