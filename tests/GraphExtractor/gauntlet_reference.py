"""FLOPs and parameters of a model as torch counts them: real tensors, an unmodified model,
``FlopCounterMode``.

What that counter does not see is run as what it sees: attention written out (it knows no kernel of
a CPU), experts one after the other (it has no formula for grouped products), and no kernels for
scans. Blocks are not skipped at random.
"""

import importlib.util
import inspect
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from GraphExtractor.torch_internals import pytree
from scripts.gauntlet_cases import Case

_ATTENTION = "scaled_dot_product_attention"
_IDS = ("input_ids", "labels", "decoder_input_ids")


@dataclass(frozen=True)
class Counted:
    """``trainable`` are the parameters that ask for gradients, ``reached`` those of them that get
    one; tied ones once."""

    forward_flops: int
    backward_flops: int
    parameters: int
    trainable: int
    reached: int


def count(case: Case) -> Counted:
    """Run one step of a case on the CPU and count it."""
    torch.manual_seed(0)
    if case.file is not None:
        module, loss_of = _own_module(case.file)
    else:
        module, loss_of = _configured(case)
    with _products_written_out():
        trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
        with FlopCounterMode(display=False) as forward:
            loss = loss_of()
        with FlopCounterMode(
            display=False,
            custom_mapping={torch.ops.aten.convolution_backward: _convolution_backward},
        ) as backward:
            gradients = torch.autograd.grad(loss, trainable, allow_unused=True)
    return Counted(
        forward.get_total_flops(),
        backward.get_total_flops(),
        sum(parameter.numel() for parameter in module.parameters()),
        sum(parameter.numel() for parameter in trainable),
        sum(
            parameter.numel()
            for parameter, found in zip(trainable, gradients, strict=True)
            if found is not None
        ),
    )


def _convolution_backward(
    gradient: Any, x: Any, weight: Any, *settings: Any, out_shape: Any = None, **_: Any
) -> int:
    """As many FLOPs for each gradient as the forward pass took; torch's own formula multiplies
    grouped ones by the groups."""
    _, _, _, _, transposed, _, _, wanted = settings
    swept: Sequence[int] = x if transposed else gradient
    wanted_gradients: int = sum(wanted[:2])
    products: int = swept[0] * math.prod(swept[2:]) * math.prod(weight)
    return wanted_gradients * 2 * products


def _configured(case: Case) -> tuple[torch.nn.Module, Any]:
    import transformers

    config = transformers.CONFIG_MAPPING[case.config["model_type"]].from_dict(
        case.readable_config()
    )
    config._attn_implementation = "eager"
    if hasattr(config, "use_cache"):
        config.use_cache = False
    if (
        getattr(config, "is_encoder_decoder", False)
        and getattr(config, "decoder_start_token_id", None) is None
    ):
        config.decoder_start_token_id = 0
    for part in (
        config,
        *(
            value
            for value in vars(config).values()
            if isinstance(value, transformers.PreTrainedConfig)
        ),
    ):
        part._experts_implementation = "eager"
        for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
            if hasattr(part, name):
                setattr(part, name, 0.0)
    module = getattr(transformers, case.config["architectures"][0])(config).float().train()
    inputs = {name: _made(name, shape) for name, shape in case.reads.items()} | dict(case.arguments)
    inputs |= {name: torch.tensor(values) for name, values in case.values.items()}
    if case.image:
        inputs["input_ids"][:, : case.image["count"]] = case.image["token"]
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == case.image["token"]).long()

    def loss_of() -> torch.Tensor:
        output = module(**inputs)
        loss = getattr(output, "loss", None)
        return loss if loss is not None else _mean(output)

    return module, loss_of


def _made(name: str, shape: Sequence[int]) -> torch.Tensor:
    if name in _IDS:
        return torch.full(tuple(shape), 1, dtype=torch.long)
    return torch.randn(*shape)


def _mean(output: Any) -> torch.Tensor:
    leaves = pytree.tree_leaves(dict(output) if isinstance(output, Mapping) else output)
    found = [
        leaf.mean()
        for leaf in leaves
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.requires_grad
    ]
    return torch.stack(found).sum()


def _own_module(path: Path) -> tuple[torch.nn.Module, Any]:
    spec = importlib.util.spec_from_file_location(f"gauntlet_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    file = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = file
    spec.loader.exec_module(file)
    module = file.build().train()
    given = file.example_inputs(2)

    def loss_of() -> torch.Tensor:
        whole = (
            isinstance(given, torch.Tensor)
            or "batch" in inspect.signature(module.forward).parameters
        )
        arguments, named = (
            ((given,), {}) if whole else ((), given) if isinstance(given, Mapping) else (given, {})
        )
        output = module(*arguments, **named)
        if hasattr(file, "loss"):
            return cast("torch.Tensor", file.loss(output))
        if isinstance(output, tuple):
            return next(each for each in output if each.numel() == 1)
        return output if output.numel() == 1 else output.mean()

    return module, loss_of


@contextmanager
def _products_written_out() -> Iterator[None]:
    """``scaled_dot_product_attention`` as its products, grouped queries included."""
    original: Any = functional.scaled_dot_product_attention

    def attend(
        q: Any,
        k: Any,
        v: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **named: Any,
    ) -> Any:
        if k.shape[-3] != q.shape[-3]:
            k, v = (each.repeat_interleave(q.shape[-3] // each.shape[-3], -3) for each in (k, v))
        scores = q @ k.transpose(-1, -2) * (named.get("scale") or q.shape[-1] ** -0.5)
        if attn_mask is not None and attn_mask.is_floating_point():
            scores = scores + attn_mask
        return scores.softmax(-1) @ v

    setattr(functional, _ATTENTION, attend)
    try:
        yield
    finally:
        setattr(functional, _ATTENTION, original)
