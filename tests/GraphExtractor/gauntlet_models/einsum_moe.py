"""Experts by einsum, as in Mesh TensorFlow: a capacity for each expert, tokens dispatched and
combined by products."""

import torch
from torch import nn
from torch.nn import functional


class Experts(nn.Module):
    def __init__(self, width, inner, experts, capacity):
        super().__init__()
        self.capacity = capacity
        self.gate = nn.Linear(width, experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(experts, width, inner) * 0.02)
        self.w2 = nn.Parameter(torch.randn(experts, inner, width) * 0.02)

    def forward(self, x):
        scores = self.gate(x).float().softmax(-1).to(x.dtype)
        chosen = functional.one_hot(scores.argmax(-1), scores.shape[-1])
        place = chosen.cumsum(1) * chosen - 1
        slot = (
            functional.one_hot(place.clamp(0, self.capacity - 1), self.capacity)
            * ((place >= 0) & (place < self.capacity))[..., None]
        )
        dispatch = slot.to(x.dtype)
        combine = dispatch * scores[..., None]
        inside = torch.einsum("gsec,gsm->egcm", dispatch, x)
        inner = torch.relu(torch.einsum("egcm,emh->egch", inside, self.w1))
        outside = torch.einsum("egch,ehm->egcm", inner, self.w2)
        return torch.einsum("gsec,egcm->gsm", combine, outside)


class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.experts = Experts(width, 64, experts=4, capacity=16)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.experts(self.norm2(x))


def build():
    return nn.Sequential(nn.Embedding(200, 32), *(Block() for _ in range(4)), nn.Linear(32, 200))


def example_inputs(micro_batch_size, sequence_length=32):
    return torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)


def loss(logits):
    return functional.cross_entropy(
        logits.flatten(0, 1), torch.zeros(logits.shape[:2].numel(), dtype=torch.long)
    )
