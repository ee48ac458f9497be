"""The models that Aceso profiles: which operators follow each other, and what its cost model knows
of an operator by its name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from phaze_common.echo import as_given
from phaze_common.errors import InputError
from phaze_common.suggestions import nearest
from phaze_common.yaml_files import read_yaml

SCALED = "scale-layer"  # the size that has any number of layers
MOST_LAYERS = 4096
# Write into a buffer that all such operators share.
SHARED_BUFFERS = frozenset({"enc-attention-softmax", "bn1"})
HELD_AND_HALF = "enc-attention-dropout"  # counted 1.5 times: its result and its mask
NEVER_RECOMPUTED_BY_ACESO = ("embedding", "post-process")
TUNABLE = {"resnet": ("conv", "downsample")}
TUNABLE_OF_TRANSFORMERS = ("embedding", "qkv", "attention-dense", "GEMM")


@dataclass(frozen=True)
class Family:
    """What holds for all sizes of a model.

    Attributes:
        layers: first and last operator of every repeated layer, in order.
        weight_copies: MiB held per MiB of weights, the weights included and their gradients not.
        optimizer_copies: MiB of optimizer state per MiB of weights.
        files_of: sizes priced from the files of another.
        sizes: hyper-parameters by size, as plan files hold them.
    """

    name: str
    layers: Sequence[Sequence[str]]
    weight_copies: float
    optimizer_copies: float
    sizes: Mapping[str, Mapping[str, Any]]
    files_of: Mapping[str, str] = field(default_factory=dict)

    @property
    def reshards(self) -> bool:
        """Whether changes of layout between operators are priced; for T5 they are free in Aceso."""
        return self.name != "t5"


@dataclass(frozen=True)
class Model:
    """One size of a family; ``layers`` is absent for Wide-ResNet, whose files list every
    operator."""

    family: Family
    size: str
    layers: int | None

    @property
    def files_size(self) -> str:
        """The size that the names of its files have."""
        return self.family.files_of.get(self.size, self.size)

    @property
    def facts(self) -> dict[str, Any]:
        """Hyper-parameters for a plan file, in the order that Aceso writes."""
        known = dict(self.family.sizes.get(self.size, {}))
        return known | ({} if self.layers is None else {"num_layers": self.layers})


@cache
def families() -> dict[str, Family]:
    """The known families by name."""
    document = read_yaml(Path(__file__).with_name("models.yaml"))
    return {name: Family(name=name, **given) for name, given in document.items()}


def find_model(name: str, size: str, layers: int | None = None) -> Model:
    """A model by the names of its files; ``layers`` other than its own where given. Raises
    InputError: there is no such family, or the number of layers is missing, wrong or not to be
    chosen."""
    known = families()
    if name not in known:
        raise InputError(
            f"model '{name}' is not one that Aceso profiles; "
            f"{nearest(name, known, 'give ' + ', '.join(known))}"
        )
    family = known[name]
    own = family.sizes.get(size, {}).get("num_layers")
    if not family.layers:
        if layers is not None:
            raise InputError(
                f"the files of {name} list every operator, so --layers {layers} cannot be chosen; "
                "leave it out"
            )
        return Model(family, size, None)
    number = own if layers is None else layers
    if number is None:
        sizes = ", ".join(each for each in family.sizes if each != SCALED)
        raise InputError(
            f"the number of layers of {name} {size} is not known; add --layers N, or give a size "
            f"of {sizes}"
        )
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MOST_LAYERS:
        raise InputError(
            f"{as_given(number)} layers are given; it must be a whole number from 1 to "
            f"{MOST_LAYERS}"
        )
    return Model(family, size, number)


def operator_chain(model: Model, names: Sequence[str]) -> tuple[int, ...]:
    """Row of the file for every operator of the model, in order. Raises InputError: the file lacks
    an operator that every layer begins or ends with."""
    rows = list(range(len(names)))
    chain: list[int] = []
    done = 0
    for first, last in model.family.layers:
        if first not in names or last not in names or names.index(last) < names.index(first):
            raise InputError(
                f"the operators of {model.family.name} {model.size} lack '{first}' ... '{last}', "
                "which every layer has; give a database of this model"
            )
        begin, end = names.index(first), names.index(last) + 1
        chain += rows[done:begin] + rows[begin:end] * (model.layers or 1)
        done = end
    return tuple(chain + rows[done:])


def is_layer_start(name: str) -> bool:
    """Whether the input of the operator is kept when the operators before it are recomputed."""
    return name == "enc-1st-layernorm" or "-conv1" in name


def activation_factor(name: str) -> float:
    """How often the cost model counts the measured activations of an operator."""
    if name in SHARED_BUFFERS or "-bn3" in name or ("-downsample" in name and "0-0" not in name):
        return 0.0
    return 1.5 if name == HELD_AND_HALF else 1.0


def is_tunable(family: str, name: str) -> bool:
    """Whether the operator can be split in a second way (algorithm 1)."""
    return any(part in name for part in TUNABLE.get(family, TUNABLE_OF_TRANSFORMERS))
