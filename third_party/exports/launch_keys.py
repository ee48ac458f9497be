"""The records of a launch that was read, under the name by which readers know them."""

from Studies.launched import KeyKind as KeyKind
from Studies.launched import LaunchKey as LaunchKey
from Studies.launched import LaunchReading as LaunchReading
