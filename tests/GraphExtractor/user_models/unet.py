"""A U-Net: every level goes to the bottom and across."""

import torch
from torch import nn
from torch.nn import functional


class DoubleConv(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(inner, outer, 3, padding=1, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU(inplace=True),
        )
        self.second = nn.Sequential(
            nn.Conv2d(outer, outer, 3, padding=1, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.second(self.first(x))


class Down(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(inner, outer))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.up = nn.ConvTranspose2d(inner, inner // 2, kernel_size=2, stride=2)
        self.conv = DoubleConv(inner, outer)

    def forward(self, below, across):
        below = self.up(below)
        missing = across.size(2) - below.size(2)
        below = functional.pad(below, [missing // 2, missing - missing // 2] * 2)
        return self.conv(torch.cat([across, below], dim=1))


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inc = DoubleConv(3, width)
        self.down1, self.down2, self.down3 = (
            Down(width << level, width << level + 1) for level in range(3)
        )
        self.up1, self.up2, self.up3 = (
            Up(width << level + 1, width << level) for level in (2, 1, 0)
        )
        self.outc = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        level0 = self.inc(x)
        level1 = self.down1(level0)
        level2 = self.down2(level1)
        x = self.up1(self.down3(level2), level2)
        return self.outc(self.up3(self.up2(x, level1), level0))


def build():
    return UNet(8)


def example_inputs(micro_batch_size):
    return torch.randn(micro_batch_size, 3, 32, 32)


def loss(output):
    return functional.cross_entropy(
        output, torch.zeros(len(output), *output.shape[2:], dtype=torch.long)
    )
