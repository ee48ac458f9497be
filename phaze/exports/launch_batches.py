"""The batches of a launch whose file does not say on how many devices it runs: what the command
line gives tells the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from phaze.exports.given_keys import whole
from phaze_common.errors import InputError

OF_REPLICAS = "give --devices or --dp"
SHARING = ("tp", "pp", "cp")  # axes whose devices share a replica


def given_number(given: Mapping[str, str], key: str) -> int | None:
    """A whole number of the command line; None where it is not given, or is none, which its own
    reader says."""
    word = given.get(key, "")
    is_number = word.isascii() and word.isdecimal() and len(word) < 10
    return (int(word) or None) if is_number else None


def devices_of_a_replica(
    found: Mapping[str, object], given: Mapping[str, str] | None = None
) -> int:
    """Devices that share a replica, by what a file says (``found``); degrees of the command line
    count before."""
    return prod(
        given_number(given or {}, axis) or whole(found.get(axis), axis) or 1 for axis in SHARING
    )


def replicas_of(given: Mapping[str, str], found: Mapping[str, object]) -> int | None:
    """Data-parallel replicas: those of the command line, else of its devices, else of what a file
    says (``found``).

    Raises:
        InputError: the devices are no multiple of those that share a replica.
    """
    devices = given_number(given, "devices")
    if (replicas := given_number(given, "dp")) is not None or devices is None:
        return replicas or whole(found.get("dp"), "dp")
    shared = devices_of_a_replica(found, given)
    if devices % shared:
        raise InputError(
            f"{devices} devices are no multiple of tp x pp x cp, {shared}; give other --devices"
        )
    return devices // shared


def accumulated(
    given: Mapping[str, str], steps: int, found: Mapping[str, object]
) -> dict[str, object]:
    """The global batch of ``steps`` micro-batches, where the command line does not give it and all
    of its factors are known."""
    name = "micro_batch_size"
    micro = given_number(given, name) or whole(found.get(name), name)
    replicas = replicas_of(given, found)
    if steps == 1 or "global_batch_size" in given or micro is None or replicas is None:
        return {}
    return {"global_batch_size": micro * steps * replicas}


def accumulation(
    given: Mapping[str, str],
    steps: int,
    found: Mapping[str, object],
    key: str,
    untold: dict[str, str],
) -> dict[str, object]:
    """As ``accumulated``; where a factor is nowhere, ``key``, which says the steps, is noted in
    ``untold`` with what to give."""
    batch = accumulated(given, steps, found)
    if steps > 1 and not batch and "global_batch_size" not in {**found, **given}:
        known = "micro_batch_size" in {**found, **given}
        sizes = "--micro-batch-size (and --devices or --dp, where it does not say them)"
        untold[key] = (
            "it multiplies micro-batches of replicas, of which the file does not say both size "
            f"and number: give {'--devices, --dp' if known else sizes} or --global-batch-size"
        )
    return batch


@dataclass(frozen=True)
class ProductRule:
    """Three sizes of DeepSpeed: the batch is the product of a micro-batch, of ``steps`` and of
    replicas.

    What is not given follows from the rest as ``DeepSpeedConfig._set_batch_related_parameters`` has
    it. That counts every device of a replica which shares its layers by ``tensor_parallel``; so
    many times less is trained on.
    """

    batch: int | None
    micro_batch: int | None
    steps: int | None
    tensor_parallel: int = 1

    @property
    def replicas(self) -> int | None:
        """Replicas that the three sizes leave; None where one of them is not given.

        Raises:
            InputError: they leave a part of one.
        """
        devices = self._devices
        return None if devices is None else devices // self._counted

    def settings(self, replicas: int | None) -> dict[str, object]:
        """Micro-batch and global batch on so many replicas, where they are known.

        Raises:
            InputError: the sizes contradict their number, or say nothing without it.
        """
        micro: dict[str, object] = {}
        if self.micro_batch is not None:
            micro["micro_batch_size"] = self.micro_batch
        steps = self.steps or 1
        if replicas is None:
            if self.batch is not None:
                raise InputError(
                    f"train_batch_size {self.batch} is shared out by replicas whose number the "
                    f"file does not say; {OF_REPLICAS}"
                )
            if steps > 1:
                raise InputError(
                    f"gradient_accumulation_steps {steps} multiplies the batches of all replicas; "
                    f"{OF_REPLICAS}"
                )
            return micro
        if self.batch is None and self.micro_batch:
            return micro | {"global_batch_size": self.micro_batch * steps * replicas}
        if self.batch is None:
            return micro
        product = (self.micro_batch or 1) * steps * replicas * self._counted
        even = self.batch % product == 0
        if not even or (self.micro_batch and self.steps and self.batch != product):
            sizes = "train_micro_batch_size_per_gpu x gradient_accumulation_steps"
            raise InputError(
                f"train_batch_size {self.batch} is not shared out evenly by "
                f"{replicas * self._counted} devices with {sizes} {self.micro_batch or 1} x "
                f"{steps}, which DeepSpeed refuses; give other --devices, or --global-batch-size"
            )
        return {
            "micro_batch_size": self.micro_batch or self.batch // product,
            "global_batch_size": self.batch // self._counted,
        }

    def note(self, batch: object) -> str:
        """What is to be said of the file's batch where ``batch``, which is trained on, is less;
        empty where it is not."""
        counted = self.batch is not None and self.tensor_parallel > 1
        if not counted or batch == self.batch or not isinstance(batch, int):
            return ""
        return (
            f"DeepSpeed counts each of the {self.tensor_parallel} devices of tensor parallelism in "
            f"it, which read the same sequences: {batch} are trained on, micro-batch x steps x dp"
        )

    @property
    def _counted(self) -> int:
        devices = self._devices
        return 1 if devices is not None and devices % self.tensor_parallel else self.tensor_parallel

    @property
    def _devices(self) -> int | None:
        if self.batch is None or self.micro_batch is None or self.steps is None:
            return None
        found, left = divmod(self.batch, self.micro_batch * self.steps)
        if left or found == 0:
            raise InputError(
                f"train_batch_size {self.batch} is no multiple of train_micro_batch_size_per_gpu "
                f"{self.micro_batch} x "
                f"gradient_accumulation_steps {self.steps}; correct one of them"
            )
        return found
