"""A stage of a plan recomputes the first of its layers, as many as the plan says, and never the
ends of the model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from trained_plans import BACK, FRONT, Stage, tiny_plan

from GraphExtractor.forward_trace import plain_operators, real_model, trace_forward
from GraphExtractor.graph import GraphKey, Recompute
from GraphExtractor.models.registry import find_model
from phaze.runtime.profiling.kernels import real_inputs
from phaze.runtime.training.job import Job
from phaze.runtime.training.stage_program import Cutter, StageProgram, run_layer
from phaze.runtime.training.stage_worker import cut_stage


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("count", "front", "back"),
    [
        (0, "", ""),
        (1, "", "block.2"),
        (2, "block.0", "block.2 block.3"),
        (3, "block.0 block.1", "block.2 block.3"),
        (None, "block.0 block.1", "block.2 block.3"),
    ],
)
def test_the_first_layers_are_recomputed(
    count: int | None, front: str, back: str, tmp_path: Path
) -> None:
    stages = (
        Stage(layers, recompute=Recompute.FULL, recomputed_layers=count) for layers in (FRONT, BACK)
    )
    job = Job(tiny_plan(*stages), 3, tmp_path)
    family = find_model(job.plan.model)
    for stage, again in enumerate((front, back)):
        program = cut_stage(job, family, stage, {}).program
        found = [layer.name for layer in program.layers if layer.recompute is Recompute.FULL]
        assert found == again.split()
        assert {layer.recompute for layer in program.layers} <= {Recompute.FULL, Recompute.NONE}


def test_layers_that_write_into_what_they_are_given_can_run_again(tmp_path: Path) -> None:
    """The residual block of Hugging Face's ResNet adds in place: each of its layers here reads what
    is sent to it, a leaf."""
    path = tmp_path / "config.json"
    sizes = {
        "embedding_size": 4,
        "hidden_sizes": [4, 4, 8, 8],
        "depths": [1, 1, 1, 1],
        "num_labels": 3,
        "layer_type": "basic",
    }
    path.write_text(
        json.dumps(
            {"model_type": "resnet", "architectures": ["ResNetForImageClassification"], **sizes}
        )
    )
    key, family = GraphKey(str(path), 2, 1, 1, dtype="float32"), find_model(str(path))
    with plain_operators():
        model = real_model(family, key)
        trace = trace_forward(model, family, key)
        cutter = Cutter(trace, [0] * len(trace.layers), key.micro_batch_size)
        inputs, random = real_inputs(key, family), torch.Generator().manual_seed(3)
        weights = {
            name: torch.rand(value.shape, generator=random)
            for name, value in model.named_parameters()
        }
        once, again = (
            passed(cutter.program(0, mode, {}), weights, inputs)
            for mode in (Recompute.NONE, Recompute.FULL)
        )
    assert once.keys() == again.keys() == {"loss", *weights}
    for name, value in once.items():
        torch.testing.assert_close(again[name], value)
        assert value.abs().max() > 0, name


def passed(
    program: StageProgram, weights: dict[str, torch.Tensor], inputs: dict[str, Any]
) -> dict[str, torch.Tensor]:
    """The loss, and the gradients of all weights by name, of a pass in which every layer is given
    leaves."""
    leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
    values: dict[str, Any] = {node: leaves[name] for name, node in program.parameters.items()}
    values |= {node: inputs[name] for name, node in program.inputs.items()} | program.constants
    ends: list[tuple[torch.Tensor, torch.Tensor]] = []
    for layer in program.layers:
        run_layer(layer, values)
        for name in layer.gives:
            if (
                name != program.loss
                and isinstance(values[name], torch.Tensor)
                and values[name].requires_grad
            ):
                made, values[name] = values[name], values[name].detach().requires_grad_()
                ends.append((made, values[name]))
    assert program.loss is not None
    loss = values[program.loss]
    loss.backward()
    for made, leaf in reversed(ends):
        made.backward(leaf.grad)
    return {
        "loss": loss.detach(),
        **{name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None},
    }
