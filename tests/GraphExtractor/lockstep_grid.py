"""What the operators of a 2D layout mean: products in panels, divided norms, and the table of the
vocabulary.

Those of products are about a plane, the devices that share the tokens of a context-parallel device:
all columns of all rows.
"""

import torch

EPSILON = 1e-5


class Plane:
    """The devices of a 2D layout that share the tokens of a context-parallel device, and what they
    are given."""

    def __init__(self, lockstep, given, devices):
        self.tp, self.tp2 = lockstep.key.tp, lockstep.key.tp2
        self.places = [(device.tp2, device.tp) for device in devices]
        assert sorted(self.places) == [
            (row, column) for row in range(self.tp2) for column in range(self.tp)
        ]
        self.given = {place: args for place, (args, _) in zip(self.places, given, strict=True)}
        assert all(args[2:] == (self.tp, self.tp2) for args in self.given.values())

    def of_row(self, row, argument):
        """An operand's columns, of all devices of a row side by side."""
        return torch.cat([self.given[row, column][argument] for column in range(self.tp)], -1)

    def weight(self, column):
        """A weight's inputs, of all devices of a column, in the order of the columns of what it
        multiplies."""
        rows = [self.given[row, column][1].chunk(self.tp, 1) for row in range(self.tp2)]
        return torch.cat(
            [rows[row][block] for block in range(self.tp) for row in range(self.tp2)], 1
        )

    def results(self, make):
        return [make(row, column) for row, column in self.places]


def summa(lockstep, given, devices):
    plane = Plane(lockstep, given, devices)
    return plane.results(lambda row, column: plane.of_row(row, 0) @ plane.weight(column).t())


def summa_input_gradient(lockstep, given, devices):
    plane = Plane(lockstep, given, devices)
    totals = [
        sum(plane.given[row, column][0] @ plane.weight(column) for column in range(plane.tp))
        for row in range(plane.tp2)
    ]
    return plane.results(lambda row, column: totals[row].chunk(plane.tp, -1)[column])


def summa_weight_gradient(lockstep, given, devices):
    plane = Plane(lockstep, given, devices)

    def total(column):
        parts = (
            (plane.given[row, column][0].flatten(0, -2), plane.of_row(row, 1).flatten(0, -2))
            for row in range(plane.tp2)
        )
        return sum(gradient.t() @ x for gradient, x in parts)

    totals = [total(column) for column in range(plane.tp)]
    return plane.results(
        lambda row, column: torch.cat(
            [each.chunk(plane.tp2, 1)[row] for each in totals[column].chunk(plane.tp, 1)], 1
        )
    )


def norm_sums(lockstep, device, x, numbers):
    sums = [x.sum(-1), x.square().sum(-1)] if numbers == 2 else [x.square().sum(-1)]
    return torch.stack(sums, -1)


def scaled(x, sums, width):
    """Values less their mean where that is known, and one over their deviation."""
    mean = sums[..., :-1].sum(-1, keepdim=True) / width
    return x - mean, torch.rsqrt(sums[..., -1:] / width - mean.square() + EPSILON)


def norm_apply(lockstep, device, x, sums, weight, bias, width, epsilon):
    centred, inverse = scaled(x, sums, width)
    out = centred * inverse * weight
    return out if bias is None else out + bias


def norm_gradient_sums(lockstep, device, gradient, x, sums, weight, width, epsilon):
    centred, inverse = scaled(x, sums, width)
    normal, inner = centred * inverse, gradient * weight
    found = torch.stack([inner.sum(-1), (inner * normal).sum(-1)][2 - sums.shape[-1] :], -1)
    return found, (gradient * normal).flatten(0, -2).sum(0), gradient.flatten(0, -2).sum(0)


def norm_gradient_apply(lockstep, device, gradient, x, sums, gradient_sums, weight, width, epsilon):
    centred, inverse = scaled(x, sums, width)
    mean = gradient_sums[..., :-1].sum(-1, keepdim=True) / width
    return inverse * (
        gradient * weight - mean - centred * inverse * gradient_sums[..., -1:] / width
    )


def gathered_ids(lockstep, given, devices):
    return [torch.cat([args[0] for args, _ in given], -1)] * len(devices)


def scattered_columns(lockstep, given, devices):
    return list(sum(args[0] for args, _ in given).chunk(len(devices), -1))


def gathered_columns(lockstep, given, devices):
    return [torch.cat([args[0] for args, _ in given], -1)] * len(devices)


def tokens_for_columns(lockstep, given, devices):
    return list(torch.cat([args[0] for args, _ in given], -1).chunk(len(devices), -2))


def columns_for_tokens(lockstep, given, devices):
    return list(torch.cat([args[0] for args, _ in given], -2).chunk(len(devices), -1))


GRID_LOCAL = {
    "phaze::norm_sums": norm_sums,
    "phaze::norm_apply": norm_apply,
    "phaze::norm_gradient_sums": norm_gradient_sums,
    "phaze::norm_gradient_apply": norm_gradient_apply,
}
GRID_TOGETHER = {
    "phaze::summa": ("plane", summa),
    "phaze::summa_input_gradient": ("plane", summa_input_gradient),
    "phaze::summa_weight_gradient": ("plane", summa_weight_gradient),
    "phaze::gather_ids": ("tensor2", gathered_ids),
    "phaze::reduce_scatter_columns": ("tensor", scattered_columns),
    "phaze::all_gather_columns": ("tensor", gathered_columns),
    "phaze::all_to_all_columns": ("tensor2", tokens_for_columns),
    "phaze::all_to_all_tokens": ("tensor2", columns_for_tokens),
}
