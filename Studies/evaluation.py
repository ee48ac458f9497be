"""A training plan with all that is needed to price it, and its price."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from Estimator.devices.device import Device, Software
from Estimator.network.cluster import Cluster
from GraphExtractor.graph import GraphKey
from Plans.plan import TrainingPlan, check_cluster, plan_mapping

if TYPE_CHECKING:
    from Plans.results import Prediction


@dataclass(frozen=True)
class Evaluation:
    """A training plan of a model on devices of a cluster under a training framework, resolved; lengths are tokens."""

    model: str
    sequence_length: int
    plan: TrainingPlan
    device: Device
    cluster: Cluster
    software: Software
    graphs: Path  # folder of the training graphs
    strict: bool = False  # refuse operators without a cost

    @property
    def graph_key(self) -> GraphKey:
        """The training graph that the prediction starts from."""
        return self.plan.graph_key(self.model, self.sequence_length)

    def plan_mapping(self) -> dict[str, Any]:
        """The plan by the keys of its settings, as plain values; a file of it is the same plan."""
        return {**plan_mapping(self.plan), "sequence_length": self.sequence_length}


def evaluated(evaluation: Evaluation) -> Prediction:
    """Time and memory of one iteration; extracts the training graph where it is not on disk.

    Raises:
        InputError: the plan contradicts the model, the device or the cluster.
    """
    from Estimator.coverage import check_functions
    from Estimator.devices.functions import TENSORS_MOVED
    from Estimator.devices.operator_cost import DeviceModel
    from GraphExtractor import load_or_extract
    from Plans.iteration import predict

    plan = evaluation.plan
    check_cluster(plan, evaluation.cluster)
    model = DeviceModel(evaluation.device, evaluation.software, plan.precision.matrix_format)
    graph = load_or_extract(evaluation.graph_key, evaluation.graphs)
    check_functions([graph], TENSORS_MOVED, strict=evaluation.strict)
    return predict(graph, plan, model, evaluation.cluster)
