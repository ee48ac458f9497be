"""A U-Net for diffusion: group norms, a time embedding added to every block, attention at the
bottom, skips across."""

import math

import torch
from torch import nn
from torch.nn import functional


class ResidualBlock(nn.Module):
    def __init__(self, inner, outer, time):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, inner), nn.GroupNorm(4, outer)
        self.conv1, self.conv2 = (
            nn.Conv2d(inner, outer, 3, padding=1),
            nn.Conv2d(outer, outer, 3, padding=1),
        )
        self.time = nn.Linear(time, outer)
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x, t):
        h = (
            self.conv1(functional.silu(self.norm1(x)))
            + self.time(functional.silu(t))[:, :, None, None]
        )
        return self.skip(x) + self.conv2(functional.silu(self.norm2(h)))


class Bottom(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = (
            nn.GroupNorm(4, width),
            nn.Conv1d(width, 3 * width, 1),
            nn.Conv1d(width, width, 1),
        )

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x).view(b, c, h * w)).chunk(3, dim=1)
        weights = torch.einsum("bct,bcs->bts", q, k).mul(c**-0.5).softmax(-1)
        return x + self.out(torch.einsum("bts,bcs->bct", weights, v)).view(b, c, h, w)


class UNet(nn.Module):
    def __init__(self, width=16, time=32):
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.down1, self.down2 = (
            ResidualBlock(width, width, time),
            ResidualBlock(width, 2 * width, time),
        )
        self.pool1, self.pool2 = (
            nn.Conv2d(c, c, 3, stride=2, padding=1) for c in (width, 2 * width)
        )
        self.middle, self.attention = ResidualBlock(2 * width, 2 * width, time), Bottom(2 * width)
        self.up2, self.up1 = (
            ResidualBlock(4 * width, width, time),
            ResidualBlock(2 * width, width, time),
        )
        self.leave = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, step):
        rates = torch.exp(-math.log(1e4) * torch.arange(self.width // 2) / (self.width // 2))
        angles = step[:, None].float() * rates
        t = self.time(torch.cat([angles.sin(), angles.cos()], 1).to(x.dtype))
        one = self.down1(self.enter(x), t)
        two = self.down2(self.pool1(one), t)
        bottom = self.attention(self.middle(self.pool2(two), t))
        up = self.up2(torch.cat([functional.interpolate(bottom, scale_factor=2.0), two], 1), t)
        up = self.up1(torch.cat([functional.interpolate(up, scale_factor=2.0), one], 1), t)
        return self.leave(up)


def build():
    return UNet()


def example_inputs(micro_batch_size):
    return torch.randn(micro_batch_size, 3, 32, 32), torch.zeros(micro_batch_size, dtype=torch.long)


def loss(output):
    return output.square().mean()
