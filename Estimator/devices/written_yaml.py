"""A device or a training framework as the YAML file that ``load_device`` or ``load_software``
reads."""

from dataclasses import asdict
from enum import StrEnum

import numpy as np
import yaml

from Estimator.devices.device import Device
from Estimator.devices.software import Software

LINE = 1000  # a constant with its source stays on one line
PLAIN = (1e-3, 1e6)  # numbers of this size are written without an exponent


def written_yaml(record: Device | Software) -> str:
    """The file; reading it gives an equal record."""

    class Dumper(yaml.SafeDumper):
        """Writes tuples as lists, and large and small numbers with an exponent."""

    Dumper.add_representer(tuple, lambda dumper, content: dumper.represent_list(content))
    Dumper.add_multi_representer(StrEnum, lambda dumper, name: dumper.represent_str(name.value))
    Dumper.add_representer(
        float,
        lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:float", _number(value)),
    )
    return yaml.dump(
        asdict(record), Dumper=Dumper, sort_keys=False, default_flow_style=None, width=LINE
    )


def _number(value: float) -> str:
    if value and not PLAIN[0] <= abs(value) < PLAIN[1]:
        return np.format_float_scientific(value, trim="0")
    return repr(value)
