"""The hardware a study compares: its accelerators, what they share, and the cluster they are in."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from Estimator.chips.accelerator import AcceleratorSet, Platform
from Estimator.chips.cores_file import read_cores_json
from Estimator.chips.design_space import ReferenceChip, load_design_space
from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster
from Studies.study import Study

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Hardware:
    """Accelerators of one platform in one kind of cluster, and the known chips to compare them with."""

    accelerators: AcceleratorSet
    platform: Platform
    cluster: Cluster
    references: tuple[ReferenceChip, ...]


def load_hardware(study: Study) -> Hardware:
    """Read the design space and the cluster of ``study``.

    As with the original, an existing ``cores.json`` is used instead of generating the default space.

    Raises:
        InputError: an unknown name, or a file that is not readable, incomplete or contradictory.
    """
    space = load_design_space(study.design_space, study.technology)
    cores = study.folders.arch_configs / "cores.json"
    default = Study(models=())
    if (study.design_space, study.technology) == (default.design_space, default.technology) and cores.exists():
        accelerators = read_cores_json(cores)
        logger.info(
            "accelerators are those of %s (%d); delete it to search the design space %s", cores, len(accelerators), space.name
        )
    else:
        accelerators = space.generate()
    return Hardware(accelerators, space.platform, load_cluster(study.cluster), space.references)
