import torch
from torch import nn

tensor_parallel = {
    "column": ["*.linear1"],
    "row": ["*.linear2"],
    "entrances": [],
    "sizes": {"ffn": 64},
}


def build():
    block = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    return nn.Sequential(nn.Embedding(100, 32), nn.TransformerEncoder(block, 2), nn.Linear(32, 100))


def example_inputs(micro_batch_size, sequence_length=16):
    return torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)


def loss(output):
    return nn.functional.cross_entropy(
        output.flatten(0, 1), torch.zeros(output.shape[:2].numel(), dtype=torch.long)
    )
