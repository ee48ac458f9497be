"""FLOPs of convolutions, counted by hand."""

import pytest
import torch
from torch import nn
from whole_traces import step_of

from GraphExtractor.graph import OperatorKind
from GraphExtractor.layers import layers_of


@pytest.mark.parametrize(
    ("module", "macs"),
    [
        (nn.Conv2d(4, 6, 3, padding=1), 2 * 8 * 8 * 6 * 4 * 9),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1), 2 * 4 * 4 * 6 * 4 * 9),
        (nn.Conv2d(4, 6, 3, padding=1, groups=2), 2 * 8 * 8 * 6 * 2 * 9),
        (nn.ConvTranspose2d(4, 6, 2, stride=2), 2 * 8 * 8 * 4 * 6 * 4),
        (nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1, groups=2), 2 * 8 * 8 * 4 * 3 * 16),
    ],
    ids=["plain", "strided", "grouped", "transposed", "transposed and grouped"],
)
def test_a_convolution_multiplies_what_its_kernel_covers(module, macs):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), module)
    layer = layers_of(step_of(model, {"images": torch.zeros(2, 3, 8, 8)})).layers[-1]
    (forward,) = [
        operator for operator in layer.forward.operators if operator.kind is OperatorKind.CONV
    ]
    (backward,) = [
        operator for operator in layer.backward.operators if operator.kind is OperatorKind.CONV
    ]
    assert forward.flops == 2 * macs and backward.flops == 4 * macs
