"""The accelerators that a request compares where it designs them."""

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import AcceleratorSet
from Estimator.chips.cores_file import read_cores_json
from Estimator.chips.design_space import DesignSpace
from Estimator.chips.limit_refusals import refuse_chip
from Estimator.chips.space_part import part_numbers
from phaze.settings.request import HardwareSettings, Request
from phaze_common.errors import InputError

logger = logging.getLogger(__name__)
CORES = "cores.json"


def designed_accelerators(request: Request) -> AcceleratorSet:
    """The accelerators to compare; those of an existing ``cores.json``, as the original's.

    Raises:
        InputError: the file is no list of accelerators, or the space has none.
    """
    space, cores = design_space_of(request), replaced_by(request)
    if request.records.chip is not None:
        chip = AcceleratorSet.of([request.records.chip])
        whole = space.whole(chip)
        if not space.limits.passing(whole).all():
            refuse_chip(space.limits, str(request.hardware.chip), whole)
        return chip
    if cores is None:
        return space.generate(request.hardware.part)
    accelerators = read_cores_json(cores)
    accelerators = accelerators.some(request.hardware.part.places(0, len(accelerators)))
    message = "accelerators are those of %s (%d); delete it to search the design space %s"
    logger.info(message, cores, len(accelerators), space.name)
    return accelerators


def part_sizes(request: Request, count: int) -> NDArray[np.int64]:
    """Accelerators in each of ``count`` parts of the space, shape (count,).

    Raises:
        InputError: the file of accelerators is none.
    """
    cores = replaced_by(request)
    if cores is None:
        return design_space_of(request).part_sizes(count)
    numbers = part_numbers(np.arange(len(read_cores_json(cores))), count)
    return np.bincount(numbers - 1, minlength=count)


def design_space_of(request: Request) -> DesignSpace:
    """The design space of a request that designs accelerators.

    Raises:
        InputError: its devices exist.
    """
    if request.records.space is None:
        raise InputError(
            f"there is no accelerator to design, since the device {request.hardware.device} is "
            "given; leave --device out"
        )
    return request.records.space


def replaced_by(request: Request) -> Path | None:
    """The file whose accelerators are searched instead of the default space, where there is one."""
    space, path = request.records.space, request.folders.arch_configs / CORES
    hardware = request.hardware
    other = hardware.design_space != HardwareSettings.design_space
    if space is None or other or hardware.memory or hardware.links:
        return None
    if space.technology != space.own_technology:
        return None
    return path if request.hardware.chip is None and path.exists() else None
