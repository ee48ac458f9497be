"""Two towers trained to agree: a convolutional one for images, a transformer for texts, and a
learned temperature."""

import torch
from torch import nn
from torch.nn import functional


class Towers(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, width),
        )
        self.tokens = nn.Embedding(300, width)
        self.text = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, 4, 128, batch_first=True, dropout=0.0), 3
        )
        self.logit_scale, self.logit_bias = (
            nn.Parameter(torch.ones(())),
            nn.Parameter(torch.zeros(1)),
        )

    def forward(self, batch):
        image = functional.normalize(self.image(batch["image"]), dim=-1)
        text = functional.normalize(self.text(self.tokens(batch["text"]["ids"])).mean(1), dim=-1)
        return self.logit_scale.exp() * image @ text.T + self.logit_bias


def build():
    return Towers()


def example_inputs(micro_batch_size, sequence_length=32):
    ids = torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
    return {"image": torch.randn(micro_batch_size, 3, 32, 32), "text": {"ids": ids}}


def loss(scores):
    target = torch.arange(len(scores))
    return functional.cross_entropy(scores, target) + functional.cross_entropy(scores.T, target)
