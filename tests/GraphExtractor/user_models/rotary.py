"""Complex rotary positions, attention written out, grouped queries, a gated MLP, and a short plan
for tensor parallelism."""

import torch
from torch import nn
from torch.nn import functional

tensor_parallel = {
    "column": ["*.wq", "*.wk", "*.wv", "*.w1", "*.w3"],
    "row": ["*.wo", "*.w2"],
    "entrances": ["*.attention", "*.feed_forward"],
    "embedding": "tok_embeddings",
    "head": "output",
    "sizes": {"key/value heads": 2, "ffn width": 96},
}


def rotated(x, frequencies):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * frequencies.view(1, x.shape[1], 1, -1)).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.head_width, self.repeats = width // heads, heads // kv_heads
        self.wq, self.wo = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.wk, self.wv = (
            nn.Linear(width, kv_heads * self.head_width, bias=False) for _ in range(2)
        )

    def forward(self, x, frequencies, mask):
        q, k, v = (
            linear(x).unflatten(-1, (-1, self.head_width)) for linear in (self.wq, self.wk, self.wv)
        )
        q, k = rotated(q, frequencies), rotated(k, frequencies)
        k, v = (part.repeat_interleave(self.repeats, 2) for part in (k, v))
        scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) * self.head_width**-0.5 + mask
        return self.wo((scores.softmax(-1) @ v.transpose(1, 2)).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, width, ffn):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(width, ffn, bias=False) for _ in range(2))
        self.w2 = nn.Linear(ffn, width, bias=False)

    def forward(self, x):
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(64, 4, 2), FeedForward(64, 96)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(64), nn.RMSNorm(64)

    def forward(self, x, frequencies, mask):
        x = x + self.attention(self.attention_norm(x), frequencies, mask)
        return x + self.feed_forward(self.ffn_norm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(256, 64)
        self.layers = nn.ModuleList(Block() for _ in range(6))
        self.norm, self.output = nn.RMSNorm(64), nn.Linear(64, 256, bias=False)
        angles = torch.outer(torch.arange(128).float(), 1.0 / torch.arange(1, 9))
        self.frequencies = torch.polar(torch.ones_like(angles), angles)

    def forward(self, ids):
        x = self.tok_embeddings(ids)
        mask = torch.full((ids.shape[1], ids.shape[1]), -1e9, dtype=x.dtype).triu(1)
        for layer in self.layers:
            x = layer(x, self.frequencies[: ids.shape[1]], mask)
        logits = self.output(self.norm(x))
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), ids.flatten())


def build():
    return Model()


def example_inputs(micro_batch_size, sequence_length=32):
    return torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
