"""A residual network of stages of bottlenecks, and its rates taken from values while it is
built."""

import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, inner, width, stride, rate):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = (
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.rate = rate
        same = stride == 1 and inner == 4 * width
        self.downsample = (
            None
            if same
            else nn.Sequential(nn.Conv2d(inner, 4 * width, 1, stride), nn.BatchNorm2d(4 * width))
        )

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.bn3(self.conv3(x)) + shortcut)


class ResNet(nn.Module):
    def __init__(self, depths, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        rates = [rate.item() for rate in torch.linspace(0, 0.1, len(depths))]
        inner = width
        for stage, depth in enumerate(depths):
            blocks = []
            for block in range(depth):
                blocks.append(
                    Bottleneck(inner, width << stage, 2 if stage and not block else 1, rates[stage])
                )
                inner = 4 * (width << stage)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(inner, 10)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def build():
    return ResNet((3, 7), 8)


def example_inputs(micro_batch_size):
    return torch.randn(micro_batch_size, 3, 32, 32)


def loss(output):
    return nn.functional.cross_entropy(output, torch.zeros(len(output), dtype=torch.long))
