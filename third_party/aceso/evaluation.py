"""An iteration of a whole plan under Aceso's cost model: one-forward-one-backward, (B - 1) slowest
stage + all stages once."""

from dataclasses import asdict, dataclass
from typing import Any

from phaze_common.errors import InputError

from .database import Database
from .models import operator_chain
from .plans import Plan
from .stage_prices import StagePrice, stage_price

US = 1e-6
DEVICES_PER_NODE = 8


@dataclass(frozen=True)
class Evaluation:
    """What Aceso's cost model says of a plan.

    Attributes: iteration_s: the largest of ``stage_s``. stage_s: what an iteration takes if this
        stage is the slowest, as Aceso's own output has it per stage.
    """

    iteration_s: float
    stage_s: tuple[float, ...]
    stages: tuple[StagePrice, ...]

    @property
    def memory_mib(self) -> float:
        """Of the stage with the most."""
        return max(stage.memory_mib for stage in self.stages)

    def document(self) -> dict[str, Any]:
        """As the command line prints it."""
        return {
            "iteration_s": self.iteration_s,
            "stages": [
                {"seconds": seconds, "memory_mb": stage.memory_mib, "micro_batch_s": stage.us * US}
                | {
                    key.replace("_us", "_s"): value * (US if key.endswith("_us") else 1.0)
                    for key, value in asdict(stage).items()
                }
                for seconds, stage in zip(self.stage_s, self.stages, strict=True)
            ],
        }


def evaluate(
    plan: Plan, database: Database, devices_per_node: int = DEVICES_PER_NODE
) -> Evaluation:
    """Price a plan; a machine of fewer devices than one node has is taken for a node of its own.
    Raises InputError: the plan is of another model than the database, has other operators, does not
    fit the nodes or micro-batches, or asks for what was not measured."""
    if (plan.model.family.name, plan.model.files_size) != (
        database.model.family.name,
        database.model.files_size,
    ):
        raise InputError(
            f"the plan is of {plan.model.family.name} {plan.model.size}, the database of "
            f"{database.model.family.name} {database.model.size}; give the two of one model"
        )
    chain = operator_chain(plan.model, database.names)
    ends, device_ends = plan.operator_ends, plan.device_ends
    if ends[-1] != len(chain):
        raise InputError(
            f"the plan has {ends[-1]} operators, the model {len(chain)}; give a plan of this model"
        )
    if plan.global_batch % plan.micro_batch:
        raise InputError(
            f"the global batch {plan.global_batch} is not a whole number of micro-batches of "
            f"{plan.micro_batch}; give one that is"
        )
    per_node = min(devices_per_node, plan.devices)
    micro_batches = plan.global_batch // plan.micro_batch
    prices = []
    for at, stage in enumerate(plan.stages):
        first, last = device_ends[at], device_ends[at + 1]
        if first // per_node != (last - 1) // per_node:
            raise InputError(
                f"stage {at + 1} has GPUs {first} to {last - 1}, which are in more than one node "
                f"of {per_node}; Aceso's model prices stages within a node, so give "
                "--gpus-per-node as the plan needs it"
            )
        prices.append(
            stage_price(
                database,
                chain[ends[at] : ends[at + 1]],
                stage,
                plan.micro_batch,
                len(plan.stages) - 1 - at,
                enters_node=first > 0 and first % per_node == 0,
                leaves_node=last % per_node == 0,
            )
        )
    total = sum(price.us for price in prices)
    seconds = tuple((price.us * (micro_batches - 1) + total) * US for price in prices)
    return Evaluation(max(seconds), seconds, tuple(prices))
