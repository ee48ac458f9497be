"""What the chips of a family can run: recipes of fewer than 16 bits, libraries of exchanges, graphs
of kernels and kernels of attention."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from Estimator.devices.device import Device
from Estimator.devices.recipes import unit_of
from phaze_common.choices import Dispatcher, Precision
from phaze_common.errors import InputError
from phaze_common.records import read_yaml, to_record
from phaze_common.suggestions import choice

_FILE = Path(__file__).with_name("architectures.yaml")


@dataclass(frozen=True)
class Architecture:
    """A family of chips: precisions of fewer than 16 bits that they run, dispatchers that send one
    copy of a token to each node, whether kernels are replayed as graphs, and kernels of attention
    by name."""

    reduced: tuple[Precision, ...]
    dispatchers: tuple[Dispatcher, ...]
    cuda_graphs: bool
    attention: tuple[str, ...]
    source: str

    def runs(self, dispatcher: Dispatcher | None) -> bool:
        """Whether tokens can get to their experts so."""
        return dispatcher is None or not dispatcher.per_node or dispatcher in self.dispatchers


@cache
def architectures() -> Mapping[str, Architecture]:
    """All of them by name."""
    stated = read_yaml(_FILE)
    return MappingProxyType(
        {name: to_record(Architecture, each, f"{_FILE} ({name})") for name, each in stated.items()}
    )


def architecture_of(device: Device | None) -> Architecture | None:
    """That of a device; None where nobody says it, and nothing is refused."""
    if device is None or device.architecture is None:
        return None
    return architectures()[device.architecture]


def check_runs(
    device: Device,
    precision: Precision,
    dispatchers: Iterable[Dispatcher | None],
    cuda_graphs: bool,
    attention: str | None,
    *,
    dispatch_fp8: bool = False,
) -> None:
    """Refuse what a device cannot run.

    Raises:
        InputError: says what it is, and what the device runs instead.
    """
    family = architecture_of(device)
    if family is None:
        device.peak_flops(precision.matrix_format)
        return
    for what, instead in _refused(device, family, precision, dispatchers, cuda_graphs, attention):
        raise InputError(f"{device.title} {what}; {instead}")
    if dispatch_fp8 and Precision.FP8 not in family.reduced:
        raise InputError(f"{device.title} has no fp8 to send tokens in; leave --dispatch-fp8 out")


def _refused(
    device: Device,
    family: Architecture,
    precision: Precision,
    dispatchers: Iterable[Dispatcher | None],
    cuda_graphs: bool,
    attention: str | None,
) -> Iterator[tuple[str, str]]:
    described = device.matrix.peak
    wide = [each for each in Precision if not each.is_reduced and each.matrix_format in described]
    known = [each for each in family.reduced if _unit(each) in described]
    instead = f"give --precision {choice([*wide, *known])}"
    if precision in family.reduced and precision not in known:
        yield f"runs {precision}, but what its products reach so is not described", instead
    elif precision.is_reduced and precision not in known and family.reduced:
        yield f"has no products in {precision}", instead
    elif precision not in (*wide, *known):
        yield f"has no matrix units for {_unit(precision)}", instead
    for each in dispatchers:
        if not family.runs(each):
            others = choice(other for other in Dispatcher if family.runs(other))
            yield f"has no {each} to send tokens with", f"give --dispatcher {others}"
    if cuda_graphs and not family.cuda_graphs:
        what = "replays no CUDA graphs, since its steps are compiled whole"
        yield what, "leave --cuda-graphs out"
    shipped = {kernel for each in architectures().values() for kernel in each.attention}
    if attention in shipped and attention not in family.attention:
        kernels = f"give {choice(family.attention)}, or " if family.attention else ""
        yield f"has no attention kernel {attention}", f"{kernels}leave --attention-kernel out"


def _unit(precision: Precision) -> str:
    return unit_of(precision.matrix_format)
