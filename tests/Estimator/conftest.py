"""The default hardware, read once."""

import pytest

from Estimator.chips.accelerator import AcceleratorSet, Platform
from Estimator.chips.design_space import DesignSpace
from Estimator.chips.design_space_files import load_design_space
from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster


@pytest.fixture(scope="session")
def space() -> DesignSpace:
    return load_design_space("phaze_icml24")


@pytest.fixture(scope="session")
def platform(space: DesignSpace) -> Platform:
    return space.platform


@pytest.fixture(scope="session")
def accelerators(space: DesignSpace) -> AcceleratorSet:
    return space.generate()


@pytest.fixture(scope="session")
def flat_cluster() -> Cluster:
    return load_cluster("phaze_icml24")
