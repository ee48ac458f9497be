"""A variational autoencoder of images: strided and transposed convolutions, a sampled code, two
losses."""

import torch
from torch import nn
from torch.nn import functional


class Autoencoder(nn.Module):
    def __init__(self, width=16, code=8):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(2 * width * 64, 2 * code),
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, 2 * width * 64),
            nn.Unflatten(1, (2 * width, 8, 8)),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(width, 3, 4, stride=2, padding=1),
        )

    def forward(self, images):
        mean, spread = self.encoder(images).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        difference = functional.mse_loss(self.decoder(code), images)
        return difference - 0.5 * (1 + spread - mean.square() - spread.exp()).mean()


def build():
    return Autoencoder()


def example_inputs(micro_batch_size):
    return torch.rand(micro_batch_size, 3, 32, 32)
