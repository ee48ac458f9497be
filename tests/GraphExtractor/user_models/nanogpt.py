"""A small GPT in the manner of nanoGPT: fused projections, widths taken from inputs, tied head,
loss inside the module."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass
class Config:
    block_size: int = 64
    vocabulary: int = 256
    layers: int = 6
    heads: int = 4
    width: int = 64
    dropout: float = 0.1


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.width, 3 * config.width)
        self.c_proj = nn.Linear(config.width, config.width)
        self.resid_dropout = nn.Dropout(config.dropout)
        self.n_head, self.n_embd, self.dropout = config.heads, config.width, config.dropout

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (
            part.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
            for part in self.c_attn(x).split(self.n_embd, 2)
        )
        dropout = self.dropout if self.training else 0
        y = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=None, dropout_p=dropout, is_causal=True
        )
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c)))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attn = Attention(config)
        self.c_fc, self.c_proj = (
            nn.Linear(config.width, 4 * config.width),
            nn.Linear(4 * config.width, config.width),
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.dropout(self.c_proj(functional.gelu(self.c_fc(self.ln_2(x)))))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocabulary, config.width),
                "wpe": nn.Embedding(config.block_size, config.width),
                "drop": nn.Dropout(config.dropout),
                "h": nn.ModuleList(Block(config) for _ in range(config.layers)),
                "ln_f": nn.LayerNorm(config.width),
            }
        )
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                torch.nn.init.normal_(parameter, mean=0.0, std=0.02 / math.sqrt(2 * config.layers))

    def forward(self, ids, targets):
        _, t = ids.size()
        assert t <= self.config.block_size
        position = torch.arange(0, t, dtype=torch.long, device=ids.device)
        x = self.transformer.drop(self.transformer.wte(ids) + self.transformer.wpe(position))
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        return logits, functional.cross_entropy(
            logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
        )


def build():
    return GPT(Config())


def example_inputs(micro_batch_size, sequence_length=64):
    ids = torch.randint(0, 256, (micro_batch_size, sequence_length))
    return ids, ids
