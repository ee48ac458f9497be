"""The device and the cluster of a published run."""

from dataclasses import replace
from functools import cache

from Estimator.devices.device import Device
from Estimator.devices.files import device_of_run
from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster, Tier, grown_to
from phaze.validation.assumptions import Notes
from phaze.validation.typed_run import TypedRun
from phaze_common.errors import InputError


def device_of(run: TypedRun) -> Device:
    """The device that the run names.

    Raises:
        InputError: no device has that name.
    """
    if not run.device:
        raise InputError("it does not say on which device it ran")
    return device_of_run(run.device)


def tiers_of(run: TypedRun, device: Device) -> tuple[Tier, ...]:
    """The tiers of its cluster as it ships.

    Raises:
        InputError: the cluster is not known.
    """
    return tuple(_cluster_named(run.cluster or device.cluster).tiers)


def cluster_of(run: TypedRun, devices: int, device: Device, notes: Notes) -> Cluster:
    """The cluster of the run: its own or the device's usual one, with the nodes and the bandwidth
    it states.

    Raises:
        InputError: the cluster is not known.
    """
    cluster = _cluster_named(run.cluster or device.cluster)
    stated = run.devices_per_node is not None or run.node_bytes_per_s is not None
    if len(cluster.tiers) != 2 or (run.cluster and not stated):  # a torus has no nodes
        if not run.cluster:
            notes.assume("cluster", cluster.name)
        return as_large_as(cluster, devices)
    inside, between = cluster.tiers
    node = run.devices_per_node or inside.group_size
    rate = run.node_bytes_per_s or between.bandwidth_bytes_per_s
    if not (run.cluster and run.devices_per_node and run.node_bytes_per_s):
        nodes = f", nodes of {node}, {rate / 1e9:g} GB/s per device between them"
        notes.assume("cluster", cluster.name + (nodes if devices > node else ""))
    outer = max(between.group_size // node, 1) * node
    tiers: tuple[Tier, ...] = (
        replace(inside, group_size=node),
        replace(between, group_size=outer, bandwidth_bytes_per_s=rate),
    )
    tiers = tiers if outer > node else tiers[:1]
    return as_large_as(replace(cluster, num_devices=outer, tiers=tiers), devices)


def as_large_as(cluster: Cluster, devices: int) -> Cluster:
    """The cluster, with more of its nodes where it has fewer than ``devices`` devices."""
    if cluster.num_devices >= devices:
        return cluster
    node = cluster.tiers[-2].group_size if len(cluster.tiers) > 1 else 1
    return grown_to(cluster, -(-devices // node) * node)


_cluster_named = cache(load_cluster)  # runs name the same few
