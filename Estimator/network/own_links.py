"""The tiers of a cluster that run over the chips' own links, at the bandwidth that these give.

``Tier.link_parts`` says into how many equal parts a chip's links are divided, of which the tier has
one: all of them under a switch or between devices that are all linked directly, a third of them
along each dimension of a 3D torus. N links of b bytes/s each way give a tier N b / parts; the links
of a part must lead to all neighbours alike (``Tier.directions``).
"""

from __future__ import annotations

from dataclasses import replace

from Estimator.chips.own_links import OwnLinks
from Estimator.network.cluster import Cluster, Topology
from phaze_common.errors import InputError

_NAMES = {
    Topology.SWITCH: "a switch",
    Topology.RAIL: "rails",
    Topology.MESH: "direct links between all",
    Topology.HYPERCUBE: "the dimensions of a hypercube",
    Topology.TORUS: "two neighbours along each dimension of a torus",
}


def over_links(cluster: Cluster, links: OwnLinks | None) -> Cluster:
    """``cluster`` of chips with such ``links``; as it is for None, of chips that have those of its
    file."""
    if links is None:
        return cluster
    tiers = (
        replace(tier, bandwidth_bytes_per_s=links.bandwidth_bytes_per_s / tier.link_parts)
        if tier.link_parts
        else tier
        for tier in cluster.tiers
    )
    return replace(cluster, tiers=tuple(tiers))


def check_links(cluster: Cluster, links: OwnLinks) -> None:
    """Refuse links that no tier of ``cluster`` runs over, or that one of them cannot share out
    evenly.

    Raises:
        InputError: says what it could.
    """
    if not any(tier.link_parts for tier in cluster.tiers):
        raise InputError(
            f"links are {links.label}, but no tier of cluster {cluster.name} runs over the chips' "
            "own links; leave links out, or name a cluster with link_parts in its file, as "
            "dgx_h100 or torus_3d ('phaze list clusters')"
        )
    for tier, inner in zip(cluster.tiers, cluster.block_sizes, strict=True):
        needed = tier.link_parts * tier.directions(tier.group_size // inner)
        if needed and links.count % needed:
            raise InputError(
                f"links are {links.label}, but tier {tier.name} of cluster {cluster.name} cannot "
                f"share {links.count} out evenly over {_NAMES[tier.topology]}; give a multiple of "
                f"{needed} links, such as {needed}x{_each(links, needed)}GB/s"
            )


def _each(links: OwnLinks, needed: int) -> str:
    """Bandwidth of each of about as much in the least number that works, in GB/s."""
    return f"{links.bandwidth_bytes_per_s / needed / 1e9:.4g}"
