"""A made-up training small enough to compute by hand, and the means to change parts of it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from third_party.amped import (
    Configuration,
    TrainingTime,
    configuration_of,
    estimate,
    shipped_tables,
)

CATEGORIES = {
    "training": "neural_network_training_parameters",
    "mapping": "mapping_parameters",
    "system": "system_architecture_parameters",
    "accelerator": "accelerator_architecture_parameters",
}
# 8 accelerators: 4 nodes of 2; tp 2 within a node, dp 2 and pp 2 between nodes.
SMALL: dict[str, dict[str, Any]] = {
    "training": {
        **{"batch_size": 8, "context": 4, "layers": 4, "dimensionality": 6, "attention_heads": 2},
        **{"hidden_layer_dimension_for_attention_sublayers": 3, "key_query_value_length": 3},
        **{
            "hidden_layer_dimension_MLP_1": 6,
            "hidden_layer_dimension_MLP_2": 24,
            "number_of_tokens_in_vocabulary": 10,
        },
        **{"tokens_to_train": 3200, "number_of_experts": 1, "decoder_flag": 0},
        **{
            "weight_precision": "16 bits",
            "activation_precision": "16 bits",
            "gradient_precision": "16 bits",
        },
        "optimizer_state_precision": "32 bits",
    },
    "mapping": {
        **{"intra_node_data_parallel_degree": 1, "inter_node_data_parallel_degree": 2},
        **{"intra_node_tensor_parallel_degree": 2, "inter_node_tensor_parallel_degree": 1},
        **{"intra_node_pipeline_parallel_degree": 1, "inter_node_pipeline_parallel_degree": 2},
    },
    "system": {
        **{"number_of_accelerators_per_node": 2, "number_of_network_cards_per_node": 2},
        **{"bandwidth_per_network_card": "50 kb/s", "inter_node_latency": "2 ms"},
        **{"inter_accelerator_bandwidth": "1 Mb/s", "inter_accelerator_latency": "1 ms"},
    },
    "accelerator": {
        **{"frequency": "1 kHz", "number_of_cores": 2, "functional_units_per_core": 1},
        **{
            "functional_unit_hardware_8bit_MAC_per_cycle": 10,
            "non_linear_functional_units_per_core": 2,
        },
        **{
            "non_linear_functional_unit_hardware_8bit_NLIN_per_cycle": 5,
            "memory": "1 MB",
            "efficiency": 0.5,
        },
    },
}
LEFT_OUT = object()


def document(**changes: Any) -> dict[str, Any]:
    """The small training in AMPeD's format; parameters changed, added, or with ``LEFT_OUT`` left
    out."""
    parts = copy.deepcopy(SMALL)
    for name, value in changes.items():
        part = next((part for part in parts.values() if name in part), parts["mapping"])
        part[name] = value
        if value is LEFT_OUT:
            del part[name]
    return {
        CATEGORIES[short]: {
            "parameters": {
                name: value if isinstance(value, dict) else {"value": value}
                for name, value in part.items()
            }
        }
        for short, part in parts.items()
    }


def configuration(**changes: Any) -> Configuration:
    return configuration_of(document(**changes), shipped_tables(), "case.json")


def answer(kept: tuple[str, ...] = (), **changes: Any) -> TrainingTime:
    return estimate(configuration(**changes), kept)


def written(folder: Path, content: Any) -> Path:
    path = folder / "case.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path
