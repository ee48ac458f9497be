"""The device and the cluster of a published run."""

import re
from dataclasses import replace
from functools import lru_cache

from Common.errors import InputError
from Estimator.devices.device import Device
from Estimator.devices.files import device_of_run
from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster, grown_to
from Validation.assumptions import Assumptions, Notes, first_found
from Validation.network_description import GIGABIT, network_in
from Validation.records import MeasuredRun

_FORM = re.compile(r"[- ]?(sxm\d?|oam|hbm\d?e?|nvlink)\b", re.IGNORECASE)  # boards that the names of devices leave out


class RunHardware:
    """Finds devices and clusters by the words of runs; reads every file once."""

    def __init__(self, rules: Assumptions) -> None:
        self._rules = rules
        self._device = lru_cache(maxsize=None)(_device_named)
        self._cluster = lru_cache(maxsize=None)(load_cluster)

    def device_of(self, run: MeasuredRun) -> Device:
        """The device that the run names, with or without the form of its board.

        Raises:
            InputError: no device has that name.
        """
        if not run.gpu:
            raise InputError("it does not say on which device it ran")
        return self._device(run.gpu)

    def cluster_of(self, run: MeasuredRun, devices: int, device: Device, notes: Notes) -> Cluster:
        """The cluster of the run: named by its network or the device's usual one, with the nodes and the bandwidth it states.

        Raises:
            InputError: the device's cluster is not known.
        """
        if run.cluster:
            return as_large_as(self._cluster(run.cluster), devices)
        named = first_found(self._rules.clusters, run.network, run.source)
        cluster = self._cluster(named.cluster if named is not None else device.cluster)
        if len(cluster.tiers) != 2:  # a torus has no nodes
            return as_large_as(cluster, devices)
        words = network_in(run.network)
        inside, between = cluster.tiers
        node = words.devices_per_node or inside.group_size
        rate = between.bandwidth_bytes_per_s
        if words.node_gigabits_per_s is not None:
            rate = words.node_gigabits_per_s * GIGABIT / node
        elif words.port_gigabits_per_s is not None:
            rate = min(rate, words.port_gigabits_per_s * GIGABIT)
        between_nodes = f", nodes of {node}, {rate / 1e9:g} GB/s per device between them" if devices > node else ""
        notes.assume("cluster", cluster.name + between_nodes)
        outer = max(between.group_size // node, 1) * node
        tiers = (replace(inside, group_size=node), replace(between, group_size=outer, bandwidth_bytes_per_s=rate))
        return as_large_as(replace(cluster, num_devices=outer, tiers=tiers if outer > node else tiers[:1]), devices)


def as_large_as(cluster: Cluster, devices: int) -> Cluster:
    """The cluster, with more of its nodes where it has fewer than ``devices`` devices."""
    if cluster.num_devices >= devices:
        return cluster
    node = cluster.tiers[-2].group_size if len(cluster.tiers) > 1 else 1
    return grown_to(cluster, -(-devices // node) * node)


def _device_named(name: str) -> Device:
    try:
        return device_of_run(name)
    except InputError:
        bare = _FORM.sub("", name).strip()
        if bare == name:
            raise
        return device_of_run(bare)
