"""Translation with torch's own transformer, two texts and a causal mask made on the way."""

import torch
from torch import nn
from torch.nn import functional


class Translator(nn.Module):
    def __init__(self, vocabulary=300, width=64):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.transformer = nn.Transformer(
            width, 4, 3, 3, 128, dropout=0.0, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        x = self.transformer(
            self.source(source), self.target(target), tgt_mask=mask, tgt_is_causal=True
        )
        return self.head(x)


def build():
    return Translator()


def example_inputs(micro_batch_size, sequence_length=32):
    ids = torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
    return {"source": ids, "target": ids[:, : sequence_length // 2]}


def loss(logits):
    return functional.cross_entropy(
        logits.flatten(0, 1), torch.zeros(logits.shape[:2].numel(), dtype=torch.long)
    )
