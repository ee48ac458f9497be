"""The kinds of names that ``phaze list`` lists. Imports nothing heavy."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ListedKind:
    """What ``phaze list`` lists under a name: what it is, and the flags that take a name of it."""

    what: str
    flags: tuple[str, ...]


LISTED = {
    "models": ListedKind("models to train", ("--model",)),
    "devices": ListedKind("devices that exist, to train on", ("--device",)),
    "clusters": ListedKind("networks of devices", ("--cluster",)),
    "software": ListedKind("training frameworks on devices that exist", ("--software",)),
    "design-spaces": ListedKind("accelerators to design among", ("--design-space",)),
    "technologies": ListedKind("areas and energies of accelerators", ("--technology",)),
    "memories": ListedKind("memory of accelerators as it is sold", ("--memory",)),
    "prices": ListedKind("what chips, clusters and energy cost", ("--prices",)),
    "chips": ListedKind("known accelerators of the default design space", ("--chip",)),
}
