"""What operators that are only shapes in a trace mean: on one device (``LOCAL``), or on those of a
group (``TOGETHER``)."""

import operator

import torch
from lockstep_grid import EPSILON, GRID_LOCAL, GRID_TOGETHER
from torch.nn import functional

from GraphExtractor.custom_operators import OWN_PART


def placed(lockstep, device, axis):
    """A device's place along an axis."""
    return {
        "tensor": device.tp,
        "tensor2": device.tp2,
        "context": device.cp * lockstep.key.tp2 + device.tp2,
    }[axis]


# on one device


def positions(lockstep, owner, /, *bounds, **settings):
    """A count of the tokens of a device is a list of their positions."""
    found = torch.arange(*bounds, **settings)
    own = owner.positions
    return (
        own.to(found.dtype)
        if len(found) == len(own) and int(found[0]) == 0 and int(found[-1]) == len(own) - 1
        else found
    )


def sliced(lockstep, device, x, dim=0, start=None, end=None, step=1):
    axis = lockstep.node.meta.get("custom", {}).get(OWN_PART)
    if axis:
        place = placed(lockstep, device, axis)
        start, end = start + place * (end - start), end + place * (end - start)
    return torch.ops.aten.slice.Tensor(x, dim, start, end, step)


def masked(lockstep, device, x, diagonal=0):
    """Stands for a causal mask: of scores, and of their gradients."""
    rows = (
        positions(lockstep, device, x.shape[-2])
        if x.shape[-2] == len(device.positions)
        else torch.arange(x.shape[-2])
    )
    hidden = torch.arange(x.shape[-1])[None] > rows[:, None]
    return x.masked_fill(hidden, 0.0 if lockstep.is_backward() else float("-inf"))


def offset_ids(device, ids, rows):
    """Rows of one device's part of the table, and which ids it has."""
    own = ids - device.tp * rows
    has = (own >= 0) & (own < rows)
    return own.clamp(0, rows - 1), has


def embedding(lockstep, device, weight, ids, *_):
    if not lockstep.is_split(lockstep.node.args[0]):
        return functional.embedding(ids, weight)
    own, has = offset_ids(device, ids, len(weight))
    return functional.embedding(own, weight) * has[..., None]


def embedding_gradient(lockstep, device, gradient, ids, rows, *_):
    forward = lockstep.step.origins[lockstep.node].forward
    if lockstep.is_split(forward.args[0]):
        ids, has = offset_ids(device, ids, rows)
        gradient = gradient * has[..., None]
    return torch.zeros(rows, gradient.shape[-1], dtype=gradient.dtype).index_put_(
        (ids,), gradient, accumulate=True
    )


def normalised(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * weight


def rms_norm(lockstep, device, x, weight):
    return normalised(x, weight), torch.zeros(x.shape[:-1], dtype=x.dtype)


def rms_norm_gradients(lockstep, device, gradient, x, weight, statistic):
    return vjp(normalised, (x, weight), gradient)


def vjp(function, arguments, gradient):
    """Gradients of the tensors among ``arguments``."""
    with torch.enable_grad():
        leaves = [each.detach().clone().requires_grad_() for each in arguments]
        return torch.autograd.grad(function(*leaves), leaves, gradient)


def loss_gradient(lockstep, device, gradient, exponentials, total, labels, dtype):
    own, has = offset_ids(device, labels, exponentials.shape[-1])
    target = functional.one_hot(own, exponentials.shape[-1]) * has[..., None]
    return gradient[..., None] * (exponentials / total[..., None] - target)


def attended(q, k, v, bias, sinks, visible):
    """Output (batch, sequence, head, width) of scores where they are ``visible`` (rows,
    columns)."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    scores = scores if bias is None else scores + bias
    scores = scores.masked_fill(~visible, float("-inf"))
    if sinks is not None:
        column = sinks.reshape(1, -1, 1, 1).expand(len(q), -1, q.shape[-2], 1)
        return (torch.cat([scores, column], -1).softmax(-1)[..., :-1] @ v).transpose(1, 2)
    return (scores.softmax(-1) @ v).transpose(1, 2)


def visible(device, rows, columns, causal, window):
    row = device.positions if rows == len(device.positions) else torch.arange(rows)
    column = device.positions if columns == len(device.positions) == rows else torch.arange(columns)
    distance = row[:, None] - column[None]
    seen = distance >= 0 if causal else torch.ones(rows, columns, dtype=torch.bool)
    return seen if window is None else seen & (distance.abs() <= window)


# on the devices of a group


def attention(lockstep, given, devices):
    results = []
    for (args, _), device, (k, v) in zip(
        given, devices, all_keys(lockstep, given, devices, 1), strict=True
    ):
        q, causal, (bias, sinks, window) = args[0], args[3], args[5:8]
        seen = visible(device, q.shape[-2], k.shape[-2], causal, window)
        results.append(
            (attended(q, k, v, bias, sinks, seen), torch.zeros(q.shape[:-1], dtype=q.dtype))
        )
    return results


def all_keys(lockstep, given, devices, place):
    """Keys and values as each device meets them: its own, or all in order."""
    own = [(args[place], args[place + 1]) for args, _ in given]
    if given[0][0][-1] == 1:  # no ring
        return own
    return [tuple(in_order([pair[each] for pair in own], devices, 2) for each in range(2))] * len(
        own
    )


def attention_gradients(lockstep, given, devices):
    found = []
    for (args, _), device, (k, v) in zip(
        given, devices, all_keys(lockstep, given, devices, 2), strict=True
    ):
        gradient, q, causal, (bias, sinks, window) = args[0], args[1], args[6], args[8:11]
        seen = visible(device, q.shape[-2], k.shape[-2], causal, window)
        learned = [each for each in (bias, sinks) if each is not None]

        def function(q, k, v, *others, bias=bias, sinks=sinks, seen=seen):
            rest = list(others)
            return attended(
                q,
                k,
                v,
                None if bias is None else rest.pop(0),
                None if sinks is None else rest.pop(0),
                seen,
            )

        d_q, d_k, d_v, *rest = vjp(function, (q, k, v, *learned), gradient)
        empty = torch.zeros(0)
        found.append(
            [d_q, d_k, d_v, *(empty if each is None else rest.pop(0) for each in (bias, sinks))]
        )
    if given[0][0][-1] > 1:
        for each in (1, 2):
            total = sum(gradients[each] for gradients in found)
            for gradients, device in zip(found, devices, strict=True):
                gradients[each] = total[:, :, device.positions]
    return [tuple(each) for each in found]


def in_order(parts, devices, dim):
    """Parts of all devices of a sequence, their tokens in the order of their positions."""
    positions = torch.cat([device.positions for device in devices])
    assert len(positions.unique()) == len(positions)
    return torch.cat(parts, dim).index_select(dim, positions.argsort())


def gathered_keys(lockstep, given, devices):
    whole = tuple(in_order([args[each] for args, _ in given], devices, 2) for each in range(2))
    return [tuple(each.clone() for each in whole)] * len(given)


def scattered_key_gradients(lockstep, given, devices):
    totals = [sum(args[each] for args, _ in given) for each in range(2)]
    return [tuple(total[:, :, device.positions] for total in totals) for device in devices]


def heads_for_tokens(lockstep, given, devices):
    whole = [in_order([args[each] for args, _ in given], devices, 2) for each in range(3)]
    return list(zip(*(each.chunk(len(devices), 1) for each in whole), strict=True))


def head_gradients(lockstep, given, devices):
    whole = [torch.cat([args[each] for args, _ in given], 1) for each in range(3)]
    return [tuple(each[:, :, device.positions] for each in whole) for device in devices]


def outputs(lockstep, given, devices):
    whole = torch.cat([args[0] for args, _ in given], 2)
    return [whole[:, device.positions] for device in devices]


def output_gradients(lockstep, given, devices):
    return list(in_order([args[0] for args, _ in given], devices, 1).chunk(len(devices), 2))


def cross_entropy(lockstep, given, devices):
    """Maximum, sum and target of each device's part of the vocabulary, the sums relative to the
    maximum of all."""
    most = torch.stack([args[0].amax(-1) for args, _ in given]).amax(0)
    results = []
    for (logits, labels), device in zip((args for args, _ in given), devices, strict=True):
        exponentials = (logits - most[..., None]).exp()
        own, has = offset_ids(device, labels, logits.shape[-1])
        target = logits.gather(-1, own[..., None]).squeeze(-1) * has
        results.append((logits.amax(-1), exponentials.sum(-1), target, exponentials))
    return results


def all_reduce(lockstep, given, devices):
    source = lockstep.node.args[0]
    is_maximum = (
        source.target is operator.getitem
        and source.args[1] == 0
        and source.args[0].target is torch.ops.phaze.cross_entropy.default
    )
    values = [args[0] for args, _ in given]
    total = torch.stack(values).amax(0) if is_maximum else sum(values)
    assert given[0][0][1] == len(devices)
    return [total.clone() for _ in devices]


def all_gather(lockstep, given, devices):
    whole = torch.cat([args[0] for args, _ in given], -2)
    return [whole.clone() for _ in devices]


def reduce_scatter(lockstep, given, devices):
    return [each.contiguous() for each in sum(args[0] for args, _ in given).chunk(len(devices), -2)]


LOCAL = {
    "aten::arange": positions,
    "aten::slice": sliced,
    "aten::tril": masked,
    "aten::native_dropout": lambda _, device, x, *others: (
        x.clone(),
        torch.ones_like(x, dtype=torch.bool),
    ),
    "aten::native_dropout_backward": lambda _, device, gradient, *others: gradient.clone(),
    "aten::embedding": embedding,
    "aten::embedding_dense_backward": embedding_gradient,
    "phaze::rms_norm": rms_norm,
    "phaze::rms_norm_backward": rms_norm_gradients,
    "phaze::cross_entropy_backward": loss_gradient,
    **GRID_LOCAL,
}
TOGETHER = {
    "phaze::attention": ("context", attention),
    "phaze::attention_backward": ("context", attention_gradients),
    "phaze::all_gather_keys": ("context", gathered_keys),
    "phaze::reduce_scatter_keys": ("context", scattered_key_gradients),
    "phaze::all_to_all_heads": ("context", heads_for_tokens),
    "phaze::all_to_all_head_gradients": ("context", head_gradients),
    "phaze::all_to_all_outputs": ("context", outputs),
    "phaze::all_to_all_output_gradients": ("context", output_gradients),
    "phaze::cross_entropy": ("tensor", cross_entropy),
    "phaze::all_reduce": ("tensor", all_reduce),
    "phaze::all_gather": ("tensor", all_gather),
    "phaze::reduce_scatter": ("tensor", reduce_scatter),
    **GRID_TOGETHER,
}
