"""Whether the tensor-parallel plan of a model file fits its module."""

from fnmatch import fnmatch

import torch

from GraphExtractor.models.base import TensorParallelPlan
from GraphExtractor.sources.model_file import PLAN
from phaze_common.errors import InputError


def check_plan(model: torch.nn.Module, plan: TensorParallelPlan, tp: int, path: str) -> None:
    """Refuse a plan that names what the module does not have, or splits what ``tp`` does not."""
    modules = dict(model.named_modules())

    def matched(key: str, pattern: str) -> list[str]:
        found = [name for name in modules if name and fnmatch(name, pattern)]
        if not found:
            inner = (name for name, each in modules.items() if name and not list(each.children()))
            raise InputError(
                f"{PLAN} of {path}: {pattern!r} under {key!r} matches no module; the modules are "
                f"{', '.join(inner)[:160]}"
            )
        return found

    for key, patterns, dimension in (("column", plan.column, 0), ("row", plan.row, 1)):
        for name in (name for pattern in patterns for name in matched(key, pattern)):
            weight = getattr(modules[name], "weight", None)
            if not isinstance(weight, torch.Tensor) or weight.dim() != 2:
                kind = type(modules[name]).__name__
                raise InputError(
                    f"{PLAN} of {path}: {name!r} under {key!r} is a {kind}; only linears are "
                    "split in this way"
                )
            # a Conv1D as of GPT-2 keeps (in, out)
            linear = isinstance(modules[name], torch.nn.Linear)
            size = weight.shape[dimension if linear else 1 - dimension]
            _check_divides(size, tp, key, name, path)
    for key, pattern in (("embedding", plan.embedding), ("head", plan.head)):
        if pattern:
            weight = getattr(modules.get(pattern), "weight", None)
            if not isinstance(weight, torch.Tensor) or weight.dim() != 2:
                raise InputError(
                    f"{PLAN} of {path}: {pattern!r} under {key!r} is no module with a table of "
                    "weights; name one"
                )
            _check_divides(weight.shape[0], tp, key, pattern, path)
    entrances = (("entrances", each) for each in plan.entrances)
    for key, pattern in (("first", plan.first), ("last", plan.last), *entrances):
        if pattern:
            matched(key, pattern)
    for pattern, attributes in plan.divided.items():
        for name in matched("divided", pattern):
            for attribute in attributes:
                value = getattr(modules[name], attribute, None)
                if type(value) is not int:
                    kind = type(value).__name__
                    raise InputError(
                        f"{PLAN} of {path}: {attribute!r} of {name!r} under 'divided' is a "
                        f"{kind}; name widths"
                    )
                _check_divides(value, tp, f"divided: {attribute}", name, path)


def _check_divides(size: int, tp: int, key: str, name: str, path: str) -> None:
    if size % tp:
        raise InputError(
            f"tensor parallel width {tp} does not divide the {size} of {name!r} under {key!r} in "
            f"{PLAN} of {path}; add that size to its 'sizes', or use a width that divides it"
        )
