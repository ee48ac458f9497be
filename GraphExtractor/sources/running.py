"""Running a user's model file: the only place where its code is called."""

import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from unittest.mock import patch

import torch
from torch.nn import functional

from GraphExtractor.models.base import CrossEntropy
from GraphExtractor.sources.building import (
    as_fake,
    built_on_fake,
    checked_loss,
    made_on_fake,
    mean_of,
    own_loss,
    shapes_only,
)
from GraphExtractor.sources.user_errors import OWN_CODE, TokenLoops, users_code
from GraphExtractor.torch_internals import pytree
from phaze_common.errors import InputError

logger = logging.getLogger(__name__)
_PACKAGE = "phaze_user"


class UserFile:
    """The functions of a model file, loaded when first needed; call them under a fake mode.

    Raises: InputError: (all methods) the code fails or does not return what it should.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._said: set[str] = set()
        self._split = ""
        self._form: Any = None  # how the inputs are put together

    @cached_property
    def _module(self) -> ModuleType:
        with self._running("loading the model file"):
            return _loaded(Path(self.path))

    @contextmanager
    def _running(self, what: str) -> Iterator[None]:
        """While active, the file's code runs: without weights, and finds its folder."""
        with users_code(self.path, what), shapes_only(), _with_its_folder(Path(self.path)):
            yield

    def _function(self, name: str) -> Callable[..., Any]:
        function: Any = getattr(self._module, name, None)
        if not callable(function):
            kind = type(function).__name__
            raise InputError(f"{name} in {self.path} is {kind}; make it a function")
        return cast("Callable[..., Any]", function)

    def _warn(self, words: str, *more: object) -> None:
        """Say something of the file, once."""
        if words not in self._said:
            self._said.add(words)
            logger.warning(words, self.path, *more)

    def build(self, tp: int) -> torch.nn.Module:
        """The module of ``build()``, on fake tensors, to be split over ``tp`` devices."""
        self._split = f" at tensor parallel width {tp}" if tp > 1 else ""
        build = self._function("build")
        with self._running("build()"):
            model = built_on_fake(build)
        if not isinstance(model, torch.nn.Module):
            held = "nothing" if model is None else f"an object of type {type(model).__name__}"
            raise InputError(
                f"build() in {self.path} returns {held}; return the torch.nn.Module to train"
            )
        parameters = list(model.parameters())
        frozen = [each.numel() for each in parameters if not each.requires_grad]
        if len(frozen) == len(parameters):
            kind = "only frozen parameters" if frozen else "no parameters"
            raise InputError(
                f"the module that build() in {self.path} returns has {kind}; there is nothing to "
                "train"
            )
        if frozen:
            self._warn(
                "%s has %s frozen parameters, which are read but not counted in the memory of "
                "devices",
                f"{sum(frozen):,}",
            )
        return model

    def inputs(self, *sizes: int) -> dict[str, torch.Tensor]:
        """The tensors of ``example_inputs``, by name or number, in the default precision."""
        make = self._function("example_inputs")
        with self._running("example_inputs()"):
            given = made_on_fake(lambda: make(*sizes))
        if isinstance(given, torch.Tensor):
            given = (given,)
        several = isinstance(given, Mapping | list | tuple)
        if not several or not given:
            kind = ("an empty " if several else "") + type(given).__name__
            raise InputError(
                f"example_inputs() in {self.path} returns {kind}; return a tensor, a tuple or a "
                "dictionary of tensors"
            )
        named = _plain(given if isinstance(given, Mapping) else dict(enumerate(given)))
        leaves, self._form = pytree.tree_flatten_with_path(named)
        found = {
            ".".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path): value
            for path, value in leaves
        }
        for name, value in found.items():
            if not isinstance(value, torch.Tensor):
                raise InputError(
                    f"input {name!r} of example_inputs() in {self.path} is {type(value).__name__}; "
                    "inputs are tensors, what else the module needs belongs into build()"
                )
        return {name: as_fake(value, torch.get_default_dtype()) for name, value in found.items()}

    def _called(self, model: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> Any:
        """The output on inputs put together again; a module may take a whole dictionary."""
        given = pytree.tree_unflatten(list(inputs.values()), self._form)
        if not all(isinstance(name, str) for name in given):
            return model(*given.values())
        return model(given) if _takes_whole(model, given) else model(**given)

    def loss(
        self,
        model: torch.nn.Module,
        inputs: Mapping[str, torch.Tensor],
        cross_entropy: CrossEntropy | None,
    ) -> torch.Tensor:
        """The scalar loss of a forward pass; ``cross_entropy`` takes the place of torch's."""
        own = getattr(self._module, "loss", None) and self._function("loss")
        replaced: AbstractContextManager[Any] = nullcontext()
        if cross_entropy:
            replaced = patch.object(functional, "cross_entropy", _in_place_of(cross_entropy))
        with (
            shapes_only(),
            _with_its_folder(Path(self.path)),
            replaced,
            TokenLoops(model, OWN_CODE),
        ):
            with users_code(self.path, f"the forward pass{self._split}"):
                output = self._called(model, inputs)
            if own:
                with users_code(self.path, "loss()"):
                    return checked_loss(own(output), self.path)
            loss = own_loss(output)
            if loss is None:
                self._warn(
                    "%s has no loss(output) and its output is no loss: the mean of the output "
                    "stands for it"
                )
            return checked_loss(mean_of(output, self.path) if loss is None else loss, self.path)


def _plain(value: Any) -> Any:
    """Mappings of all kinds as dictionaries, whatever they hold."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def _takes_whole(model: torch.nn.Module, given: dict[str, Any]) -> bool:
    """Whether a module takes a dictionary as its one argument, and not what is in it."""
    signature = inspect.signature(model.forward)
    try:
        signature.bind(**given)
    except TypeError:
        with suppress(TypeError):
            signature.bind(given)
            return True
    return False


def _in_place_of(cross_entropy: CrossEntropy) -> Callable[..., torch.Tensor]:
    original = functional.cross_entropy

    def replacement(logits: torch.Tensor, labels: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        with patch.object(functional, "cross_entropy", original):
            return cross_entropy(logits, labels)

    return replacement


def _loaded(path: Path) -> ModuleType:
    """Run a file as a module of a package of its folder."""
    package = ModuleType(_PACKAGE)
    package.__path__ = [str(path.parent)]
    name = f"{_PACKAGE}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # its suffix is .py
    module = importlib.util.module_from_spec(spec)
    # dataclasses of the file look for it there
    with patch.dict(sys.modules, {_PACKAGE: package, name: module}):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _with_its_folder(path: Path) -> Iterator[None]:
    """Let the file import from its folder, of which nothing is left afterwards."""
    paths, modules = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(path.parent))
    try:
        yield
    finally:
        sys.path[:] = paths
        for name in set(sys.modules) - modules:
            file = Path(getattr(sys.modules[name], "__file__", None) or "")
            if path.parent in file.parents and "site-packages" not in file.parts:
                del sys.modules[name]
