"""Models as users write them, a step of any of them, and one run of it on all devices of a group in
lockstep."""

import operator

import torch
from torch import nn
from torch.nn import functional

from GraphExtractor.custom_operators import OWN_PART
from GraphExtractor.derived_sharding import shard_traced
from GraphExtractor.derived_sharding.facts import StepFacts
from GraphExtractor.derived_sharding.pairs import find_pairs
from GraphExtractor.fake_mode import FakeMode
from GraphExtractor.graph import Attention
from GraphExtractor.layer_modules import each_layer_module, find_layer_modules
from GraphExtractor.tracing import trace_step

BATCH, LENGTH, WIDTH, HEADS, VOCABULARY = 2, 6, 16, 4, 40


class FusedAttention(nn.Module):
    """Sizes from the module's own numbers, queries, keys and values packed in one product: as in
    nanoGPT."""

    def __init__(self, width=WIDTH, heads=HEADS, bias=True):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)
        self.n_head, self.n_embd = heads, width

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (
            each.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for each in (q, k, v)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class StackedAttention(nn.Module):
    """The packed product viewed as (3, heads, width), as in vision transformers; masked softmax
    written out."""

    def __init__(self, width=WIDTH, heads=HEADS):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).reshape(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (C // self.heads) ** 0.5
        mask = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(B, T, C))


class InterleavedAttention(nn.Module):
    """Query, key and value of a head beside each other, a bias on the scores that differs by
    head."""

    def __init__(self, width=WIDTH, heads=HEADS):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.distance = nn.Embedding(LENGTH, heads)

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = self.qkv(x).view(B, T, self.heads, -1).transpose(1, 2).chunk(3, dim=-1)
        position = torch.arange(T, device=x.device)
        bias = self.distance((position[:, None] - position[None]).abs()).permute(2, 0, 1)[None]
        slopes = 2.0 ** -torch.arange(1, self.heads + 1, device=x.device)
        weights = (q @ k.transpose(-2, -1) + bias + slopes[:, None, None] * position).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))


class GroupedAttention(nn.Module):
    """Separate projections, fewer key heads, rotary positions, queries and keys normalised by
    head."""

    def __init__(self, width=WIDTH, heads=HEADS, kv_heads=2):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, kv_heads * self.head, bias=False) for _ in range(2))
        self.q_scale, self.k_scale = (nn.Parameter(torch.ones(self.head)) for _ in range(2))

    def rotated(self, x):
        angle = torch.arange(x.shape[-2], device=x.device)[:, None] / 10.0 ** torch.arange(
            self.head // 2, device=x.device
        )
        cos, sin = angle.cos().repeat(1, 2).to(x.dtype), angle.sin().repeat(1, 2).to(x.dtype)
        half = torch.cat((-x[..., self.head // 2 :], x[..., : self.head // 2]), dim=-1)
        return x * cos + half * sin

    def forward(self, x):
        B, T, _ = x.shape
        q = self.q(x).view(B, T, self.heads, self.head).transpose(1, 2)
        k, v = (
            each(x).view(B, T, self.kv_heads, self.head).transpose(1, 2)
            for each in (self.k, self.v)
        )
        q, k = (
            self.rotated(q * torch.rsqrt(q.pow(2).mean(-1, keepdim=True) + 1e-6) * self.q_scale),
            self.rotated(k * self.k_scale),
        )
        k, v = (each.repeat_interleave(self.heads // self.kv_heads, dim=1) for each in (k, v))
        weights = torch.softmax(q @ k.transpose(-2, -1) * self.head**-0.5, dim=-1)
        return self.o((weights @ v).transpose(1, 2).reshape(B, T, -1))


class Mlp(nn.Module):
    def __init__(self, width=WIDTH, inner=24):
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return self.down(functional.gelu(self.up(x)))


class GatedMlp(nn.Module):
    """``fused``: gate and up in one product."""

    def __init__(self, width=WIDTH, inner=24, fused=False):
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * inner, bias=False) if fused else None
        self.gate, self.up = (
            (None, None) if fused else (nn.Linear(width, inner, bias=False) for _ in range(2))
        )
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1) if self.gate_up else (self.gate(x), self.up(x))
        return self.down(functional.silu(gate) * up)


class Block(nn.Module):
    """``order``: norms before (pre) or behind (post) the two parts, or both parts side by side
    (parallel)."""

    def __init__(self, attention, mlp, order="pre"):
        super().__init__()
        self.attn, self.mlp, self.order = attention(), mlp(), order
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x):
        if self.order == "post":
            x = self.norm1(x + self.attn(x))
            return self.norm2(x + self.mlp(x))
        if self.order == "parallel":
            return x + self.attn(self.norm1(x)) + self.mlp(self.norm2(x))
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """Embeddings, two blocks, a head that shares the table of the embedding."""

    def __init__(self, block):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(block() for _ in range(2))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


def decoder(attention=FusedAttention, mlp=Mlp, order="pre"):
    return Decoder(lambda: Block(attention, mlp, order))


def token_loss(model, values):
    logits = model(values["ids"])
    return functional.cross_entropy(logits.flatten(0, -2), values["ids"].flatten())


def square_loss(model, values):
    return model(values["x"]).square().mean()


def traced(
    build,
    inputs,
    loss=token_loss,
    attention=Attention.EAGER,
    dtype=torch.float64,
    undescribed=False,
):
    """The step of the model that ``build`` makes, traced at width 1 without any values."""
    fake = FakeMode()
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with fake:
            model = build().train()
            values = {name: torch.empty_like(value, device="cpu") for name, value in inputs.items()}
        return trace_step(
            model,
            each_layer_module(model, find_layer_modules(model)),
            values,
            loss,
            fake,
            attention,
            undescribed=undescribed,
        )
    finally:
        torch.set_default_dtype(previous)


def ids(length=LENGTH):
    return {"ids": torch.arange(BATCH * length).view(BATCH, length) * 7 % VOCABULARY}


def part(tensor, shard, rank, tp):
    """What device ``rank`` holds of a tensor that is split."""
    pieces, start = [], 0
    for size in shard.parts:
        pieces.append(tensor.narrow(shard.dim, start + rank * size // tp, size // tp))
        start += size
    return torch.cat(pieces, shard.dim).contiguous()


def run(step, values_by_device):
    """Gradients by parameter on every device; all devices execute each node before any goes on to
    the next."""
    devices = [
        {node: values[name] for node, name in (step.parameters | step.inputs).items()}
        for values in values_by_device
    ]
    for node in step.graph.nodes:
        if node.op == "get_attr":
            for environment in devices:
                environment[node] = getattr(step.graph.owning_module, node.target).clone()
        if node.op != "call_function":
            continue
        if node.target is torch.ops.phaze.all_reduce.default:
            assert node.args[1] == len(devices)
            total = sum(environment[node.args[0]] for environment in devices)
            for environment in devices:
                environment[node] = total.clone()
            continue
        for rank, environment in enumerate(devices):
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), environment.__getitem__)
            if node.meta.get(OWN_PART):
                x, dim, start, end = args
                args = (x, dim, start + rank * (end - start), end + rank * (end - start))
            if node.target is not operator.getitem:
                args = tuple(args)
            environment[node] = node.target(*args, **kwargs)
            value, expected = environment[node], node.meta["val"]
            assert not isinstance(value, torch.Tensor) or value.shape == expected.shape
    return [
        {name: environment[node] for name, node in step.gradients.items()}
        for environment in devices
    ]


def largest_difference(step, inputs, tp):
    """Largest difference between gradients of the whole step and of the devices' steps put
    together, values of order 1."""
    torch.manual_seed(0)
    names = step.parameters
    shapes = {name: node.meta["val"] for node, name in names.items()}
    whole = {
        name: torch.randn(value.shape, dtype=value.dtype) * 0.3 for name, value in shapes.items()
    } | inputs
    seeds = find_pairs(StepFacts(step)).propagation.seeds
    shards = {name: seeds[node] for node, name in names.items() if node in seeds}
    assert shards

    def held(values, rank):
        return {
            name: part(value, shards[name], rank, tp) if name in shards else value
            for name, value in values.items()
        }

    (expected,) = run(step, [whole])
    found = run(shard_traced(step, tp), [held(whole, rank) for rank in range(tp)])
    assert max(value.abs().max() for value in expected.values()) > 1e-2
    differences = []
    for rank, gradients in enumerate(found):
        for name, value in held(expected, rank).items():
            assert gradients[name].shape == value.shape, name
            differences.append((gradients[name] - value).abs().max().item())
    return max(differences)
