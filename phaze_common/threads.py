"""How many threads this process may use."""

import os

# set by whoever runs several processes beside each other: joblib, Ray, batch systems
SETTING = "OMP_NUM_THREADS"


def threads() -> int:
    """What ``OMP_NUM_THREADS`` allows, else one per core of the machine."""
    allowed = os.environ.get(SETTING, "")
    return max(int(allowed), 1) if allowed.isdecimal() else os.cpu_count() or 1
