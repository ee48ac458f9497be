"""Modules copied while they are built belong to the mode that they are traced in."""

import copy

import pytest
import torch

from GraphExtractor.fake_mode import FakeMode


@pytest.mark.filterwarnings(
    "ignore:Accessing the data pointer:UserWarning"
)  # torch, of its own copies
def test_copies_of_modules_share_the_mode_and_what_it_remembers():
    mode = FakeMode()
    with mode:
        constant = torch.tensor(1.0)  # whose storage the mode watches
        layer = torch.nn.Linear(2, 3)
        copied = copy.deepcopy(layer)
    watched = mode.fake_tensor_converter.constant_storage_mapping
    assert [[each() is constant for each in tensors] for tensors in watched.values()] == [[True]]
    for name, parameter in copied.named_parameters():
        assert parameter is not layer.get_parameter(name)
        assert parameter.fake_mode is mode
    assert copy.copy(mode) is mode
