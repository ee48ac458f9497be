"""One training step, forward and backward, traced on tensors without memory: no weights, no device.

Method: forward + ``torch.autograd.grad``, recorded. Every forward node is stamped with its layer
and module path by hooks; every backward node carries the autograd sequence number of the forward
node it differentiates.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch
from torch.fx import Node
from torch.nn.modules import module as module_hooks

from GraphExtractor import meta_mode, recording
from GraphExtractor.attention import whole_operators
from GraphExtractor.checkpoints import CHECKPOINTS, Checkpoint, CheckpointedPart
from GraphExtractor.context_parallel import UNSHARED, SharedTokens
from GraphExtractor.fake_mode import FakeMode
from GraphExtractor.graph import Attention
from GraphExtractor.known_values import KnownValues
from GraphExtractor.layer_modules import LayerModule
from GraphExtractor.meta_mode import MetaMode
from GraphExtractor.model_work import WHOLE, Division
from GraphExtractor.recording import Recorder
from GraphExtractor.scans import whole_scans
from GraphExtractor.segments import LayerPlace, Stamp, segments, with_inner_cuts
from GraphExtractor.sparse_rows import sparse_gradients
from GraphExtractor.torch_internals import (
    DataDependentOutputException,
    GuardOnDataDependentSymNode,
    setup_stacktrace_preservation_hooks,
    traceback,
)
from GraphExtractor.user_lines import line_of, remember_lines
from phaze_common.errors import InputError, PhazeError
from phaze_common.progress import said_while

logger = logging.getLogger(__name__)
LossOf = Callable[[torch.nn.Module, Mapping[str, torch.Tensor]], torch.Tensor]
_PRODUCTS = frozenset(
    getattr(torch.ops.aten, name).default
    for name in ("mm", "bmm", "addmm", "baddbmm", "convolution")
)


@dataclass(frozen=True)
class NodeOrigin:
    """Where a traced node belongs: layer, module, pass, and the forward node it differentiates.

    ``again`` marks a node of the backward pass that makes the result of its forward node a second
    time; ``causal`` one of attention under a causal mask.
    """

    layer: int
    module: str
    backward: bool
    core_attention: bool
    forward: Node | None
    again: bool = False
    causal: bool = False


@dataclass(frozen=True)
class TracedStep:
    """A traced step; ``places`` are its layers in order, ``division`` a device's parameters."""

    graph: torch.fx.Graph
    origins: Mapping[Node, NodeOrigin]
    parameters: Mapping[Node, str]
    inputs: Mapping[Node, str]
    gradients: Mapping[str, Node]  # of every parameter that takes part in the loss
    places: tuple[LayerPlace, ...]
    division: Division = WHOLE

    @property
    def layer_count(self) -> int:
        """Number of layers."""
        return len(self.places)


class Stamper:
    """Hooks that keep torch's metadata at the module that runs, and count runs of layers."""

    def __init__(self, model: torch.nn.Module, layer_modules: Sequence[LayerModule]) -> None:
        self.names = {module: name for name, module in model.named_modules()}
        self.layer_modules = {model.get_submodule(each.path): each for each in layer_modules}
        self.runs: list[LayerModule] = []
        self.path = [""]
        self.inside = False
        self.checkpoints: list[Checkpoint] = []  # that are running
        self.checkpoints_begun = 0

    def place(self) -> str:
        """Where the trace is, in words."""
        if traceback.current_meta.get("custom", {}).get("backward"):
            return "backward"
        return f"layer {len(self.runs)} of {len(self.layer_modules)}"

    def write(self, *, backward: bool = False) -> None:
        """Stamp what is traced from now on."""
        stamp = Stamp(len(self.runs), self.inside, self.path[-1])
        notes: dict[str, Any] = {"stamp": stamp, "backward": backward}
        if self.checkpoints:
            notes[CHECKPOINTS] = tuple(self.checkpoints)
        traceback.current_meta["custom"] = notes

    def begin(self, module: torch.nn.Module, *_: Any) -> None:
        """A layer module runs."""
        self.runs.append(self.layer_modules[module])
        self.inside = True
        self.write()

    def enter(self, module: torch.nn.Module, *_: Any) -> None:
        """A module runs."""
        if isinstance(module, CheckpointedPart):
            self.checkpoints_begun += 1
            self.checkpoints.append(Checkpoint(self.checkpoints_begun, module.stops_early))
            self.write()
        if module in self.names:
            self.path.append(self.names[module])
            self.write()

    def leave(self, module: torch.nn.Module, *_: Any) -> None:
        """A module has run."""
        if module in self.layer_modules:
            self.inside = False
        if module in self.names:
            self.path.pop()
            self.write()
        if isinstance(module, CheckpointedPart):
            self.checkpoints.pop()
            self.write()

    @contextmanager
    def stamping(self) -> Iterator[None]:
        """While active, modules that run leave their stamps."""
        handles = [
            module_hooks.register_module_forward_pre_hook(self.enter),
            # behind the module's own hooks, so that what prepares its input runs before it
            *(module.register_forward_pre_hook(self.begin) for module in self.layer_modules),
            module_hooks.register_module_forward_hook(self.leave, always_call=True),
        ]
        self.write()
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


@contextmanager
def substituted_operators(attention: Attention, shared: SharedTokens = UNSHARED) -> Iterator[None]:
    """While active, attention, recurrences and sparse lookups are traced as operators."""
    with whole_operators(attention, shared), whole_scans(), sparse_gradients():
        yield


class StepLoss(torch.nn.Module):  # type: ignore[misc]
    """The loss of a model as a module, whose weights can be replaced, of named inputs."""

    def __init__(self, model: torch.nn.Module, loss_of: LossOf) -> None:
        super().__init__()
        self.model, self.loss_of = model, loss_of

    def forward(self, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The loss."""
        return self.loss_of(self.model, values)


def trace_step(
    model: torch.nn.Module,
    layer_modules: Sequence[LayerModule],
    inputs: Mapping[str, torch.Tensor],
    loss_of: LossOf,
    mode: FakeMode | MetaMode,
    attention: Attention,
    shared: SharedTokens = UNSHARED,
    *,
    drop_unused: bool = False,
    undescribed: bool = False,
    inner_cuts: bool = False,
    name: str = "the model",
) -> TracedStep:
    """Trace ``loss_of(model, inputs)`` and all gradients, on a device that shares its tokens.

    Parameters that no gradient reaches are refused, or with ``drop_unused`` named and left out. Of
    ``undescribed`` models, whose code may do anything, known values are followed and nodes know the
    lines that made them (``meta["stack_trace"]``). With ``inner_cuts`` the parts of layers are
    layers. ``name`` is the model's, for logs of a trace that takes long.

    Raises: InputError: the model's code depends on the value of a tensor. PhazeError: a parameter
        receives no gradient or a backward operator cannot be linked to a forward one.
    """
    parameters = {name: each for name, each in model.named_parameters() if each.requires_grad}
    stamper = Stamper(model, layer_modules)

    step = StepLoss(model, loss_of)
    recorder = Recorder([*parameters.values(), *inputs.values()], mode.run)

    def so_far() -> str:
        return f"tracing {name}: {len(recorder.graph.nodes):,} operators, {stamper.place()}"

    try:
        with ExitStack() as active:
            for each in (mode, traceback.preserve_node_meta(), said_while(so_far), recorder):
                active.enter_context(each)
            if undescribed:
                remember = partial(remember_lines, StepLoss.forward.__code__)
                active.enter_context(KnownValues(remember))
            with stamper.stamping(), substituted_operators(attention, shared):
                loss = step(inputs)
            stamper.write(backward=True)
            traceback.set_stack_trace([])
            setup_stacktrace_preservation_hooks([loss.grad_fn])
            weights = list(parameters.values())
            recorder.end(torch.autograd.grad(loss, weights, allow_unused=True))
    except (DataDependentOutputException, GuardOnDataDependentSymNode) as error:
        ours = recording.__file__, meta_mode.__file__
        libraries = (str(Path(torch.__file__).parent), __file__, *ours)
        frames = extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(libraries)]
        raise InputError(
            f"the model asks for the value of a tensor at {own[-1].filename}:{own[-1].lineno}, "
            "which a traced training step does not have; make the code depend on shapes only"
        ) from error

    graph = recorder.graph
    drop_unread(graph, products_too=not undescribed)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    results = next(node for node in graph.nodes if node.op == "output").args[0]
    gradients = dict(zip(parameters, results, strict=True))
    missing = [name for name, result in gradients.items() if result is None]
    if missing and not drop_unused:
        raise PhazeError(
            f"no gradient reaches the parameters {shortened(missing)}; use them in the loss, or "
            "freeze them with requires_grad_(False)"
        )
    if missing:
        names = shortened(missing)
        logger.warning("no gradient reaches the parameters %s; they are left out", names)
    named = dict(zip(placeholders, parameters, strict=False))
    origins, places = _origins(graph, stamper.runs, frozenset(named), inner_cuts=inner_cuts)
    return TracedStep(
        graph=graph,
        origins=origins,
        parameters=named,
        inputs=dict(zip(placeholders[len(parameters) :], inputs, strict=True)),
        gradients={name: each for name, each in gradients.items() if each is not None},
        places=places,
    )


def drop_unread(graph: torch.fx.Graph, *, products_too: bool) -> None:
    """Leave out what nobody reads, and what gives nothing: checks of values.

    Forward products that nobody reads (the state behind the last chunk of a recurrence) run all the
    same where code is run as it stands.
    """
    for node in list(graph.nodes):
        if node.op == "call_function" and "val" not in node.meta and not node.users:
            graph.erase_node(node)

    def stays(node: Node) -> bool:
        runs = node.target in _PRODUCTS and not node.meta.get("custom", {}).get("backward", True)
        return bool(node.is_impure()) or (runs and not products_too)

    for node in reversed(graph.nodes):
        if not node.users and not stays(node):
            graph.erase_node(node)


def shortened(names: Sequence[str], most: int = 6) -> str:
    """A list of names in words, the first ``most`` of them in full."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def unlinked_gradient(where: object) -> PhazeError:
    """What to say of a gradient, made at ``where``, that differentiates no operator."""
    return PhazeError(
        f"the gradient made for {where} belongs to no operator of the forward pass; write that "
        "line with plain torch operators"
    )


def _origins(
    graph: torch.fx.Graph,
    runs: Sequence[LayerModule],
    parameters: frozenset[Node],
    *,
    inner_cuts: bool,
) -> tuple[dict[Node, NodeOrigin], tuple[LayerPlace, ...]]:
    calls = [node for node in graph.nodes if node.op == "call_function"]
    stamps = {
        node: node.meta["custom"]["stamp"]
        for node in calls
        if not node.meta.get("custom", {}).get("backward", True)
    }
    found = segments(stamps, runs, parameters)
    if inner_cuts:
        found = with_inner_cuts(found, stamps, parameters)
    origins: dict[Node, NodeOrigin] = {}
    by_sequence_number: dict[int, Node] = {}
    for node, stamp in stamps.items():
        notes = node.meta["custom"]
        core, causal = notes.get("core_attention", False), notes.get("causal", False)
        place = found.layer[node], stamp.module
        origins[node] = NodeOrigin(*place, False, core, None, causal=causal)
        # the first node of a number owns the gradient function, later ones are not differentiable
        by_sequence_number.setdefault(node.meta["seq_nr"], node)
    late: list[Node] = []
    for node in calls:
        if node in origins:
            continue
        if node.meta.get("is_gradient_acc"):
            # carries the loss's number: it belongs with the last gradient it adds
            forward = origins[node.all_input_nodes[-1]].forward
        else:
            # an in-place operation on a view uses up two numbers
            number = node.meta.get("seq_nr", -1)
            forward = by_sequence_number.get(number) or by_sequence_number.get(number - 1)
        for each in reversed(node.all_input_nodes):
            # its own left no trace: it goes with the gradient that it reads
            if forward is None and each in origins:
                forward = origins[each].forward
        if forward is None:
            late.append(node)
        else:
            origins[node] = _backward_of(forward, origins)
    # made from parameters and constants: they go with what reads them first
    for node in reversed(late):
        forward = next((origins[user].forward for user in node.users if user in origins), None)
        if forward is None:
            raise unlinked_gradient(line_of(node) or node.target)
        origins[node] = _backward_of(forward, origins)
    return origins, found.places


def _backward_of(forward: Node, origins: Mapping[Node, NodeOrigin]) -> NodeOrigin:
    """Of a node that differentiates another one."""
    origin = origins[forward]
    return NodeOrigin(origin.layer, origin.module, True, False, forward, causal=origin.causal)
