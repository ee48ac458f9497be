"""Hardware to seconds, joules, mm2 and bytes for operators and collectives. Knows no placement.

``load_design_space(name).generate()`` gives the accelerators, ``load_or_populate(graphs, ...)`` the prices of operators on them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from Estimator.chips.accelerator import Accelerator, AcceleratorSet, Platform
    from Estimator.chips.cores_file import read_cores_json, write_cores_json
    from Estimator.chips.design_space import DesignSpace, load_design_space
    from Estimator.chips.latency_table import LatencyTable, OperatorTimes, load_or_populate, populate_estimates
    from Estimator.cost_model import OperatorCostModel, OperatorCosts, PricedOperators
    from Estimator.devices.operator_cost import DeviceModel
    from Estimator.hardware_files import load_cluster
    from Estimator.network.cluster import Cluster, with_devices
    from Estimator.network.collectives import collective_costs, collective_s
    from Estimator.network.links import p2p_s

_HOMES = {
    "Accelerator": "chips.accelerator",
    "AcceleratorSet": "chips.accelerator",
    "Cluster": "network.cluster",
    "DesignSpace": "chips.design_space",
    "DeviceModel": "devices.operator_cost",
    "LatencyTable": "chips.latency_table",
    "OperatorCostModel": "cost_model",
    "OperatorCosts": "cost_model",
    "OperatorTimes": "chips.latency_table",
    "Platform": "chips.accelerator",
    "PricedOperators": "cost_model",
    "collective_costs": "network.collectives",
    "collective_s": "network.collectives",
    "load_cluster": "hardware_files",
    "load_design_space": "chips.design_space",
    "load_or_populate": "chips.latency_table",
    "p2p_s": "network.links",
    "populate_estimates": "chips.latency_table",
    "read_cores_json": "chips.cores_file",
    "with_devices": "network.cluster",
    "write_cores_json": "chips.cores_file",
}

__all__ = [
    "Accelerator",
    "AcceleratorSet",
    "Cluster",
    "DesignSpace",
    "DeviceModel",
    "LatencyTable",
    "OperatorCostModel",
    "OperatorCosts",
    "OperatorTimes",
    "Platform",
    "PricedOperators",
    "collective_costs",
    "collective_s",
    "load_cluster",
    "load_design_space",
    "load_or_populate",
    "p2p_s",
    "populate_estimates",
    "read_cores_json",
    "with_devices",
    "write_cores_json",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
