"""What each device of a layout holds of a whole model's numbers, and its gradients put together
again."""

from dataclasses import dataclass
from functools import cache

import torch
from lockstep import Lockstep

from GraphExtractor.graph import Attention, GraphKey, KeyExchange, TensorLayout

PACKED = ("c_attn", "projection")  # queries, keys and values side by side in one product
TABLES = ("wpe", "position", "token_type")  # small tables that every token looks up
HEADS = (
    "q_norm",
    "k_norm",
)  # parameters that the heads of a device use, and those of the others too


@dataclass(frozen=True)
class Difference:
    """Largest differences to the whole model's gradients and loss, and the largest gradient."""

    gradients: float
    loss: float
    largest: float


@cache
def whole_run(model, family, length, batch, attention):
    """The whole model on one device: numbers that it holds, gradients, loss."""
    key = GraphKey(model, batch, length, 1, attention)
    run = Lockstep(key, family)
    parameters, inputs = random_values(run)
    (gradients,) = run.gradients(
        lambda name, _: parameters[name], lambda name, _: inputs[name], constant
    )
    return parameters, inputs, gradients, run.losses()[0]


def random_values(whole):
    """Parameters and inputs by name, of a seed and of order 1."""
    generator = torch.Generator().manual_seed(7)

    def normal(like):
        return torch.randn(like.shape, generator=generator, dtype=torch.float64)

    parameters = {
        name: normal(node.meta["val"]) * 0.2 + 0.1 for node, name in whole.step.parameters.items()
    }
    inputs = {}
    for node, name in whole.step.inputs.items():
        like = node.meta["val"]
        if like.dtype.is_floating_point:
            inputs[name] = normal(like)
        elif "position" in name:
            inputs[name] = torch.arange(like.shape[-1]).expand(like.shape)
        else:
            most = 2 if "type" in name else whole.family.vocabulary or whole.family.classes
            inputs[name] = torch.randint(most, like.shape, generator=generator)
    return parameters, inputs


def constant(like, device=None):
    """A table that the model keeps: the same wherever its shape is, or the positions of tokens,
    those of the device first."""
    if not like.dtype.is_floating_point:
        table = torch.arange(like.shape[-1])
        table[: len(device.positions)] = device.positions
        return table.expand(like.shape)
    return torch.randn(
        like.shape, generator=torch.Generator().manual_seed(sum(like.shape)), dtype=torch.float64
    )


def chunk(value, dim, place, parts, packed=1):
    """One of ``parts`` of a dimension, or of each of the ``packed`` ones side by side along it."""
    return torch.cat([each.chunk(parts, dim)[place] for each in value.chunk(packed, dim)], dim)


class Parts:
    """Who holds what of a layout."""

    def __init__(self, run):
        self.run, self.key = run, run.key
        self.shapes = {name: node.meta["val"].shape for node, name in run.step.parameters.items()}
        self.fed_shapes = {name: node.meta["val"].shape for node, name in run.step.inputs.items()}

    def cut(self, name, value):
        """Which dimensions of a whole parameter are divided over the first tensor axis, and which
        over the second."""
        if self.key.layout is TensorLayout.TWO_D and value.dim() == 2:
            return (1, None) if any(each in name for each in TABLES) else (0, 1)
        found = [dim for dim, size in enumerate(value.shape) if self.shapes[name][dim] != size]
        assert len(found) <= 1, name
        return (found[0] if found else None), None

    def held(self, name, value, device):
        """A device's part of a whole parameter or its gradient."""
        key = self.key
        if value.dim() == 2 and "Conv1D" in self.transposed(name):
            value = value.t()
        first, second = self.cut(name, value)
        packed = 3 if any(each in name for each in PACKED) else 1
        if first is not None:
            value = chunk(value, first, device.tp, key.tp, packed)
        if second is not None:  # of every part that a column has of what is summed over
            value = chunk(value, second, device.tp2, key.tp2, key.tp)
        return value

    def transposed(self, name):
        """Of a 2D layout all weights are (out, in); GPT-2's are not."""
        gpt = type(self.run.family).__name__ == "Gpt" and ".h." in name
        return "Conv1D" if gpt and self.key.layout is TensorLayout.TWO_D else ""

    def fed(self, name, value, device):
        """A device's part of an input: its tokens."""
        if value.dim() < 2 or value.shape[1] != self.key.sequence_length:
            return value
        value = value[:, device.positions]
        for dim, size in enumerate(self.fed_shapes[name]):
            if (
                value.shape[dim] != size
            ):  # what is predicted is divided over the first tensor axis, too
                value = chunk(value, dim, device.tp, self.key.tp)
        return value

    def added_up(self, name, value, device):
        """Indices of the devices whose gradients of a parameter are summands of the same."""
        first, second = self.cut(name, value)
        with_tensor = first is None and self.is_summand(name)
        return [
            index
            for index, other in enumerate(self.run.devices)
            if (with_tensor or other.tp == device.tp)
            and (second is None or other.tp2 == device.tp2)
        ]

    def is_summand(self, name):
        """Whether a parameter that all devices of the first tensor axis hold meets a part of the
        tokens or heads on each."""
        if any(each in name for each in HEADS):
            return True
        return self.key.sequence_parallel and not any(
            each in name for each in (*TABLES, "embedding.")
        )


def difference(
    model,
    family,
    length,
    tp=1,
    cp=1,
    tp2=1,
    layout=TensorLayout.ONE_D,
    exchange=KeyExchange.GATHER,
    sequence_parallel=False,
    attention=Attention.FLASH,
    batch=2,
    spoiled=None,
):
    """How far the devices of a layout are from the whole model; ``spoiled(graph)`` changes the
    traced step before it runs."""
    parameters, inputs, expected, loss = whole_run(model, family, length, batch, attention)
    key = GraphKey(
        model,
        batch,
        length,
        tp,
        attention,
        sequence_parallel,
        cp=cp,
        layout=layout,
        tp2=tp2,
        exchange=exchange,
    )
    run = Lockstep(key, family)
    if spoiled is not None:
        spoiled(run.step.graph)
    parts = Parts(run)
    found = run.gradients(
        lambda name, device: parts.held(name, parameters[name], device),
        lambda name, device: parts.fed(name, inputs[name], device),
        constant,
    )
    assert set(expected) == set(found[0])
    worst = 0.0
    for index, device in enumerate(run.devices):
        for name, value in expected.items():
            together = parts.added_up(name, value, device)
            # a loss is the mean over the tokens of a device
            total = sum(found[each][name] for each in together) / key.sequence_devices
            assert index in together
            worst = max(worst, (total - parts.held(name, value, device)).abs().max().item())
    losses = run.losses()
    share = (
        tp
        if any(value.dim() == 3 for value in inputs.values())
        and (layout is TensorLayout.TWO_D or sequence_parallel)
        else 1
    )
    mean = sum(losses) / len(losses) * share  # where devices have summands each
    return Difference(
        worst, abs(mean - loss).item(), max(value.abs().max().item() for value in expected.values())
    )
