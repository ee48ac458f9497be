"""The axes of accelerators: what chips of a design space differ in.

Columns of tables, figures and what can be asked of a finished run follow from this list. Imports
nothing heavy, since ``--help`` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from phaze_common.units import GIGA, MIB


@dataclass(frozen=True)
class ChipAxis:
    """A field of ``Accelerator``: what it is called, and how people count it.

    ``count`` is a number of ``unit``, each of which is so many ``per_unit`` of the field. Sizes are
    numbers that every chip has; the others are stated where a space has several.
    """

    key: str
    title: str
    help: str
    unit: str = ""
    per_unit: float = 1
    is_size: bool = True

    @property
    def label(self) -> str:
        """Its title, with its unit if it has one."""
        return f"{self.title}, {self.unit}" if self.unit else self.title


CHIP_AXES = (
    ChipAxis("num_tc", "tensor cores", "number of tensor cores"),
    ChipAxis("num_vc", "vector cores", "number of vector cores"),
    ChipAxis(
        "width", "columns of a tensor core", "columns of processing elements of a tensor core"
    ),
    ChipAxis("depth", "rows of a tensor core", "rows of processing elements of a tensor core"),
    ChipAxis("width_vc", "lanes of a vector core", "lanes of a vector core"),
    ChipAxis("glb_bytes", "global buffer", "on-chip buffer", "MiB", MIB),
    ChipAxis(
        "memory_system",
        "memory, kind and stacks",
        "memory as it is sold, KIND:STACKS; where the space has several",
        is_size=False,
    ),
    ChipAxis("frequency_hz", "clock", "clock; where the space has several", "GHz", GIGA, False),
    ChipAxis(
        "links",
        "links of a chip",
        "links of the chip's own; where the space has several",
        is_size=False,
    ),
)
SIZES = tuple(each.key for each in CHIP_AXES if each.is_size)
VARIED = tuple(each.key for each in CHIP_AXES if not each.is_size)
COLUMNS = (*SIZES, "area_mm2")
