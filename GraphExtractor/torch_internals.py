"""All that phaze uses of torch and transformers without a promise that the next release has it.

Nothing else in the repository imports such a name (``tests/test_torch_internals.py``), so a new
release is a matter of this file. What traces rest on besides, and no import shows: nodes of one
autograd function share ``meta["seq_nr"]``, sums of gradients have ``meta["is_gradient_acc"]``, and
``current_meta["custom"]`` is copied to every node made while it stands.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from phaze_common.errors import PhazeError

try:
    from torch._functorch._aot_autograd.logging_utils import setup_stacktrace_preservation_hooks
    from torch._ops import OpOverload
    from torch._subclasses.fake_impls import fast_detach
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensor,
        FakeTensorMode,
        UnsupportedOperatorException,
        unset_fake_temporarily,
    )
    from torch.fx import traceback
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
    from torch.fx.traceback import GRADIENT_ACC_SPECIAL_STACK as GRADIENT_SUM
    from torch.fx.traceback import annotate
    from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes
    from torch.utils.weak import WeakIdKeyDictionary
except ImportError as error:
    raise PhazeError(
        f"torch {torch.__version__} is not one that phaze can trace with ({error}); phaze doctor "
        "tells which it was tested with"
    ) from error

__all__ = [
    "FAKE_TENSOR_LOG",
    "GRADIENT_SUM",
    "LISTED_BY",
    "LISTING_MODULE",
    "BatchNorm",
    "DataDependentOutputException",
    "DispatchMode",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "GuardOnDataDependentSymNode",
    "OpOverload",
    "UnsupportedOperatorException",
    "WeakIdKeyDictionary",
    "annotate",
    "disable_current_modes",
    "fast_detach",
    "has_parts",
    "make_fx",
    "modeling",
    "no_init_weights",
    "preserve_version_counter",
    "pytree",
    "quiet_transformers",
    "sequence_number",
    "setup_stacktrace_preservation_hooks",
    "traceback",
    "unset_fake_temporarily",
]

FAKE_TENSOR_LOG = FakeTensor.__module__  # which tells of operators that fake tensors do not know
# What lists the models of transformers when it is imported
LISTING_MODULE = "transformers.utils.import_utils"
LISTED_BY = "create_import_structure_from_path"


class DispatchMode(TorchDispatchMode):  # type: ignore[misc]
    """A mode whose own code is never compiled: torch's guard against that, around every call, takes
    a twentieth of a trace."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def preserve_version_counter(tensor: torch.Tensor) -> AbstractContextManager[Any]:
    """While active, writing into ``tensor`` does not spoil what autograd saved of it."""
    guard: AbstractContextManager[Any] = torch.autograd._unsafe_preserve_version_counter(tensor)
    return guard


def sequence_number(current: Mapping[str, Any]) -> int:
    """That of the autograd function of what just ran, which its nodes of both passes share.

    ``current`` are torch's notes: in the backward pass they have it, in the forward pass it is the
    last that was given out.
    """
    if current.get("in_grad_fn", 0) > 0:
        return int(current["grad_fn_seq_nr"][-1])
    return int(torch.autograd._get_sequence_nr()) - 1


def has_parts(function: Any) -> bool:
    """Whether an operator is but other ones, which autograd puts in its place."""
    name = function.name() if isinstance(function, OpOverload) else ""
    implicit = "CompositeImplicitAutograd"
    return bool(name) and bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, implicit))


def no_init_weights() -> AbstractContextManager[Any]:
    """While active, models of transformers are built without values in weights, and tie none."""
    from transformers.initialization import no_init_weights as without_values

    context: AbstractContextManager[Any] = without_values()
    return context


def modeling(model_type: str) -> ModuleType:
    """The module of transformers that computes models of a type."""
    return import_module(f"transformers.models.{model_type}.modeling_{model_type}")


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep back warnings about special tokens and generation, which training does not know."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
