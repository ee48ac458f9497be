"""Separable convolutions with squeeze-and-excitation, as of EfficientNet."""

import torch
from torch import nn
from torch.nn import functional


class Separable(nn.Module):
    def __init__(self, width):
        super().__init__()
        inner = 4 * width
        self.enter = nn.Sequential(
            nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.SiLU()
        )
        self.depth = nn.Sequential(
            nn.Conv2d(inner, inner, 3, padding=1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.SiLU(),
        )
        self.squeeze, self.excite = nn.Conv2d(inner, width // 4, 1), nn.Conv2d(width // 4, inner, 1)
        self.leave = nn.Sequential(nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        h = self.depth(self.enter(x))
        h = (
            h
            * self.excite(
                functional.silu(self.squeeze(functional.adaptive_avg_pool2d(h, 1)))
            ).sigmoid()
        )
        return x + self.leave(h)


def build():
    stem = nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(24), nn.SiLU()
    )
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))
    return nn.Sequential(stem, *(Separable(24) for _ in range(5)), head)


def example_inputs(micro_batch_size):
    return torch.randn(micro_batch_size, 3, 32, 32)


def loss(logits):
    return functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
