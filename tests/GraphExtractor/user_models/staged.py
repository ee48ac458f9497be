"""A UNet whose stages hold lists of blocks, with skip connections between stages."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.into = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.out = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.out(torch.relu(self.norm(self.into(x))))


class Stage(nn.Module):
    def __init__(self, enter, width, depth):
        super().__init__()
        self.enter = enter
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x):
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        return x


class UNet(nn.Module):
    def __init__(self, widths=(8, 16, 32), depths=(2, 6)):
        super().__init__()
        pairs = list(zip(widths[:-1], widths[1:], depths, strict=True))
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1)
        self.down = nn.ModuleList(Stage(nn.Conv2d(a, b, 2, 2), b, depth) for a, b, depth in pairs)
        self.up = nn.ModuleList(
            Stage(nn.ConvTranspose2d(b, a, 2, 2), a, depth) for a, b, depth in reversed(pairs)
        )
        self.mix = nn.ModuleList(nn.Conv2d(2 * a, a, 1) for a, _, _ in reversed(pairs))
        self.out = nn.Conv2d(widths[0], 4, 1)

    def forward(self, x):
        x, skips = self.stem(x), []
        for stage in self.down:
            skips.append(x)
            x = stage(x)
        for stage, mix in zip(self.up, self.mix, strict=True):
            x = mix(torch.cat([stage(x), skips.pop()], 1))
        return self.out(x)


def build():
    return UNet()


def example_inputs(micro_batch_size):
    return torch.zeros(micro_batch_size, 3, 32, 32)


def loss(output):
    return output.float().mean()
