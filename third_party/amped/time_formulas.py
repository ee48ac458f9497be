"""AMPeD's time model, as published: seconds of one layer for one global batch, and of the whole
training.

The ring ("ELEC") branch of ``performance_model.py`` as a public description of it gives it formula
by formula; AMPeD's own source is not public. Reconstructed, since no text read gives them: the
all-to-all of mixtures of experts (``moe_communication``) and what the total of operations counts.
``share_...`` are the parts of a volume that a formula charges; see ``corrections`` for what becomes
of them.
"""

from typing import Any

import numpy as np

from third_party.amped.quantities import Kind
from third_party.amped.system_formulas import DEGREES
from third_party.amped.table import Formula

TOTAL_S = "total_time_to_train"
_S = Kind.SECONDS
_DP, _TP, _PP = DEGREES


def ring_all_reduce(accelerators: Any, latency_s: Any, bits: Any, bits_per_s: Any) -> Any:
    """Seconds of an all-reduce over a ring: 2(n - 1) steps, each element over 2(n - 1)/n of a link;
    0 for one accelerator."""
    steps = 2 * (accelerators - 1)
    return latency_s * steps + bits * steps / accelerators / bits_per_s


def pipeline_transfer(stages: Any, latency_s: Any, bits: Any, bits_per_s: Any, layers: Any) -> Any:
    """Seconds of handing activations to the next stage, shared out among the layers; 0 for one
    stage."""
    return np.where(stages > 1, (latency_s + bits / bits_per_s) / layers, 0.0)


def moe_communication(
    flag: Any,
    experts: Any,
    nodes: Any,
    per_node: Any,
    moe_layers: Any,
    layers: Any,
    bits: Any,
    inter: Any,
    intra: Any,
) -> Any:
    """Seconds of one all-to-all of activations over the experts, shared out among all layers
    (reconstructed).

    Experts are spread over the nodes, or over the accelerators of the only one; each of the n
    holders sends (n - 1)/n of its activations away. ``inter`` and ``intra`` are (latency in s,
    bits/s) of a node and of an accelerator.
    """
    holders = np.where(nodes > 1, np.minimum(experts, nodes), np.minimum(experts, per_node))
    latency_s, bits_per_s = (
        np.where(nodes > 1, between, inside) for between, inside in zip(inter, intra, strict=True)
    )
    own_bits = bits / np.where(nodes > 1, nodes, per_node)
    seconds = latency_s * (holders - 1) + own_bits * (holders - 1) / holders / bits_per_s
    return flag * moe_layers / layers * seconds


COMPUTATION = (
    Formula(
        "seconds_per_MAC",
        ("peak_compute_8bit_MACs", "efficiency"),
        lambda peak, efficiency: 1 / (peak * efficiency),
        _S,
        "8 bits wide",
    ),
    Formula(
        "seconds_per_non_linear_operation",
        (
            "frequency",
            "non_linear_functional_units_per_core",
            "non_linear_functional_unit_hardware_8bit_NLIN_per_cycle",
        ),
        lambda frequency, units, per_cycle: 1 / (frequency * units * per_cycle),
        _S,
    ),
    Formula("mac_passes_forward", ("weight_precision",), lambda weight: np.ceil(weight / 32)),
    Formula(
        "mac_passes_backward",
        ("weight_precision", "gradient_precision"),
        lambda weight, gradient: np.ceil(np.maximum(weight, gradient) / 32),
    ),
    Formula("mac_passes_update", (), lambda: 1.0),
    Formula(
        "non_linear_passes_forward",
        ("activation_precision",),
        lambda activation: np.ceil(activation / 32),
    ),
    Formula(
        "non_linear_passes_backward", ("weight_precision",), lambda weight: np.ceil(weight / 32)
    ),
    Formula("gating_MACs_per_layer", ("gating_MAC_operations",), lambda gating: gating),
    Formula("decoder_MACs_forward_per_layer", ("decoder_NMACs",), lambda decoder: decoder),
    Formula("decoder_MACs_backward_per_layer", (), lambda: 0.0),
    *(
        Formula(
            f"MACs_{phase}_per_layer",
            (
                *("total_attention_sublayer_MAC_operations", "total_MLP_sublayer_MAC_operations"),
                *("gating_MACs_per_layer", f"decoder_MACs_{decoder}_per_layer"),
            ),
            function,
        )
        for phase, decoder, function in (
            (
                "forward",
                "forward",
                lambda attention, mlp, gating, decoder: attention + mlp + gating / 2 + decoder,
            ),
            (
                "backward",
                "backward",
                lambda attention, mlp, gating, decoder: attention + mlp + gating / 2 + decoder,
            ),
            (
                "update",
                "backward",
                lambda attention, mlp, gating, decoder: attention + mlp + gating + decoder,
            ),
        )
    ),
    *(
        Formula(
            f"computation_{phase}",
            (
                *(
                    "seconds_per_MAC",
                    f"MACs_{phase}_per_layer",
                    f"mac_passes_{phase}",
                    "seconds_per_non_linear_operation",
                ),
                *(
                    "non_linear_operations_for_attention_sublayer",
                    "non_linear_operations_for_MLP_sublayer",
                ),
                f"non_linear_passes_{phase}",
            ),
            lambda mac_s, macs, passes, nonlinear_s, attention, mlp, nonlinear_passes: (
                mac_s * macs * passes + nonlinear_s * (attention + mlp) * nonlinear_passes
            ),
            _S,
            "of a layer and batch on one accelerator",
        )
        for phase in ("forward", "backward")
    ),
    Formula(
        "computation_update",
        ("seconds_per_MAC", "MACs_update_per_layer", "mac_passes_update"),
        lambda mac_s, macs, passes: mac_s * macs * passes,
        _S,
        "of a layer and batch on one accelerator",
    ),
)

SHARES = (
    Formula("share_tensor_intra", ("number_of_nodes_required",), lambda nodes: 1 / nodes),
    *(
        Formula(name, (), lambda: 1.0)
        for name in (
            "share_tensor_inter",
            "share_pipeline_intra",
            "share_pipeline_inter",
            "share_gradient_intra",
        )
    ),
    Formula("share_gradient_inter", (), lambda: 1.0),
)

_INSIDE = ("inter_accelerator_latency", "inter_accelerator_bandwidth")
_BETWEEN = ("inter_node_latency", "electrical_inter_node_bandwidth")
_LINKS = {"intra": _INSIDE, "inter": _BETWEEN}
_VOLUMES = {
    "forward": ("activations_volume_per_layer_batch", "activation_precision"),
    "backward": ("error_volume_per_layer_batch", "gradient_precision"),
}


def _tensor(phase: str, place: str) -> Formula:
    return Formula(
        f"tensor_{place}_{phase}",
        (f"{place}_node_{_TP}", *_LINKS[place], *_VOLUMES[phase], f"share_tensor_{place}"),
        lambda tp, latency, bandwidth, volume, bits, share: ring_all_reduce(
            tp, latency, 2 * volume * share * bits, bandwidth
        ),
        _S,
        "two all-reduces of a layer",
    )


def _pipeline(phase: str, place: str) -> Formula:
    return Formula(
        f"pipeline_{place}_{phase}",
        (
            f"{place}_node_{_PP}",
            *_LINKS[place],
            *_VOLUMES[phase],
            f"share_pipeline_{place}",
            "layers",
        ),
        lambda pp, latency, bandwidth, volume, bits, share, layers: pipeline_transfer(
            pp, latency, volume * share * bits, bandwidth, layers
        ),
        _S,
    )


def _moe(phase: str) -> Formula:
    return Formula(
        f"moe_{phase}",
        (
            *(
                "expert_flag",
                "number_of_experts",
                "number_of_nodes_required",
                "accelerators_per_node_required",
            ),
            *("number_of_MoE_layers", "layers", *_VOLUMES[phase], *_BETWEEN, *_INSIDE),
        ),
        lambda flag, experts, nodes, per_node, moe_layers, layers, volume, bits, *links: (
            2
            * moe_communication(
                flag,
                experts,
                nodes,
                per_node,
                moe_layers,
                layers,
                volume * bits,
                links[:2],
                links[2:],
            )
        ),
        _S,
        "dispatch to the experts and back (reconstructed)",
    )


def _phase(phase: str) -> tuple[Formula, ...]:
    parts = (f"tensor_intra_{phase}", f"tensor_inter_{phase}", f"moe_{phase}", f"pipeline_{phase}")
    return (
        _tensor(phase, "intra"),
        _tensor(phase, "inter"),
        _moe(phase),
        _pipeline(phase, "intra"),
        _pipeline(phase, "inter"),
        Formula(
            f"pipeline_{phase}",
            (f"pipeline_intra_{phase}", f"pipeline_inter_{phase}"),
            np.maximum,
            _S,
            "the slower link",
        ),
        Formula(
            f"zero_overhead_{phase}",
            ("zero_DP_overhead", *parts),
            lambda overhead, intra, inter, moe, pipeline: (
                overhead * (intra + inter + moe + pipeline)
            ),
            _S,
            "gathering the model as a share of other communication",
        ),
        Formula(
            f"stage_communication_{phase}",
            (*parts, f"zero_overhead_{phase}"),
            lambda intra, inter, moe, pipeline, overhead: intra + inter + moe + pipeline + overhead,
            _S,
        ),
        Formula(
            f"communication_{phase}",
            (f"stage_communication_{phase}", "zero_gathering"),
            lambda stage, gathering: stage + gathering,
            _S,
        ),
    )


COMMUNICATION = (
    Formula(
        "zero_DP_overhead",
        (),
        lambda: 0.25,
        description="extra traffic of ZeRO-DP as a share of other traffic (M_f_DP)",
    ),
    Formula("zero_gathering", (), lambda: 0.0, _S, "all-gather of a layer's weights"),
    Formula("gradient_ring_share", (), lambda: 1.0, description="of an all-reduce"),
    *_phase("forward"),
    *_phase("backward"),
    *(
        Formula(
            f"gradients_{place}",
            (
                *(
                    "r_non_overlapping",
                    f"{place}_node_{_DP}",
                    *_LINKS[place],
                    "number_of_parameters_per_layer",
                    _TP,
                ),
                *("gradient_precision", f"share_gradient_{place}", "gradient_ring_share"),
            ),
            lambda exposed, dp, latency, bandwidth, parameters, tp, bits, share, ring: (
                exposed
                * ring
                * ring_all_reduce(dp, latency, parameters / tp * share * bits, bandwidth)
            ),
            _S,
            "all-reduce of a layer's gradients",
        )
        for place in ("intra", "inter")
    ),
)

TOTALS = (
    Formula(
        "pipeline_bubble",
        (
            *(
                "r_non_overlapping",
                _PP,
                "computation_forward",
                "computation_backward",
                "computation_update",
            ),
            *(
                "number_of_accelerators_required",
                "layers",
                "stage_communication_forward",
                "stage_communication_backward",
            ),
            "number_of_microbatches_per_minibatch",
        ),
        lambda exposed, pp, forward, backward, update, accelerators, layers, traffic_f, traffic_b, count: (
            exposed
            * (pp - 1)
            * ((forward + backward) / (accelerators * layers) + traffic_f + traffic_b)
            / count
        ),
        _S,
        "waiting of a layer and batch",
    ),
    Formula(
        "layer_batches", ("number_of_batches", "layers"), lambda batches, layers: batches * layers
    ),
    Formula(
        TOTAL_S,
        (
            *("layer_batches", "computation_forward", "computation_backward", "computation_update"),
            *(
                "number_of_accelerators_required",
                "communication_forward",
                "gradients_intra",
                "gradients_inter",
            ),
            *("communication_backward", "pipeline_bubble"),
        ),
        lambda times, forward, backward, update, accelerators, traffic_f, intra, inter, traffic_b, bubble: (
            times
            * (
                (forward + backward + update) / accelerators
                + traffic_f
                + (intra + inter)
                + traffic_b
                + bubble
            )
        ),
        _S,
    ),
    Formula(
        "total_MACs",
        (
            "layer_batches",
            "MACs_forward_per_layer",
            "MACs_backward_per_layer",
            "MACs_update_per_layer",
        ),
        lambda times, forward, backward, update: times * (forward + backward + update),
        description="of the whole training (reconstructed: all three passes)",
    ),
)

TIME_FORMULAS = (*COMPUTATION, *SHARES, *COMMUNICATION, *TOTALS)
